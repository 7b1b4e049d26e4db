"""The vision trainer's rows: seconds to the first batch and memory, as the data set grows.

    pytest -q -s tests/bench/vision_data.py        (about a minute)

Measured on two busy cores: 20,000 rows (370 MiB on disk) give the first batch of 8 after 2.2 s, and
1.8 s once they have been read before; the process then holds 96 MiB, with 1,000 rows 87 MiB.
"""

from tests.training.test_vision_data import large, measured

ROWS = (1000, 5000, 20_000)


def test_twenty_thousand_rows(tmp_path):
    place = large(tmp_path / "large", ROWS[-1])
    size = (place / "train.parquet").stat().st_size >> 20
    print(f"\n{size} MiB on disk")
    for count in ROWS:
        # The datasets library caches what it has read: a restarted run finds it.
        for cache in ("first reading", "cached"):
            rows, seconds, own = measured(place, count, tmp_path / f"hf-{count}")
            print(
                f"{count} rows, {cache}: first batch after {seconds:.1f} s, {own:.0f} MiB ({rows})"
            )
