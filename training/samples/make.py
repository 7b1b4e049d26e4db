"""Everything that a run without downloads needs: tiny checkpoints and sample data.

    python -m training.samples.make OUT

writes OUT/models/{tiny-gemma3-vision,tiny-gemma4-text}/ and OUT/data/{text-to-sql,products}/.
"""

from __future__ import annotations

import sys
from pathlib import Path


def make(out: Path) -> None:
    """Write all samples below `out`; the same bytes every time at the same versions."""
    from training.samples import products, text_model, text_to_sql, vision_model

    for place, write in (
        ("data/text-to-sql", text_to_sql.write),
        ("data/products", products.write),
        ("models/tiny-gemma4-text", text_model.write),
        ("models/tiny-gemma3-vision", vision_model.write),
    ):
        print(write(out / place))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(Path(sys.argv[1]))
