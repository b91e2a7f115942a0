"""Severity constants at 32 px (CIFAR-10-C) and 64 px (Tiny-ImageNet-C).

Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
ICLR 2019; the values are those of the generator scripts published with it. Each table maps the image side
to five entries, one per severity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
Table: TypeAlias = Mapping[int, tuple[T, T, T, T, T]]


def at(table: Table[T], size: int, severity: int) -> T:
    """The entry of `table` for a `size` × `size` image at `severity` 1 … 5."""
    return table[size][severity - 1]


class Disc(NamedTuple):
    radius: float
    edge_sigma: float


class Glass(NamedTuple):
    sigma: float
    max_shift: int
    passes: int


class Motion(NamedTuple):
    radius: int
    sigma: float


class Snow(NamedTuple):
    loc: float
    scale: float
    zoom: float
    threshold: float
    motion: Motion
    mix: float


class Blend(NamedTuple):
    image: float
    frost: float


class Fog(NamedTuple):
    strength: float
    decay: float


class Elastic(NamedTuple):
    amplitude: float
    sigma: float
    jitter: float


class Spatter(NamedTuple):
    loc: float
    scale: float
    sigma: float
    threshold: float
    strength: float
    mud: bool


class Linear(NamedTuple):
    factor: float
    offset: float


GAUSSIAN_NOISE: Table[float] = {32: (0.04, 0.06, 0.08, 0.09, 0.10), 64: (0.04, 0.08, 0.12, 0.15, 0.18)}
SPECKLE_NOISE: Table[float] = {32: (0.06, 0.1, 0.12, 0.16, 0.2), 64: (0.15, 0.2, 0.25, 0.3, 0.35)}
SHOT_NOISE: Table[float] = {32: (500, 250, 100, 75, 50), 64: (250, 100, 50, 30, 15)}
IMPULSE_NOISE: Table[float] = {32: (0.01, 0.02, 0.03, 0.05, 0.07), 64: (0.01, 0.02, 0.05, 0.08, 0.14)}

GAUSSIAN_BLUR: Table[float] = {32: (0.4, 0.6, 0.7, 0.8, 1), 64: (0.5, 0.75, 1, 1.25, 1.5)}
DEFOCUS_BLUR: Table[Disc] = {
    32: (Disc(0.3, 0.4), Disc(0.4, 0.5), Disc(0.5, 0.6), Disc(1, 0.2), Disc(1.5, 0.1)),
    64: (Disc(0.5, 0.6), Disc(1, 0.1), Disc(1.5, 0.1), Disc(2.5, 0.01), Disc(3, 0.1)),
}
GLASS_BLUR: Table[Glass] = {
    32: (Glass(0.05, 1, 1), Glass(0.25, 1, 1), Glass(0.4, 1, 1), Glass(0.25, 1, 2), Glass(0.4, 1, 2)),
    64: (Glass(0.1, 1, 1), Glass(0.5, 1, 1), Glass(0.6, 1, 2), Glass(0.7, 2, 1), Glass(0.9, 2, 2)),
}
MOTION_BLUR: Table[Motion] = {
    32: (Motion(6, 1), Motion(6, 1.5), Motion(6, 2), Motion(8, 2), Motion(9, 2.5)),
    64: (Motion(10, 1), Motion(10, 1.5), Motion(10, 2), Motion(10, 2.5), Motion(12, 3)),
}
ZOOM_BLUR_STOP = (1.06, 1.11, 1.16, 1.21, 1.26)
"""Ends of the ranges of factors 1, 1.01, …; the same at both sizes."""

SNOW: Table[Snow] = {
    32: (
        Snow(0.1, 0.2, 1, 0.6, Motion(8, 3), 0.95),
        Snow(0.1, 0.2, 1, 0.5, Motion(10, 4), 0.9),
        Snow(0.15, 0.3, 1.75, 0.55, Motion(10, 4), 0.9),
        Snow(0.25, 0.3, 2.25, 0.6, Motion(12, 6), 0.85),
        Snow(0.3, 0.3, 1.25, 0.65, Motion(14, 12), 0.8),
    ),
    64: (
        Snow(0.1, 0.2, 1, 0.6, Motion(8, 3), 0.8),
        Snow(0.1, 0.2, 1, 0.5, Motion(10, 4), 0.8),
        Snow(0.15, 0.3, 1.75, 0.55, Motion(10, 4), 0.7),
        Snow(0.25, 0.3, 2.25, 0.6, Motion(12, 6), 0.65),
        Snow(0.3, 0.3, 1.25, 0.65, Motion(14, 12), 0.6),
    ),
}
FROST: Table[Blend] = {
    32: (Blend(1, 0.2), Blend(1, 0.3), Blend(0.9, 0.4), Blend(0.85, 0.4), Blend(0.75, 0.45)),
    64: (Blend(1, 0.3), Blend(0.9, 0.4), Blend(0.8, 0.45), Blend(0.75, 0.5), Blend(0.7, 0.55)),
}
FROST_SCALE = {32: 0.2, 64: 0.3}
"""The pictures of frost are resized by this factor before they are cropped."""

FOG: Table[Fog] = {
    32: (Fog(0.2, 3), Fog(0.5, 3), Fog(0.75, 2.5), Fog(1, 2), Fog(1.5, 1.75)),
    64: (Fog(0.4, 3), Fog(0.7, 3), Fog(1, 2.5), Fog(1.5, 2), Fog(2, 1.75)),
}
BRIGHTNESS: Table[float] = {32: (0.05, 0.1, 0.15, 0.2, 0.3), 64: (0.1, 0.2, 0.3, 0.4, 0.5)}
CONTRAST: Table[float] = {32: (0.75, 0.5, 0.4, 0.3, 0.15), 64: (0.4, 0.3, 0.2, 0.1, 0.05)}
SATURATE: Table[Linear] = {
    32: (Linear(0.3, 0), Linear(0.1, 0), Linear(1.5, 0), Linear(2, 0.1), Linear(2.5, 0.2)),
    64: (Linear(0.3, 0), Linear(0.1, 0), Linear(2, 0), Linear(5, 0.1), Linear(30, 0.2)),
}
ELASTIC: Table[Elastic] = {  # pixels
    32: (
        Elastic(0, 0, 2.56),
        Elastic(1.6, 6.4, 2.24),
        Elastic(2.56, 1.92, 1.92),
        Elastic(3.2, 1.28, 1.6),
        Elastic(3.2, 0.96, 0.96),
    ),
    64: (
        Elastic(0, 0, 5.12),
        Elastic(3.2, 19.2, 3.84),
        Elastic(6.4, 5.12, 3.84),
        Elastic(6.4, 1.92, 1.92),
        Elastic(10.24, 1.92, 1.28),
    ),
}
PIXELATE: Table[int] = {32: (30, 28, 27, 24, 20), 64: (57, 51, 44, 38, 32)}
"""Side, in pixels, of the shrunk image."""
JPEG_QUALITY: Table[int] = {32: (80, 65, 58, 50, 40), 64: (65, 58, 50, 40, 25)}
SPATTER: Table[Spatter] = {
    32: (
        Spatter(0.62, 0.1, 0.7, 0.7, 0.5, mud=False),
        Spatter(0.65, 0.1, 0.8, 0.7, 0.5, mud=False),
        Spatter(0.65, 0.3, 1, 0.69, 0.5, mud=False),
        Spatter(0.65, 0.1, 0.7, 0.69, 0.6, mud=True),
        Spatter(0.65, 0.1, 0.5, 0.68, 0.6, mud=True),
    ),
    64: (
        Spatter(0.62, 0.1, 0.7, 0.7, 0.6, mud=False),
        Spatter(0.65, 0.1, 0.8, 0.7, 0.6, mud=False),
        Spatter(0.65, 0.3, 1, 0.69, 0.6, mud=False),
        Spatter(0.65, 0.1, 0.7, 0.68, 0.6, mud=True),
        Spatter(0.65, 0.1, 0.5, 0.67, 0.6, mud=True),
    ),
}
