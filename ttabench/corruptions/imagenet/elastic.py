"""Elastic transform: a random affine map, then random smooth displacements."""

from __future__ import annotations

from numpy.random import Generator

from ttabench.corruptions.elastic import Bends
from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.constants import SIZE, at
from ttabench.corruptions.imagenet.shared import bend
from ttabench.corruptions.layout import Images


def draw_bends(rng: Generator, severity: int) -> Bends:
    """Uniform shifts of the anchors, within the severity's jitter, and uniform fields, of one image."""
    jitter = at(constants.ELASTIC, severity).jitter
    corners = rng.uniform(-jitter, jitter, (1, 3, 2))
    return Bends(corners, rng.random((1, 2, SIZE, SIZE)) * 2 - 1)


def elastic_transform(image: Images, bends: Bends, severity: int) -> Images:
    """Affine map, then displacement by smoothed fields, both bilinear; beyond the border as SciPy ≥ 1.6."""
    bent: Images = bend(image[None], bends, at(constants.ELASTIC, severity), "scipy1.6")[0]
    return bent
