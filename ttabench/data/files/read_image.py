"""One image file as an array of RGB pixels, 8 bits per value."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ttabench.errors import UserError
from ttabench.system.cores import available_cores

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Literal["exact", "imagenet", "cover"]

MAX_PIXELS = 89_478_485
"""The limit that Pillow recommends. A larger image is refused before it is decoded."""


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image, without decoding it. Raises UserError."""
    with _opened(path) as image:
        return image.size


def already_cropped(files: Sequence[Path], size: int) -> bool:
    """Whether files have `size` × `size` pixels; up to about 50 of them, evenly spaced, are looked at."""
    return all(image_size(file) == (size, size) for file in files[:: max(1, len(files) // 50)])


def read_image(path: Path, size: int, fit: Fit = "exact") -> NDArray[np.uint8]:
    """One image as (size, size, 3) RGB.

    fit   exact: the image must have that size.
          imagenet: shorter side to 256/224 of `size` (bilinear), centre crop; the usual test transform.
          cover: the largest centred square, resized to `size` (bicubic).

    Grey and palette images are converted to RGB. Of 16-bit values the upper 8 bits are kept.
    Raises UserError where the image cannot be decoded, has another size, or has floating-point values.
    """
    from PIL import ImageOps
    from PIL.Image import Resampling

    with _opened(path) as opened:
        if fit == "exact":
            _check_size(path, opened, size)
        image = _rgb(path, opened)
    if fit == "imagenet":
        image = _resize_and_crop(image, size)
    elif fit == "cover" and image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Resampling.BICUBIC)
    return np.asarray(image)


def read_checked(path: Path, size: int, fit: Fit = "exact") -> NDArray[np.uint8]:
    """As :func:`read_image`; raises UserError for values of 8 bits in a file of 16 bits, too."""
    pixels = read_image(path, size, fit)
    if not pixels.any():
        with _opened(path) as image:
            brightest = np.asarray(image).max(initial=0) if image.mode.startswith("I") else 0
        if 0 < brightest <= 255:
            raise UserError(
                f"{path} has 16 bits and no value above {brightest}, so it would be black; save it again "
                "as an 8-bit image."
            )
    return pixels


def decode(files: Sequence[Path], out: NDArray[np.uint8], size: int, fit: Fit) -> None:
    """Decode into `out` (n, size, size, 3) in threads; Pillow releases the interpreter lock."""

    def decode_one(index: int) -> None:
        out[index] = read_checked(files[index], size, fit)

    with ThreadPoolExecutor(available_cores()) as pool:
        for _ in pool.map(decode_one, range(len(files)), chunksize=32):
            pass


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """The image, not decoded yet. Every failure of Pillow becomes a UserError."""
    import PIL.Image

    try:
        with PIL.Image.open(path) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise _too_large(path, f"{opened.width:,}×{opened.height:,}")
            yield opened
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
        raise _too_large(path, "too many") from None
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error) as problem:
        # For a file that is no image, Pillow's message only repeats the path.
        reason = "" if isinstance(problem, PIL.UnidentifiedImageError) else f" ({problem})"
        raise UserError(f"{path} cannot be decoded{reason}; replace the file, or delete it.") from None


def _too_large(path: Path, pixels: str) -> UserError:
    return UserError(f"{path} has {pixels} pixels; an image may have {MAX_PIXELS // 10**6} million at most.")


def _rgb(path: Path, image: Image) -> Image:
    """The image in 8-bit RGB. Pillow's own conversion would turn 16-bit grey values above 255 into white."""
    from PIL.Image import fromarray

    if image.mode == "F":
        raise UserError(f"{path} has floating-point values; save it again as an 8-bit image.")
    if image.mode == "I" or image.mode.startswith("I;16"):
        levels = np.asarray(image)
        if levels.max(initial=0) > 65535 or levels.min(initial=0) < 0:
            raise UserError(f"{path} has values outside 0 … 65535; save it again as an 8-bit image.")
        return fromarray((levels >> 8).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _check_size(path: Path, image: Image, size: int) -> None:
    if image.size != (size, size):
        width, height = image.size
        raise UserError(f"{path} is {width}×{height} pixels; expected {size}×{size}: resize it.")


def _resize_and_crop(image: Image, size: int) -> Image:
    from PIL.Image import Resampling

    shorter_side = round(size * 256 / 224)
    width, height = (int(shorter_side * side / min(image.size)) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))
