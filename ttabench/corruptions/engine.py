"""Corrupt a batch of any length in blocks of fixed size, each with its own random numbers, on threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from ttabench.corruptions import by_name as registry
from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS, IMAGE_SIZES, KNOWN_CORRUPTIONS, SEVERITIES
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.layout import Images
from ttabench.errors import UserError, unknown
from ttabench.system.cores import available_cores

BLOCK = 32
"""Images that share a stream of random numbers. The pixels depend on it, and on the order of the names."""


def corrupt(
    images: Images,
    name: str,
    severity: int,
    seed: int,
    *,
    frost_textures: FrostTextures | None = None,
    start: int = 0,
    workers: int | None = None,
) -> Images:
    """Corrupt images (N, n, n, 3) uint8, n = 32 or 64, or 32 for those of CIFAR-10-C-bar.

    Returns a new array of the same shape.

    The result for an image depends only on its pixels, its index `start` + i, `name`, `severity` and `seed`:
    not on the other images, the length of the batch or the number of `workers` (threads; None: one per
    core). Memory beyond the result is that of one block of images per worker.

    Raises UserError for an unknown name, a severity outside 1 … 5, images of another shape or type.
    """
    check_request(name, severity, seed)
    _check_images(images, name)
    corruption = registry.get(name, frost_textures)
    _keep_freed_memory()
    size = images.shape[1]
    result = np.empty(images.shape, dtype=np.uint8)
    end = start + len(images)

    def corrupt_block(block: int) -> None:
        # A block is always full: missing images are black. The draws and the rounding of matrix products
        # then do not depend on the number of images.
        first, last = max(start, block * BLOCK), min(end, (block + 1) * BLOCK)
        rows = slice(first - block * BLOCK, last - block * BLOCK)
        full = images[first - start : last - start]
        if len(full) < BLOCK:
            padded = np.zeros((BLOCK, *images.shape[1:]), dtype=np.uint8)
            padded[rows] = full
            full = padded
        draws = corruption.draw(stream(name, severity, seed, block), BLOCK, size, severity)
        result[first - start : last - start] = corruption.apply(full, draws, severity)[rows]

    blocks = range(start // BLOCK, -(-end // BLOCK)) if len(images) else range(0)
    workers = workers or available_cores()
    if workers == 1 or len(blocks) <= 1:
        for block in blocks:
            corrupt_block(block)
    else:
        with ThreadPoolExecutor(min(workers, len(blocks))) as pool:
            for _ in pool.map(corrupt_block, blocks):
                pass
    return result


def stream(name: str, severity: int, seed: int, block: int) -> Generator:
    """The random numbers of one block of images under one corruption and severity."""
    position = KNOWN_CORRUPTIONS.index(name)
    return Generator(SFC64(SeedSequence((seed, position, severity), spawn_key=(block,))))


def check_request(name: str, severity: int, seed: int = 0) -> None:
    """Raise UserError unless this is a known corruption at severity 1 … 5 with a seed of 0 or more."""
    if name not in KNOWN_CORRUPTIONS:
        raise unknown("corruption", name, KNOWN_CORRUPTIONS, "`ttabench list corruptions`")
    if severity not in SEVERITIES:
        raise UserError(f"severity {severity} of {name}; expected an integer from 1 to 5.")
    if seed < 0:
        raise UserError(f"seed {seed}; expected 0 or a positive integer.")


def _check_images(images: Images, name: str) -> None:
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise UserError(
            f"images have shape {images.shape} and type {images.dtype}; expected (N, n, n, 3) and uint8."
        )
    if images.shape[1] != images.shape[2] or images.shape[1] not in IMAGE_SIZES:
        raise UserError(
            f"images are {images.shape[2]}×{images.shape[1]} pixels; corruptions have constants for "
            "32×32 and 64×64; resize the images first."
        )
    if name in BAR_CORRUPTIONS and images.shape[1] != 32:
        raise UserError(
            f"{name} is defined for 32×32 pixels; images are {images.shape[2]}×{images.shape[1]}."
        )


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the kernel after every step.

    glibc keeps blocks up to the size of the largest block freed so far, 32 MiB at most. Without this, the
    page faults of temporary arrays take more time than the corruptions.
    """
    np.empty(31 << 20, dtype=np.uint8)
