"""Nothing that is held out is trained on under another name."""

import json
import unicodedata

import pytest

from tests.training.test_vision_data import COLUMNS, many, png, settings, struct, write
from training.gemma3_vision import data

pytestmark = pytest.mark.usefixtures("scratch")
KEYS = {"held_out_fraction": 0.3}


def sides(split):
    """(rows, pictures as pixels, words of the texts) of each side, fillers included."""
    for side in (split.train, split.held_out):
        rows = [*side]
        texts = {row["completion"][0]["content"].lower().replace(",", "") for row in rows}
        yield {r["row"] for r in rows}, {r["images"][0].tobytes() for r in rows}, texts


@pytest.mark.parametrize(
    "other",
    [
        'Cafe-Tasse  "Rouge" {}',
        "cafe tasse rouge {}!",
        "CAFE TASSE, ROUGE: {}",
        "Cafe tasse\u00a0rouge \uff5b{}",
    ],
)
def test_names_that_differ_in_writing_alone_are_of_one_product(other):
    config = settings(held_out_fraction=0.5)
    for i in range(40):
        names = f"Cafe tasse rouge {i}", other.format(i)
        assert len({data.is_held_out(name, config) for name in names}) == 1
        accents = [unicodedata.normalize(form, f"Café {i}") for form in ("NFC", "NFD")]
        assert len({data.is_held_out(name, config) for name in accents}) == 1
        assert data.is_held_out(f"Café {i}", config) == data.is_held_out(accents[1], config)


def test_a_picture_under_two_names_is_on_one_side(tmp_path):
    rows = many(60)
    rows = [(rows[i % 30][0], *row[1:]) for i, row in enumerate(rows)]
    plain = data.prepare(settings(**KEYS), write(tmp_path / "plain", many(60)))
    split = data.prepare(settings(**KEYS), write(tmp_path / "d", rows))
    (train, pictures, _), (held, asked, _) = sides(split)
    assert not pictures & asked
    assert held == {row["row"] for row in plain.held_out}  # that side stays as it is
    # By hand: a training row goes where its twin, 30 rows away, is held out.
    expected = {i for i in range(60) if i not in held and (i + 30) % 60 not in held}
    assert train == expected
    assert split.skipped == {"with the picture of a held-out product": 60 - len(held | train)}
    assert len(train) > 10


def test_the_same_by_paths(tmp_path):
    place = tmp_path / "d"
    place.mkdir()
    rows = [(f"{i}.png", *row[1:]) for i, row in enumerate(many(60))]
    for i in range(60):
        (place / f"{i}.png").write_bytes(png((i % 30, 0, 9)))
    lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows]
    (place / "train.jsonl").write_text("\n".join(lines))
    (train, pictures, _), (held, asked, _) = sides(data.prepare(settings(**KEYS), place))
    assert not pictures & asked
    assert train == {i for i in range(60) if i not in held and (i + 30) % 60 not in held}


def test_a_text_under_two_names_is_on_one_side(tmp_path):
    rows = [
        (
            struct(png((i, 0, 9))),
            f"Thing {i}",
            "Home",
            f"A {'thing,' if i < 30 else 'THING'} {i % 30}.",
        )
        for i in range(60)
    ]
    split = data.prepare(settings(**KEYS), write(tmp_path / "d", rows), multiple=8)
    (train, _, texts), (held, _, asked) = sides(split)
    assert not texts & asked
    assert train == {i for i in range(60) if i not in held and (i + 30) % 60 not in held}
    assert split.skipped == {"described as a held-out product": 60 - len(held | train)}
