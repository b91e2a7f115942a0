"""The built-in pictures of ice, for frost without a download: feathered crystals on mottled glass.

Each picture is a mosaic of crystals. A crystal has a spine in a random direction and barbs that leave it to
both sides at 60 degrees, as needles of ice do; clouds and grain lie over all of them. Size, mean colour,
contrast and the share of fine structure of each picture follow the published pictures, so that frost is
about as hard with either set.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from scipy import fft

from ttabench.corruptions.layout import Images

Plane = NDArray[np.float32]


class IceKind(NamedTuple):
    """A kind of ice: size in pixels, colour, and how much of its contrast each structure makes up."""

    shape: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crystal: float  # typical diameter of a crystal, pixels
    needles: float
    clouds: float
    grain: float


KINDS = (
    IceKind((600, 900), (78, 149, 166), (27, 16, 15), crystal=150, needles=0.5, clouds=0.8, grain=0.3),
    IceKind((315, 560), (201, 205, 214), (21, 22, 23), crystal=45, needles=0.7, clouds=0.6, grain=0.4),
    IceKind((315, 560), (201, 205, 214), (21, 22, 23), crystal=60, needles=0.7, clouds=0.6, grain=0.4),
    IceKind((350, 527), (138, 153, 165), (28, 28, 30), crystal=35, needles=0.7, clouds=0.6, grain=0.7),
    IceKind((495, 660), (112, 123, 135), (44, 43, 42), crystal=40, needles=0.7, clouds=0.6, grain=0.5),
)


def grow_pictures() -> tuple[Images, ...]:
    """The five pictures, always the same."""
    return tuple(_grow(kind, Generator(PCG64(number))) for number, kind in enumerate(KINDS))


def _grow(kind: IceKind, rng: Generator) -> Images:
    clouds = _noise(rng, kind.shape, wavelength=max(kind.shape))
    light = (
        kind.needles * _standardise(_crystals(rng, kind.shape, kind.crystal))
        + kind.clouds * clouds
        + kind.grain * _noise(rng, kind.shape, wavelength=3)
    )
    levels = _standardise(light)[..., None] * np.array(kind.std) + np.array(kind.mean)
    return np.asarray(np.clip(np.rint(levels), 0, 255), dtype=np.uint8)


def _crystals(rng: Generator, shape: tuple[int, int], diameter: float) -> Plane:
    """Brightness of a mosaic of feathered crystals."""
    height, width = shape
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    count = round(height * width / diameter**2)
    seeds = np.stack([rng.integers(0, height, count), rng.integers(0, width, count)], axis=1)
    empty = np.ones(shape, dtype=np.uint8)
    empty[seeds[:, 0], seeds[:, 1]] = 0
    distance, label = cv2.distanceTransformWithLabels(empty, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    crystal_of_label = np.zeros(label.max() + 1, dtype=np.intp)
    crystal_of_label[label[seeds[:, 0], seeds[:, 1]]] = np.arange(count)
    ragged = [_noise(rng, shape, diameter / 2) * np.float32(diameter / 8) for _ in range(2)]
    row = np.clip(np.rint(rows + ragged[0]), 0, height - 1).astype(np.intp)
    column = np.clip(np.rint(columns + ragged[1]), 0, width - 1).astype(np.intp)
    nearest, best = crystal_of_label[label[row, column]], distance[row, column]

    angle = rng.uniform(0, 2 * np.pi, count).astype(np.float32)[nearest]
    down, right = rows - seeds[nearest, 0].astype(np.float32), columns - seeds[nearest, 1].astype(np.float32)
    along: Plane = right * np.cos(angle) + down * np.sin(angle)
    across = np.abs(down * np.cos(angle) - right * np.sin(angle))
    needle = along - across / np.float32(np.tan(np.deg2rad(60)))  # constant along a barb
    phase = rng.uniform(0, 512, count).astype(np.float32)[nearest]
    table = _noise(rng, (512, 512), wavelength=6)
    barbs = cv2.remap(
        table, needle + phase, across / 12 + phase, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP
    )
    spine = np.exp(-(across**2) / 8)
    facet = rng.standard_normal(count).astype(np.float32)[nearest]
    rim = np.exp(-best / np.float32(diameter / 3))
    return np.asarray(np.abs(barbs) + 0.8 * spine + 0.4 * facet + 0.5 * rim, dtype=np.float32)


def _noise(rng: Generator, shape: tuple[int, int], wavelength: float) -> Plane:
    """Smooth noise, standardised, with structures of about `wavelength` pixels and finer ones below."""
    white = rng.standard_normal(shape, dtype=np.float32)
    frequency = np.hypot(fft.fftfreq(shape[0])[:, None], fft.rfftfreq(shape[1]))
    falling = (1 / (1 + (frequency * wavelength) ** 2)).astype(np.float32)
    return _standardise(fft.irfft2(fft.rfft2(white) * falling, s=shape))


def _standardise(plane: Plane) -> Plane:
    return np.asarray((plane - plane.mean()) / plane.std(), dtype=np.float32)
