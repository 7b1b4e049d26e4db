"""Any picture as the RGB that the model's image processor expects."""

import io
import os
import warnings
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

# Pillow's own limit is lifted: data.max_pixels comes before any pixel is decoded.
Image.MAX_IMAGE_PIXELS = None


class BadPicture(ValueError):
    """A picture that cannot be used; its text says why."""


def decode(value: Any, *, folder: Path | None = None, max_pixels: int) -> Image.Image:
    """The picture in RGB, upright, on white where it is transparent; the first frame if animated.

    Args:
        value: what a data set's column holds: `{"bytes", "path"}`, bytes, a path or a picture.
        folder: where relative paths start.
        max_pixels: the largest width x height that is decoded.

    Raises:
        BadPicture: no picture, not a picture, cut off, too large, or outside of `folder`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of odd but readable EXIF and palettes
            picture = _open(value, folder)
            width, height = picture.size
            if width * height > max_pixels:
                raise BadPicture(f"{width} x {height} pixels, more than data.max_pixels")
            if width * height == 0:
                raise BadPicture("no pixels")
            picture.draft("RGB", (1024, 1024))  # JPEG: decode at a fraction of a large size
            picture.seek(0)
            picture.load()
            return _rgb(ImageOps.exif_transpose(picture))
    except BadPicture:
        raise
    except Exception as error:  # Pillow's decoders raise a dozen types for a broken file
        said = str(error).partition(" <_io.")[0]  # an address would make each row's reason its own
        raise BadPicture(f"not a readable picture ({type(error).__name__}: {said})") from error


def inside(folder: Path, path: str | Path) -> Path:
    """The file that a row of the data set in `folder` names.

    Raises:
        BadPicture: it lies elsewhere on this machine.
    """
    # Not resolve(): in the Hub's cache the files are links.
    top, place = (Path(os.path.abspath(p)) for p in (folder, folder / path))  # noqa: PTH100
    if not place.is_relative_to(top):
        raise BadPicture(f"{path} is outside of the data set's folder")
    return place


def _open(value: Any, folder: Path | None) -> Image.Image:
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes | bytearray):
        return Image.open(io.BytesIO(value))
    if isinstance(value, str | Path) and str(value):
        return Image.open(value if folder is None else inside(folder, value))
    if isinstance(value, Image.Image):
        return value
    raise BadPicture("no picture")


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith(("I", "F")):
        # 16 and 32 bit grey: Pillow's own conversion clips at 255 and would leave a white square.
        extrema: Any = picture.convert("F").getextrema()
        least, most = extrema
        top = 65535.0 if most > 255 else 255.0
        if picture.mode == "F" and most <= 1.0:
            top = 1.0
        if not 0 <= least <= most <= top:
            raise BadPicture(f"grey levels from {least:g} to {most:g}, not from 0 to {top:g}")
        picture = picture.convert("F").point(lambda level: level * (255.0 / top)).convert("L")
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")
