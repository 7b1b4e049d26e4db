"""A data set's files: what no retry can read is refused, with its key."""

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.training.test_vision_data import COLUMNS, many, png, settings, write
from training.common.config import ConfigError
from training.gemma3_vision import data
from training.gemma3_vision.rowcheck import BadRow

pytestmark = pytest.mark.usefixtures("scratch")


def lines(folder: Path, rows: list[tuple[object, ...]]) -> Path:
    folder.mkdir()
    texts = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows]
    (folder / "train.jsonl").write_text("\n".join(texts))
    return folder


def refused(folder: Path, **keys: object) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        data.prepare(settings(**keys), folder)
    return {problem.key: problem.allowed for problem in caught.value.problems}


def cut(folder):
    whole = write(folder, many(40)) / "train.parquet"
    whole.write_bytes(whole.read_bytes()[:-100])


def tar(folder):
    with tarfile.open(folder / "train.tar", "w") as archive:
        entry = tarfile.TarInfo("0.png")
        entry.size = 8000
        archive.addfile(entry, io.BytesIO(bytes(8000)))
    (folder / "train.tar").write_bytes((folder / "train.tar").read_bytes()[:700])


@pytest.mark.parametrize(
    "broken",
    [
        cut,
        tar,
        lambda folder: (folder / "train.parquet").write_bytes(b""),
        lambda folder: (folder / "train.jsonl").write_text('{"image": 1}\n{"image":'),
        lambda folder: (folder / "train.csv").write_bytes(b"\xff\xfe\x00image,\n"),
    ],
    ids=["cut", "cut-tar", "empty", "half-a-line", "no-text"],
)
def test_a_file_that_cannot_be_read_is_no_failure_to_be_retried(tmp_path, broken):
    place = tmp_path / "d"
    place.mkdir()
    broken(place)
    keys = {"trainer.data.dataset_name"}
    found = refused(place)
    # A cut file may still give rows, without the columns.
    assert set(found) == keys or all(key.endswith("_column") for key in found)


def test_a_split_is_named_by_its_files_or_its_folder_and_no_other_is_read(tmp_path):
    place = tmp_path / "d"
    place.mkdir()
    for name in ("train", "test"):
        file = write(place / name, many(30)) / "train.parquet"
        file.rename(file.with_name("0000.parquet"))
    split = data.prepare(settings(), place)
    assert len(split.train) + len(split.held_out) == 30
    assert (
        "train/0000.parquet" in refused(place, dataset_split="trian")["trainer.data.dataset_split"]
    )
    unnamed = write(tmp_path / "u", many(30))
    (unnamed / "train.parquet").rename(unnamed / "products.parquet")
    split = data.prepare(settings(), unnamed)
    assert len(split.train) + len(split.held_out) == 30


@pytest.mark.parametrize(
    ("column", "value", "held"),
    [
        ("image", 7, "int64"),
        ("image", [{"bytes": b"x", "path": ""}], "list"),
        ("image", {"url": "x"}, "struct"),
        ("Product Name", 7, "int64"),
        ("Category", ["a"], "list"),
        ("description", 0.5, "double"),
    ],
)
def test_a_column_of_another_kind_is_refused(tmp_path, column, value, held):
    rows = [dict(zip(COLUMNS, row, strict=True)) | {column: value} for row in many(20)]
    (tmp_path / "d").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d" / "train.parquet")
    (allowed,) = refused(tmp_path / "d").values()
    assert f"{column} holds {held}" in allowed


def test_other_columns_are_left_alone_whatever_they_are_called(tmp_path):
    rows = [
        dict(zip(COLUMNS, row, strict=True)) | {"row": "a", "filler": True, "images": i}
        for i, row in enumerate(many(30))
    ]
    (tmp_path / "d").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d" / "train.parquet")
    split = data.prepare(settings(), tmp_path / "d", multiple=16)
    numbers = [row["row"] for side in (split.train, split.held_out) for row in side]
    assert {*numbers} == {*range(30)}


def test_a_path_leads_to_no_picture_outside_of_the_data_set(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    names = ["../secret.png", str(tmp_path / "secret.png"), "a/../../secret.png"]
    rows = [(names[i % 3], f"Thing {i}", "Home", f"A thing, {i}.") for i in range(30)]
    split = data.prepare(settings(), lines(tmp_path / "d", rows))
    for index in range(3):
        with pytest.raises(BadRow, match="outside of the data set's folder"):
            split.train[index]
    # By its whole path, a picture of the data set is one.
    rows = [(str(tmp_path / "e" / f"{i}.png"), *row[1:]) for i, row in enumerate(rows)]
    place = lines(tmp_path / "e", rows)
    for i in range(30):
        (place / f"{i}.png").write_bytes(png((i, 0, 9)))
    assert data.prepare(settings(), place).train[0]["images"][0].size == (8, 8)


@pytest.mark.parametrize("column", [1, 2, 3])
@pytest.mark.parametrize("mark", ["<start_of_image>", "<end_of_turn>", "<image_soft_token>"])
def test_a_text_with_a_mark_of_gemmas_is_a_bad_row(tmp_path, column, mark):
    rows = many(40)
    row = list(rows[17])
    row[column] += f" {mark}"
    rows[17] = tuple(row)
    place = write(tmp_path / "d", rows)
    reason = f"with {mark} in its {COLUMNS[column]}"
    with pytest.raises(BadRow, match=f"row 17 is {reason}"):
        data.prepare(settings(), place)
    assert data.prepare(settings(bad_rows="skip"), place).skipped == {reason: 1}


def test_rows_left_out_are_counted_by_their_reason(tmp_path):
    split = data.prepare(settings(bad_rows="skip"), write(tmp_path / "d", many(40, {3, 9, 20})))
    assert [*split.skipped.values()] == [3]
