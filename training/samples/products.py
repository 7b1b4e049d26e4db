"""Sample product pictures with texts, drawn by this script: 48 products, two views of each.

    python -m training.samples.products OUT        # writes OUT/train.parquet

The columns are those of `philschmid/amazon-product-descriptions-vlm` that the trainer reads: image,
Product Name, Category, description. The name says what the thing is; colour and pattern are seen in
the picture only, and the description states both, so a model that ignores the picture cannot
describe an unseen product. Same seed, same Pillow: same bytes.
"""

import io
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

SIZE = 96  # pixels on each side
COLOURS = {
    "red": (208, 38, 44),
    "orange": (242, 140, 30),
    "yellow": (247, 214, 58),
    "green": (42, 150, 74),
    "blue": (38, 84, 190),
    "purple": (128, 58, 160),
    "pink": (240, 130, 178),
    "black": (38, 38, 42),
}
PATTERNS = {
    "plain": "in plain {colour}",
    "striped": "in {colour} with white stripes",
    "dotted": "in {colour} with white dots",
}
SERIES = [
    *("Alder", "Brook", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Haven", "Iris", "Juniper"),
    *("Kestrel", "Linden", "Maple", "Nordic", "Orchard", "Pine", "Quarry", "Ridge", "Summit"),
]
GREY = {"fill": (120, 120, 120)}

Shape = tuple[str, Sequence[Any], Mapping[str, Any]]  # ImageDraw method, coordinates, arguments


@dataclass(frozen=True)
class Kind:
    """A kind of product: `body` gets the product's colour and pattern, `parts` are always grey."""

    name: str
    category: str
    feature: str
    body: Shape
    parts: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Product:
    kind: Kind
    series: str
    colour: str
    pattern: str

    @property
    def name(self) -> str:
        return f"{self.series} {self.kind.name.title()}"

    @property
    def description(self) -> str:
        look = PATTERNS[self.pattern].format(colour=self.colour)
        return f"A {self.kind.name} {look}. {self.kind.feature}"


SHIRT = [(34, 20), (62, 20), (86, 36), (78, 48), (66, 42), (66, 80), (30, 80), (30, 42), (18, 48)]
KINDS = (
    Kind(
        "mug",
        "Kitchen",
        "Keeps coffee hot and is safe in the dishwasher.",
        ("rounded_rectangle", (24, 28, 62, 76), {"radius": 6}),
        (("arc", (54, 36, 82, 66), {"start": -90, "end": 90, "width": 6}),),
    ),
    Kind(
        "plate",
        "Kitchen",
        "Glazed stoneware for breakfast, lunch and dinner.",
        ("ellipse", (16, 16, 80, 80), {}),
        (("arc", (32, 32, 64, 64), {"start": 0, "end": 360, "width": 3}),),
    ),
    Kind(
        "shirt",
        "Clothing",
        "Soft cotton that stays fresh all day.",
        ("polygon", [*SHIRT, (10, 36)], {}),
        (("arc", (38, 10, 58, 30), {"start": 10, "end": 170, "width": 4}),),
    ),
    Kind(
        "scarf",
        "Clothing",
        "Warm wool for cold mornings.",
        ("polygon", [(36, 12), (60, 12), (60, 60), (72, 84), (24, 84), (36, 60)], {}),
        tuple(("line", (x, 84, x, 92), {"width": 2}) for x in range(26, 73, 6)),
    ),
    Kind(
        "lamp",
        "Home",
        "Warm light for the desk or the bedside.",
        ("polygon", [(34, 16), (62, 16), (78, 50), (18, 50)], {}),
        (("rectangle", (45, 50, 51, 78), {}), ("ellipse", (30, 74, 66, 86), {})),
    ),
    Kind(
        "cushion",
        "Home",
        "Plump and washable, for sofa and chair.",
        ("rounded_rectangle", (16, 22, 80, 74), {"radius": 16}),
    ),
    Kind(
        "backpack",
        "Bags",
        "Padded straps and room for a laptop.",
        ("rounded_rectangle", (24, 22, 72, 84), {"radius": 14}),
        (
            ("arc", (36, 8, 60, 36), {"start": 180, "end": 360, "width": 5}),
            ("rectangle", (34, 54, 62, 58), {}),
        ),
    ),
    Kind(
        "tote",
        "Bags",
        "Carries the whole shopping and folds flat.",
        ("polygon", [(20, 40), (76, 40), (70, 86), (26, 86)], {}),
        (("arc", (32, 10, 64, 70), {"start": 180, "end": 360, "width": 4}),),
    ),
    Kind(
        "ball",
        "Toys",
        "Bounces well indoors and outdoors.",
        ("ellipse", (20, 20, 76, 76), {}),
        (("arc", (34, 20, 62, 76), {"start": 90, "end": 270, "width": 2}),),
    ),
    Kind(
        "kite",
        "Toys",
        "Flies in a light breeze, easy for children.",
        ("polygon", [(48, 8), (74, 38), (48, 76), (22, 38)], {}),
        (("line", (48, 76, 56, 82, 46, 86, 54, 93), {"width": 3}),),
    ),
    Kind(
        "pot",
        "Garden",
        "Frost proof clay with a drainage hole.",
        ("polygon", [(18, 34), (78, 34), (68, 84), (28, 84)], {}),
        (("rectangle", (14, 28, 82, 37), {}),),
    ),
    Kind(
        "boot",
        "Garden",
        "Rubber that keeps feet dry in wet grass.",
        ("polygon", [(30, 12), (56, 12), (56, 56), (84, 66), (84, 80), (30, 80)], {}),
        (("rectangle", (28, 79, 86, 86), {}),),
    ),
)


def catalogue(seed: int = 0) -> list[Product]:
    """Four products of each kind: no two of a kind share colour or series name."""
    rng = random.Random(seed)
    return [
        Product(kind, series, colour, rng.choice(list(PATTERNS)))
        for kind in KINDS
        for series, colour in zip(rng.sample(SERIES, 4), rng.sample(list(COLOURS), 4), strict=True)
    ]


def picture(product: Product, view: int) -> Image.Image:
    """RGB, SIZE x SIZE; view 0 is centred on white, view 1 smaller, shifted and on light grey."""
    surface = Image.new("RGB", (SIZE, SIZE), COLOURS[product.colour])
    draw = ImageDraw.Draw(surface)
    if product.pattern == "striped":
        for x in range(-SIZE, SIZE, 14):
            draw.line((x, SIZE, x + SIZE, 0), fill="white", width=4)
    if product.pattern == "dotted":
        for y in range(4, SIZE, 14):
            for x in range(4, SIZE, 14):
                draw.ellipse((x, y, x + 5, y + 5), fill="white")
    background = (255, 255, 255) if view == 0 else (226, 230, 234)
    canvas = Image.new("RGB", (SIZE, SIZE), background)
    body = Image.new("L", (SIZE, SIZE))
    method, coordinates, arguments = product.kind.body
    getattr(ImageDraw.Draw(body), method)(coordinates, fill=255, **arguments)
    canvas.paste(surface, mask=body)
    draw = ImageDraw.Draw(canvas)
    for method, coordinates, arguments in product.kind.parts:
        getattr(draw, method)(coordinates, **GREY, **arguments)
    if view:
        small = canvas.resize((76, 76), Image.Resampling.BILINEAR)
        canvas = Image.new("RGB", (SIZE, SIZE), background)
        canvas.paste(small, (14, 6))
    return canvas


def rows(seed: int = 0, views: int = 2) -> Iterator[dict[str, object]]:
    """Rows in the tutorial's columns; image is PNG bytes, as `datasets.Image` keeps them."""
    for product in catalogue(seed):
        for view in range(views):
            buffer = io.BytesIO()
            picture(product, view).save(buffer, "PNG", optimize=True)
            yield {
                "image": {"bytes": buffer.getvalue(), "path": None},
                "Product Name": product.name,
                "Category": product.kind.category,
                "description": product.description,
            }


def write(folder: Path, seed: int = 0) -> Path:
    """Write `folder/train.parquet` (`datasets` reads its image column as pictures); return it."""
    columns = [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]))]
    columns += [(name, pa.string()) for name in ("Product Name", "Category", "description")]
    features: dict[str, object] = {
        name: {"dtype": "string", "_type": "Value"} for name, _ in columns[1:]
    }
    features["image"] = {"_type": "Image"}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.Table.from_pylist(list(rows(seed)), schema=pa.schema(columns, metadata=metadata))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "train.parquet"
    pq.write_table(table, path, row_group_size=32)
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
