"""Rows: sample pictures show what their texts say; split, order, bad rows, memory."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from training.common.config import ConfigError
from training.gemma3_vision import data
from training.gemma3_vision.config import typed
from training.gemma3_vision.rowcheck import BadRow
from training.samples import products

COLUMNS = ("image", "Product Name", "Category", "description")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("products")
    products.write(place)
    return place


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMMA_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))


def settings(**keys):
    return typed({"data": {"dataset_name": "x", **keys}, "run": {"output_dir": "x"}}).data


def png(colour="red", size=(8, 8)):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def write(folder, rows):
    folder.mkdir(exist_ok=True)
    table = pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    pq.write_table(table, folder / "train.parquet")
    return folder


def struct(content):
    return {"bytes": content, "path": None}


def many(count, broken=()):
    return [
        (
            struct(b"no picture" if i in broken else png((i, 0, 9))),
            f"Thing {i}",
            "Home",
            f"A thing, {i}.",
        )
        for i in range(count)
    ]


def test_sample_pictures_show_the_colour_that_their_text_names():
    rows = list(products.rows())
    assert len(rows) >= 64
    for row in rows:
        pixels = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"), int)
        spread = pixels.max(2) - pixels.min(2)
        dark = pixels.max(2) < 60
        coloured = pixels[(spread > 60) | dark]
        mean = np.median(coloured, axis=0)
        nearest = min(products.COLOURS, key=lambda c: np.abs(mean - products.COLOURS[c]).sum())
        assert f" {nearest}" in row["description"], row["Product Name"]
        assert nearest not in row["Product Name"].lower()


def test_samples_are_the_same_each_time_and_read_as_pictures(folder, tmp_path):
    again = products.write(tmp_path / "again")
    assert again.read_bytes() == (folder / "train.parquet").read_bytes()
    names = Counter(row["Category"] for row in products.rows(views=1))
    assert len(names) == 6
    assert min(names.values()) >= 4
    split = data.prepare(settings(), folder)
    row = split.train[0]
    assert row["images"][0].mode == "RGB"
    assert row["prompt"][0]["role"] == "system"
    assert "Product: " in row["prompt"][1]["content"]


def test_no_product_is_on_both_sides(folder):
    split = data.prepare(settings(held_out_fraction=0.3), folder)
    sides = [
        {row["prompt"][1]["content"] for row in side} for side in (split.train, split.held_out)
    ]
    assert not sides[0] & sides[1]
    assert len(split.train) + len(split.held_out) == 96
    assert 10 < len(split.held_out) < 50


def test_a_side_depends_on_name_and_seed_alone():
    names = [f"Thing {i}" for i in range(2000)]
    first, other = settings(), settings(seed=7)
    held = {n for n in names if data.is_held_out(n, first)}
    assert 150 < len(held) < 250
    assert {n for n in names if data.is_held_out(f"  {n.upper()} ", first)} == held
    assert {n for n in names if data.is_held_out(n, other)} != held


def test_the_split_is_the_same_in_another_process(folder):
    code = (
        "import sys; from pathlib import Path;"
        "from training.gemma3_vision import data; from training.gemma3_vision.config import typed;"
        "c = typed({'data': {'dataset_name': 'x'}, 'run': {'output_dir': 'x'}});"
        "print(data.prepare(c.data, Path(sys.argv[1])).fingerprint)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "5"},
    )
    assert done.stdout.split()[-1] == data.prepare(settings(), folder).fingerprint


def test_fillers_bring_the_epoch_to_whole_steps_and_are_marked(tmp_path):
    split = data.prepare(settings(), write(tmp_path / "d", many(50)), multiple=16)
    rows = split.train[:]
    assert len(split.train) % 16 == 0
    assert sum(rows["filler"]) == split.fillers == len(split.train) - (50 - len(split.held_out))
    real = [n for n, filler in zip(rows["row"], rows["filler"], strict=True) if not filler]
    assert len(real) == len(set(real)) == 50 - len(split.held_out)


def test_jsonl_with_paths_and_webdataset(tmp_path):
    rows = [(f"pictures/{i}.png", f"Thing {i}", "Home", f"A thing, {i}.") for i in range(30)]
    lines = tmp_path / "lines"
    (lines / "pictures").mkdir(parents=True)
    for path, *_ in rows:
        (lines / path).write_bytes(png("blue", (8, 8 + int(Path(path).stem))))
    text = "".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows)
    (lines / "train.jsonl").write_text(text)
    picture = data.prepare(settings(), lines).train[0]["images"][0]
    assert picture.getpixel((0, 0)) == (0, 0, 255)

    shards = tmp_path / "shards"
    shards.mkdir()
    with tarfile.open(shards / "train-000.tar", "w") as archive:
        for i in range(30):
            picture = png("blue", (8, 8 + i))
            parts = {"png": picture, "name.txt": b"Thing %d" % i, "text.txt": b"A thing, %d." % i}
            for kind, content in {**parts, "kind.txt": b"Home"}.items():
                entry = tarfile.TarInfo(f"{i:04d}.{kind}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    columns = {
        "image_column": "png",
        "product_column": "name.txt",
        "description_column": "text.txt",
        "category_column": "kind.txt",
    }
    split = data.prepare(settings(**columns), shards)
    assert split.train[0]["images"][0].getpixel((0, 0)) == (0, 0, 255)
    assert split.train[0]["completion"][0]["content"].startswith("A thing, ")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((None, "N", "C", "text"), "without image"),
        ((struct(None), "N", "C", "text"), "without image"),
        ((struct(b""), "N", "C", "text"), "without image"),
        ((struct(png()), "N", "C", "  "), "without description"),
        ((struct(png()), None, "C", "text"), "without Product Name"),
    ],
)
def test_an_empty_row_stops_with_its_number_or_is_counted(tmp_path, row, reason):
    rows = many(40)
    rows[17] = row
    place = write(tmp_path / "d", rows)
    with pytest.raises(BadRow, match=f"row 17 is {reason}"):
        data.prepare(settings(), place)
    split = data.prepare(settings(bad_rows="skip"), place)
    assert split.skipped == {reason: 1}
    assert 17 not in {*split.train[:]["row"], *split.held_out[:]["row"]}


def test_a_broken_picture_stops_when_it_is_read_or_is_counted(tmp_path):
    place = write(tmp_path / "d", many(40, broken={5, 23}))
    split = data.prepare(settings(), place)
    with pytest.raises(BadRow, match=r"row (5|23): not a readable picture"):
        list(split.train)
    skipped = data.prepare(settings(bad_rows="skip"), place)
    assert sum(skipped.skipped.values()) == 2
    assert len(list(skipped.train)) + len(list(skipped.held_out)) == 38


def test_wrong_columns_and_folders_are_told_at_once(tmp_path):
    place = write(tmp_path / "d", many(20))
    with pytest.raises(ConfigError) as caught:
        data.prepare(settings(image_column="img", product_column="name"), place)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["trainer.data.image_column", "trainer.data.product_column"]
    with pytest.raises(ConfigError, match=r"\.parquet"):
        data.prepare(settings(), tmp_path / "nothing")


MEASURE = """
import resource, sys, time
from pathlib import Path
from training.gemma3_vision import data
from training.gemma3_vision.config import typed
rows = {'dataset_name': 'x', 'max_rows': int(sys.argv[2])}
config = typed({'data': rows, 'run': {'output_dir': 'x'}})
began = time.monotonic()
split = data.prepare(config.data, Path(sys.argv[1]), multiple=8)
first = split.train[:8]
seconds = time.monotonic() - began
for start in range(0, 400, 8):
    split.train[start:start + 8]
