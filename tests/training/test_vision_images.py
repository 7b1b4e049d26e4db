"""Pictures of every kind come out as the RGB that a viewer shows."""

import io

import numpy as np
import pytest
from PIL import Image

from training.gemma3_vision.images import BadPicture, decode

RED, GREEN = (200, 30, 40), (20, 160, 60)
LIMIT = 100_000_000


def halves(mode="RGB", size=(40, 20)):
    """Left half red, right half green."""
    picture = Image.new("RGB", size, RED)
    picture.paste(GREEN, (size[0] // 2, 0, *size))
    return picture.convert(mode)


def encoded(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def colours(picture):
    """Mean colour of the left and the right half."""
    assert picture.mode == "RGB"
    pixels = np.asarray(picture, dtype=float)
    middle = pixels.shape[1] // 2
    edge = max(middle // 4, 1)
    return pixels[:, : middle - edge].mean((0, 1)), pixels[:, middle + edge :].mean((0, 1))


@pytest.mark.parametrize(
    "content",
    [
        encoded(halves(), "PNG"),
        encoded(halves("P"), "PNG"),
        encoded(halves("P"), "GIF"),
        encoded(halves("RGBA"), "PNG"),
        encoded(halves(), "JPEG", quality=95, subsampling=0),
        encoded(halves("CMYK"), "JPEG", quality=95),
        encoded(halves("CMYK"), "TIFF"),
        encoded(halves(), "WEBP", lossless=True),
    ],
    ids=["rgb", "palette", "gif", "alpha", "jpeg", "cmyk-jpeg", "cmyk-tiff", "webp"],
)
def test_colours_are_kept(content):
    left, right = colours(decode(content, max_pixels=LIMIT))
    assert np.abs(left - RED).max() < 12
    assert np.abs(right - GREEN).max() < 12


def test_transparent_is_white():
    picture = Image.new("RGBA", (10, 10), (0, 0, 0, 0))
    picture.paste((0, 0, 255, 255), (0, 0, 5, 10))
    left, right = colours(decode(encoded(picture, "PNG"), max_pixels=LIMIT))
    assert tuple(left) == (0, 0, 255)
    assert tuple(right) == (255, 255, 255)


def test_transparent_palette_entry_is_white():
    picture = halves().quantize(4, dither=Image.Dither.NONE)
    corner = picture.getpixel((0, 0))
    left, right = colours(decode(encoded(picture, "PNG", transparency=corner), max_pixels=LIMIT))
    assert tuple(left) == (255, 255, 255)
    assert np.abs(right - GREEN).max() < 12


@pytest.mark.parametrize(
    ("tag", "size"), [(1, (40, 20)), (3, (40, 20)), (6, (20, 40)), (8, (20, 40))]
)
def test_exif_rotation_is_applied(tag, size):
    upright = halves()
    stored = {
        1: upright,
        3: upright.transpose(Image.Transpose.ROTATE_180),
        6: upright.transpose(Image.Transpose.ROTATE_90),
        8: upright.transpose(Image.Transpose.ROTATE_270),
    }[tag]
    assert stored.size == size
    exif = Image.Exif()
    exif[274] = tag
    picture = decode(encoded(stored, "JPEG", exif=exif, quality=95), max_pixels=LIMIT)
    assert picture.size == (40, 20)
    assert np.abs(colours(picture)[0] - RED).max() < 25


def test_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, GREEN, "blue")]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.abs(np.asarray(decode(content, max_pixels=LIMIT)).mean((0, 1)) - RED).max() < 3


def test_sixteen_bit_grey_keeps_its_shades():
    ramp = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(8, 8)
    picture = decode(encoded(Image.fromarray(ramp), "PNG"), max_pixels=LIMIT)
    expected = np.round(ramp / 257.0)
    assert np.abs(np.asarray(picture)[..., 0] - expected).max() <= 1


@pytest.mark.parametrize("top", [1, 255, 65535])
def test_grey_in_floats_keeps_its_shades(top):
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    picture = decode(encoded(Image.fromarray(ramp * top), "TIFF"), max_pixels=LIMIT)
    assert np.abs(np.asarray(picture)[..., 0] - ramp * 255).max() <= 1


@pytest.mark.parametrize(
    "levels",
    [
        np.float32([[-1, 1]]),
        np.float32([[np.nan, 1]]),
        np.float32([[0, 1e6]]),
        np.int32([[0, 1e6]]),
    ],
    ids=["negative", "nan", "floats", "integers"],
)
def test_levels_of_no_known_scale_are_refused_not_shown_as_black_or_white(levels):
    with pytest.raises(BadPicture, match="grey levels from"):
        decode(encoded(Image.fromarray(levels), "TIFF"), max_pixels=LIMIT)


def test_one_pixel():
    assert decode(encoded(Image.new("RGB", (1, 1), RED), "PNG"), max_pixels=LIMIT).size == (1, 1)


def test_thirty_megapixels():
    content = encoded(halves(size=(6000, 5000)), "JPEG", quality=30)
    picture = decode(content, max_pixels=LIMIT)
    assert min(picture.size) >= 896  # at least what the processor scales it to
    left, right = colours(picture)
    assert np.abs(left - RED).max() < 15
    assert np.abs(right - GREEN).max() < 15


def test_a_bomb_is_refused_before_it_is_decoded():
    content = encoded(Image.new("1", (20_000, 20_000)), "PNG")
    assert len(content) < 100_000
    with pytest.raises(BadPicture, match="20000 x 20000"):
        decode(content, max_pixels=LIMIT)


@pytest.mark.parametrize(
    "content",
    [b"", None, {"bytes": None, "path": None}, b"not a picture", encoded(halves(), "PNG")[:60]],
    ids=["empty", "none", "empty-struct", "text", "cut"],
)
def test_what_is_no_picture_says_so(content):
    with pytest.raises(BadPicture):
        decode(content, max_pixels=LIMIT)


def test_a_cut_jpeg_is_refused_not_filled_with_grey():
    whole = encoded(Image.effect_noise((200, 200), 80).convert("RGB"), "JPEG")
    with pytest.raises(BadPicture):
        decode(whole[: len(whole) // 2], max_pixels=LIMIT)


def test_path_is_relative_to_the_data_sets_folder(tmp_path):
    (tmp_path / "a").mkdir()
    halves().save(tmp_path / "a" / "x.png")
    assert decode("a/x.png", folder=tmp_path, max_pixels=LIMIT).size == (40, 20)
    with pytest.raises(BadPicture):
        decode("a/y.png", folder=tmp_path, max_pixels=LIMIT)
