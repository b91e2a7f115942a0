"""Severity constants at 224 px: ImageNet-C.

Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
ICLR 2019; the values are those of the generator script published with it. Each table has five entries, one
per severity.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, TypeVar

from ttabench.corruptions.constants import Blend, Disc, Elastic, Fog, Glass, Linear, Motion, Snow, Spatter

T = TypeVar("T")
Table: TypeAlias = tuple[T, T, T, T, T]

SIZE = 224


class Zooms(NamedTuple):
    """Factors 1, 1 + step, … below `stop`."""

    stop: float
    step: float


GAUSSIAN_NOISE: Table[float] = (0.08, 0.12, 0.18, 0.26, 0.38)
SPECKLE_NOISE: Table[float] = (0.15, 0.2, 0.35, 0.45, 0.6)
SHOT_NOISE: Table[float] = (60, 25, 12, 5, 3)
IMPULSE_NOISE: Table[float] = (0.03, 0.06, 0.09, 0.17, 0.27)

GAUSSIAN_BLUR: Table[float] = (1, 2, 3, 4, 6)
DEFOCUS_BLUR: Table[Disc] = (Disc(3, 0.1), Disc(4, 0.5), Disc(6, 0.5), Disc(8, 0.5), Disc(10, 0.5))
GLASS_BLUR: Table[Glass] = (
    Glass(0.7, 1, 2),
    Glass(0.9, 2, 1),
    Glass(1, 2, 3),
    Glass(1.1, 3, 2),
    Glass(1.5, 4, 2),
)
MOTION_BLUR: Table[Motion] = (Motion(10, 3), Motion(15, 5), Motion(15, 8), Motion(15, 12), Motion(20, 15))
ZOOM_BLUR: Table[Zooms] = (
    Zooms(1.11, 0.01),
    Zooms(1.16, 0.01),
    Zooms(1.21, 0.02),
    Zooms(1.26, 0.02),
    Zooms(1.31, 0.03),
)

SNOW: Table[Snow] = (
    Snow(0.1, 0.3, 3, 0.5, Motion(10, 4), 0.8),
    Snow(0.2, 0.3, 2, 0.5, Motion(12, 4), 0.7),
    Snow(0.55, 0.3, 4, 0.9, Motion(12, 8), 0.7),
    Snow(0.55, 0.3, 4.5, 0.85, Motion(12, 8), 0.65),
    Snow(0.55, 0.3, 2.5, 0.85, Motion(12, 12), 0.55),
)
FROST: Table[Blend] = (Blend(1, 0.4), Blend(0.8, 0.6), Blend(0.7, 0.7), Blend(0.65, 0.7), Blend(0.6, 0.75))
FOG: Table[Fog] = (Fog(1.5, 2), Fog(2, 2), Fog(2.5, 1.7), Fog(2.5, 1.5), Fog(3, 1.4))
FOG_SIDE = 256
"""Side of the fractal field, of which the first 224 rows and columns are used."""

BRIGHTNESS: Table[float] = (0.1, 0.2, 0.3, 0.4, 0.5)
CONTRAST: Table[float] = (0.4, 0.3, 0.2, 0.1, 0.05)
SATURATE: Table[Linear] = (Linear(0.3, 0), Linear(0.1, 0), Linear(2, 0), Linear(5, 0.1), Linear(20, 0.2))
ELASTIC: Table[Elastic] = (  # pixels; shares of 244, as in the published script, and not of 224
    Elastic(488, 170.8, 24.4),
    Elastic(488, 19.52, 48.8),
    Elastic(12.2, 2.44, 4.88),
    Elastic(17.08, 2.44, 4.88),
    Elastic(29.28, 2.44, 4.88),
)
PIXELATE: Table[int] = (134, 112, 89, 67, 56)
"""Side, in pixels, of the shrunk image."""
JPEG_QUALITY: Table[int] = (25, 18, 15, 10, 7)
SPATTER: Table[Spatter] = (
    Spatter(0.65, 0.3, 4, 0.69, 0.6, mud=False),
    Spatter(0.65, 0.3, 3, 0.68, 0.6, mud=False),
    Spatter(0.65, 0.3, 2, 0.68, 0.5, mud=False),
    Spatter(0.65, 0.3, 1, 0.65, 1.5, mud=True),
    Spatter(0.67, 0.4, 1, 0.65, 1.5, mud=True),
)


def at(table: Table[T], severity: int) -> T:
    """The entry of `table` at `severity` 1 … 5."""
    return table[severity - 1]
