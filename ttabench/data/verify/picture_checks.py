"""Whether arrays hold pictures, and whether corrupted images are those of the clean ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ttabench.errors import counted

SAMPLE = 64  # images
NARROW = 16  # pixel values; pictures have more between the darkest and the brightest
OWN = 0.25
"""Share of images whose corrupted form is nearest to their own clean one, below which the order is doubted.

For images in another order it is one in the size of the sample.
"""
Images = NDArray[np.uint8]  # (n, H, W, 3)


def of_pixels(images: Images) -> Iterator[str]:
    """What shows that images are no pictures: sentences with the range of the pixels."""
    some = _some(images)
    low, high = int(some.min()), int(some.max())
    if low == high:
        yield f"all pixels have the value {low}; expected pictures of 0 to 255."
    elif high <= 1:
        yield "pixels are 0 and 1 only; expected 0 to 255: multiply values in [0, 1] by 255."
    elif high - low < NARROW:
        yield f"pixels are {low} to {high} only; expected pictures of 0 to 255."
    elif len(images) > 1 and (some == some[0]).all():
        yield f"{counted(len(some), 'image')} of {len(images):,} were looked at, and they are all the same."


def of_corruption(clean: Images, by_severity: Mapping[int, Images]) -> Iterator[str]:
    """What shows that corrupted images are not those of `clean`, row by row, or not in order of severity."""
    sets = {level: images for level, images in sorted(by_severity.items()) if len(images) == len(clean)}
    if not sets:
        return
    reference = _some(clean)
    distances = {level: _distance(_some(images), reference) for level, images in sets.items()}
    if same := [str(level) for level, distance in distances.items() if distance == 0]:
        yield f"severity {', '.join(same)} has the clean images themselves."
        return
    mildest = min(distances, key=lambda level: distances[level])
    share = _nearest_to_own(_some(sets[mildest]), reference)
    if share < OWN:
        yield (
            f"only {100 * share:.0f} % of the images at severity {mildest} are nearest to their own clean "
            "one; the rows may be in another order than the clean ones."
        )
        return
    first, last = min(sets), max(sets)
    if distances[last] < 0.9 * distances[first]:
        yield (
            f"images at severity {last} are nearer to the clean ones ({distances[last]:.1f} per pixel) than "
            f"at severity {first} ({distances[first]:.1f}); the severities may be in reverse."
        )


def _some(images: Images) -> Images:
    return np.asarray(images[:: max(1, -(-len(images) // SAMPLE))])


def _distance(images: Images, clean: Images) -> float:
    """The mean absolute difference of two sets of images, of pixels of 0 to 255."""
    return float(np.abs(images.astype(np.int16) - clean).mean())


def _nearest_to_own(images: Images, clean: Images) -> float:
    """The share of images that are nearer to the clean image of their row than to any other one."""
    ours, theirs = _outlines(images), _outlines(clean)
    alike = ours @ theirs.T
    return float((alike.diagonal() >= alike.max(axis=1) - 1e-6).mean())


def _outlines(images: Images) -> NDArray[np.float64]:
    """Images in 8 × 8 blocks, with their own brightness and contrast taken out: (n, 192)."""
    side = images.shape[1]
    edges = np.linspace(0, side, min(8, side) + 1).astype(int)[:-1]
    blocks = np.add.reduceat(np.add.reduceat(images.astype(float), edges, axis=1), edges, axis=2)
    flat = blocks.reshape(len(images), -1)
    centred: NDArray[np.float64] = flat - flat.mean(axis=1, keepdims=True)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True) + 1e-9
    return centred
