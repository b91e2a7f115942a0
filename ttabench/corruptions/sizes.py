"""The sizes of images with published constants. Imports nothing heavy."""

from __future__ import annotations

from math import log

IMAGENET_SIZE = 224
"""Image side, in pixels, of ImageNet-C."""

SIZES: tuple[int, ...] = (32, 64, IMAGENET_SIZE)
"""Image sides, in pixels, with published constants: CIFAR-10-C, Tiny ImageNet-C, ImageNet-C."""

CONSTANTS = {32: "CIFAR-10-C", 64: "Tiny ImageNet-C", IMAGENET_SIZE: "ImageNet-C"}


def nearest_size(side: int) -> int:
    """The size with published constants that is nearest by ratio; of two equally near ones the larger."""
    return min(reversed(SIZES), key=lambda size: abs(log(side / size)))
