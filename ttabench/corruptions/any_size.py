"""Corrupt images of any square size: at 32, 64 or 224 pixels with the published constants, else resized."""

from __future__ import annotations

import warnings

import numpy as np

from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS
from ttabench.corruptions.engine import _keep_freed_memory, check_request, corrupt
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.layout import Images
from ttabench.corruptions.sizes import IMAGENET_SIZE, SIZES, nearest_size
from ttabench.errors import UserError


def corrupt_any_size(
    images: Images,
    name: str,
    severity: int,
    seed: int,
    *,
    frost_textures: FrostTextures | None = None,
    start: int = 0,
    workers: int | None = None,
    jpeg: int = 0,
) -> Images:
    """Corrupt images (N, n, n, 3) uint8; returns a new array of the same shape.

    n = 32 and 64 have the constants of CIFAR-10-C and Tiny ImageNet-C, n = 224 those of ImageNet-C. Images of
    another size are resized to the nearest of these (bicubic), corrupted there, and resized back; a warning
    says so. The ten corruptions of CIFAR-10-C-bar exist at 32 pixels only.

    jpeg   0, or the JPEG quality 1 … 100 that corrupted images are saved with, as the published sets of 64
           and 224 pixels are with quality 85.

    The result for an image depends only on its pixels, its index `start` + i, `name`, `severity`, `seed` and
    `jpeg`. Raises UserError for an unknown name, a severity outside 1 … 5, images of another shape or type.
    """
    check_request(name, severity, seed)
    check_quality(jpeg)
    width_height = f"{images.shape[2]}×{images.shape[1]}" if images.ndim == 4 else ""
    if name in BAR_CORRUPTIONS and images.ndim == 4 and images.shape[1:3] != (32, 32):
        raise UserError(f"{name} is defined for 32×32 pixels; images are {width_height}.")
    if images.ndim == 4 and images.shape[1] != images.shape[2]:
        sizes = ", ".join(map(str, SIZES))
        raise UserError(
            f"images are {width_height} pixels; expected square ones: crop them first. There are published "
            f"constants for {sizes} pixels."
        )

    def corrupted(images: Images) -> Images:
        engine = corrupt
        if images.shape[1:] == (IMAGENET_SIZE, IMAGENET_SIZE, 3) and images.dtype == np.uint8:
            from ttabench.corruptions.imagenet.engine import corrupt_imagenet

            _keep_freed_memory()
            engine = corrupt_imagenet
        result = engine(
            images, name, severity, seed, frost_textures=frost_textures, start=start, workers=workers
        )
        return saved_as_jpeg(result, jpeg) if jpeg else result

    are_images = images.ndim == 4 and images.shape[-1] == 3 and images.dtype == np.uint8
    if not are_images or images.shape[1] in SIZES or not images.size:  # what are no images is refused
        return corrupted(images)
    side = images.shape[1]
    near = nearest_size(side)
    warnings.warn(
        f"images of {side}×{side} pixels have no published constants: resized to {near}×{near}, corrupted "
        "there, and resized back. Detail and noise differ from those of a published set.",
        stacklevel=3,
    )
    return resized(corrupted(resized(images, near)), side)


def saved_as_jpeg(images: Images, quality: int) -> Images:
    """Images (N, n, n, 3) as they are after they were saved as JPEG."""
    from ttabench.corruptions.imagenet.digital import through_jpeg

    return np.stack([through_jpeg(image, quality) for image in images]) if len(images) else images


def check_quality(jpeg: int) -> None:
    """Raise UserError unless `jpeg` is 0 or a JPEG quality."""
    if not 0 <= jpeg <= 100:
        raise UserError(f"JPEG quality {jpeg}; expected 1 to 100, e.g. 85, or 0 = not saved as JPEG.")


def resized(images: Images, size: int) -> Images:
    """Images (N, n, n, 3) resized to (N, size, size, 3) by Pillow's bicubic filter."""
    from PIL import Image

    out = np.empty((len(images), size, size, 3), np.uint8)
    for index, image in enumerate(images):
        out[index] = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC))
    return out
