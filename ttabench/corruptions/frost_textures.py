"""The pictures of ice for frost: the published ones from a folder, or the built-in ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.layout import Images
from ttabench.errors import UserError

OFFICIAL_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
"""The generator has six pictures but never draws the last."""


class Sheet(NamedTuple):
    """All pictures of a set, shrunk and stacked on one canvas: tops, heights, widths (5,) of each."""

    pixels: Images
    tops: NDArray[np.intp]
    heights: NDArray[np.intp]
    widths: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class FrostTextures:
    """Pictures of ice, each (H, W, 3) uint8 RGB, and where they are from ("official", "procedural")."""

    name: str
    pictures: tuple[Images, ...]

    @cached_property
    def fingerprint(self) -> str:
        """Name and SHA-256 of the pixels: what a dataset's fingerprint includes."""
        digest = sha256()
        for picture in self.pictures:
            digest.update(repr(picture.shape).encode() + picture.tobytes())
        return f"{self.name}:{digest.hexdigest()}"

    def sheet(self, scale: float) -> Sheet:
        """The pictures shrunk by `scale` (bilinear, no antialiasing, as published)."""
        return _sheet(self, scale)


@cache
def _sheet(textures: FrostTextures, scale: float) -> Sheet:
    shrunk = [cv2.resize(picture, None, fx=scale, fy=scale) for picture in textures.pictures]
    heights, widths = (np.array([p.shape[axis] for p in shrunk], dtype=np.intp) for axis in (0, 1))
    tops = np.concatenate([[0], np.cumsum(heights)[:-1]]).astype(np.intp)
    pixels = np.zeros((heights.sum(), widths.max(), 3), dtype=np.uint8)
    for picture, top in zip(shrunk, tops, strict=True):
        pixels[top : top + picture.shape[0], : picture.shape[1]] = picture
    return Sheet(pixels, tops, heights, widths)


def load_frost_textures(folder: Path | str) -> FrostTextures:
    """Read frost1.png … frost5.jpg of the published generator. Raises UserError where one is missing."""
    pictures: list[Images] = []
    for name in OFFICIAL_FILES:
        path = Path(folder) / name
        picture = cv2.imread(str(path), cv2.IMREAD_COLOR) if path.is_file() else None
        if picture is None:
            raise UserError(
                f"no readable frost picture at {path}; expected {', '.join(OFFICIAL_FILES)} "
                "of the ImageNet-C generator, or leave the folder out to use the built-in pictures."
            )
        if min(picture.shape[:2]) < 300:
            width_height = f"{picture.shape[1]}×{picture.shape[0]}"
            raise UserError(f"frost picture {path} is {width_height} pixels; expected at least 300×300.")
        pictures.append(np.ascontiguousarray(picture[..., ::-1], dtype=np.uint8))
    return FrostTextures("official", tuple(pictures))


@cache
def procedural_frost_textures() -> FrostTextures:
    """The built-in pictures: deterministic, made on first use."""
    from ttabench.corruptions.built_in_frost import grow_pictures

    return FrostTextures("procedural", grow_pictures())