own = [int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('RssAnon')][0]
print(len(split.train), round(seconds, 2), own // 1024)
"""


def large(folder: Path, count: int) -> Path:
    """A data set of `count` rows, each with a picture of 20 kB of noise, no two the same file."""
    noise = np.random.default_rng(0).integers(0, 255, (80, 80, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    folder.mkdir()
    plain = {"compression": "none", "use_dictionary": False}  # else it would be 1 MB on disk
    with pq.ParquetWriter(folder / "train.parquet", write_table([], b"").schema, **plain) as writer:
        for start in range(0, count, 500):
            writer.write_table(write_table(range(start, start + 500), buffer.getvalue()))
    return folder


def write_table(numbers, picture):
    names = [f"Thing {i}" for i in numbers]
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = [
        pa.array([{"bytes": picture + b"%06d" % i, "path": None} for i in numbers], struct),
        pa.array(names, pa.string()),
        pa.array(["Home"] * len(names), pa.string()),
        pa.array([f"A thing: {name}." for name in names], pa.string()),
    ]
    return pa.Table.from_arrays(columns, names=list(COLUMNS))


def measured(folder: Path, count: int, cache: Path) -> tuple[int, float, float]:
    """(rows trained on, seconds to the first batch, the process's own MiB) of a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder), str(count)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HOME": str(cache)},
    )
    rows, seconds, own = done.stdout.split()[-3:]
    return int(rows), float(seconds), float(own)


def test_memory_does_not_grow_with_the_data_set(tmp_path):
    """100 MB of pictures on disk, none of it kept; tests/bench/vision_data.py has 20,000 rows."""
    place = large(tmp_path / "large", 5000)
    few, _, little = measured(place, 500, tmp_path / "hf")
    many, _, much = measured(place, 5000, tmp_path / "hf")
    assert (few, many) == (pytest.approx(450, rel=0.1), pytest.approx(4500, rel=0.03))
    assert much - little < 25
