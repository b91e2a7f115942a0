"""Golden pixels of the published corruption generator: reading them, and replaying the generator's draws.

Used by replay_corruptions.py and by the tests; not a command.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from official_draws import official_draws
from official_draws_224 import official_draw
from PIL import Image

from ttabench.corruptions import by_name as registry
from ttabench.corruptions import constants, elastic, noise
from ttabench.corruptions.engine import check_request
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.imagenet import by_name as imagenet
from ttabench.corruptions.imagenet import constants as imagenet_constants
from ttabench.corruptions.sizes import IMAGENET_SIZE
from ttabench.errors import UserError

Images = NDArray[np.uint8]
NO_FROST = "needs the generator's frost pictures; give --frost"


@dataclass(frozen=True)
class Golden:
    """What the generator made of the first images of a folder's clean ones: (N, n, n, 3)."""

    corruption: str
    variant: str
    severity: int
    seed: int
    images: Images

    def __str__(self) -> str:
        return f"{self.corruption}{'@' * bool(self.variant)}{self.variant} {self.severity}"


@dataclass(frozen=True)
class GoldenFolder:
    """A folder with meta.json, clean.webp and one or more mosaics per corruption."""

    path: Path
    meta: dict[str, Any]
    clean: Images

    @classmethod
    def open(cls, path: Path) -> GoldenFolder:
        """Raises UserError where the folder is not of this format."""
        try:
            meta = json.loads((path / "meta.json").read_text())
        except json.JSONDecodeError as problem:
            raise UserError(f"{path / 'meta.json'} is not readable JSON ({problem}).") from None
        if not isinstance(meta.get("files"), dict) or not meta["files"]:
            raise UserError(f"{path / 'meta.json'} lists no files; expected a folder of golden pixels.")
        if not (path / "clean.webp").is_file():
            raise UserError(f"{path} has a meta.json but no clean.webp; the pixels to corrupt are missing.")
        return cls(path, meta, read_mosaic(path / "clean.webp", _tile_side(path, meta)))

    def read(self, file: str, limit: int | None = None) -> Iterator[Golden]:
        """Each severity in one file. Raises UserError where its pixels are not those meta.json promises."""
        entry = self.meta["files"][file]
        named = re.fullmatch(r"([a-z_]+)(?:@(.+?))?(?:-\d)?\.webp", file)
        name = entry.get("corruption") or (named[1] if named else file)
        variant = entry.get("variant") or (named[2] if named and named[2] else "")
        pixels = read_mosaic(self.path / file, self.clean.shape[1])
        if "seeds" in entry:  # one row of tiles per severity
            runs = list(enumerate(entry["seeds"], start=1))
        else:
            runs = [(entry["severity"], entry["seed"])]
            pixels = pixels[: entry.get("images", len(pixels))]
        by_severity = pixels.reshape(len(runs), -1, *pixels.shape[1:])
        if name == "impulse_noise" and name in self.meta:  # 128 marks an unchanged value
            clean = self.clean[: by_severity.shape[1]]
            by_severity = np.where(by_severity == 128, clean, by_severity)
        digest = hashlib.sha256(np.ascontiguousarray(by_severity).tobytes()).hexdigest()
        if digest != entry.get("sha256_of_pixels", digest):
            raise UserError("the pixels do not have the SHA-256 that meta.json gives; fetch the file again")
        for (severity, seed), images in zip(runs, by_severity, strict=True):
            check_request(name, severity, seed)
            yield Golden(name, variant, severity, seed, images[:limit])

    def not_comparable(self, golden: Golden, textures: FrostTextures | None) -> str:
        """Why these pixels say nothing about ours; empty where they do."""
        environment = self.meta.get("environment", {})
        if golden.corruption == "frost" and textures is None:
            return NO_FROST
        if golden.corruption == "jpeg_compression" and not golden.variant:
            other = any(file.startswith("jpeg_compression@libjpeg-turbo") for file in self.meta["files"])
            if other or (environment and not environment.get("libjpeg_turbo")):
                return "made with IJG's libjpeg, which decodes differently; the @libjpeg-turbo files count"
        if golden.corruption == "impulse_noise" and _version(environment.get("skimage")) >= (0, 19):
            return "scikit-image from 0.19 on does not draw from the seed"
        if golden.variant not in ("", "libjpeg-turbo", "scipy1.6"):
            return f"unknown variant '{golden.variant}'"
        return ""

    def replay(self, golden: Golden, textures: FrostTextures | None) -> Images:
        """What our functions make of the same clean images with the generator's draws."""
        new = golden.variant == "scipy1.6" or _version(self.meta.get("environment", {}).get("scipy")) >= (
            1,
            6,
        )
        images = self.clean[: len(golden.images)]
        return replay(
            images,
            golden.corruption,
            golden.severity,
            golden.seed,
            textures,
            "scipy1.6" if new else "scipy1.5",
        )


def replay(
    images: Images,
    name: str,
    severity: int,
    seed: int,
    textures: FrostTextures | None,
    mirror: elastic.Mirror = "scipy1.5",
) -> Images:
    """Our functions on the draws that the generator makes for these images after numpy.random.seed(seed)."""
    if images.shape[1] == IMAGENET_SIZE:
        return _replay_imagenet(images, name, severity, seed, textures)
    draws = official_draws(name, images, severity, np.random.RandomState(seed), textures)
    if name == "shot_noise":
        rate = constants.at(constants.SHOT_NOISE, images.shape[1], severity)
        return noise._level_of_count(rate, int(draws.max(initial=0)))[draws]  # of the counts themselves
    if name == "elastic_transform":
        return elastic.elastic_transform(images, draws, severity, mirror)
    result: Images = registry.get(name, textures).apply(images, draws, severity)
    return result


def _replay_imagenet(
    images: Images, name: str, severity: int, seed: int, textures: FrostTextures | None
) -> Images:
    state = np.random.RandomState(seed)
    result = np.empty_like(images)
    for image, out in zip(images, result, strict=True):
        draws = official_draw(name, image, severity, state, textures)
        if name == "shot_noise":
            rate = imagenet_constants.at(imagenet_constants.SHOT_NOISE, severity)
            out[:] = noise._level_of_count(rate, int(draws.max(initial=0)))[draws]
        else:
            out[:] = imagenet.get(name, textures).apply(image, draws, severity)
    return result


def read_mosaic(path: Path, side: int) -> Images:
    """Tiles of a lossless mosaic, row-major: (N, side, side, 3) uint8."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    tiles = pixels.reshape(rows, side, columns, side, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(tiles.reshape(-1, side, side, 3))


def _tile_side(path: Path, meta: dict[str, Any]) -> int:
    """Side of a tile: as the "layout" of meta.json has it, else from the number of images in a file."""
    if tiles := re.search(r"tiles (\d+)", meta.get("layout", "")):
        return int(tiles[1])
    for file, entry in meta["files"].items():
        if "images" in entry and (path / file).is_file():
            with Image.open(path / file) as image:
                return round(sqrt(image.width * image.height / entry["images"]))
    raise UserError(f'{path / "meta.json"} does not say how large the tiles are; add it to "layout".')


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:2])
