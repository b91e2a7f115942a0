"""Whether arrays hold pictures, and whether corrupted images are those of the clean ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from ttabench.errors import counted

SAMPLE, LARGE, LARGE_SAMPLE = 64, 64, 24
"""Images that are looked at: `SAMPLE`, or `LARGE_SAMPLE` of more than `LARGE` pixels a side."""
NARROW = 16  # pixel values; pictures have more between the darkest and the brightest
FLAT = 0.1  # share of images of one value
OWN, OWN_OF_EACH = 0.25, 0.1
"""Share of images whose corrupted form is nearest to their own clean one, below which the order is doubted.

For the mildest severity, and for each. For images in another order it is one in the size of the sample.
"""
HIDE = ("fog", "contrast")  # strong ones leave too little of an image to tell it by
UNEVEN = ("elastic_transform", "saturate", "spatter")
"""Corruptions whose distance to the clean images does not grow with severity; it does for the others.

Measured on digits, CIFAR-10 and ImageNet, at 32, 64 and 224 pixels.
"""
Images = NDArray[np.uint8]  # (n, H, W, 3)


def of_pixels(images: Images, narrow: int = NARROW) -> Iterator[str]:
    """What shows that images are no pictures: sentences with the range of the pixels."""
    some = _some(images)
    low, high = int(some.min()), int(some.max())
    flat = (some.reshape(len(some), -1) == some.reshape(len(some), -1)[:, :1]).all(axis=1)
    if low == high == 0:
        yield (
            "all pixels are 0; expected pictures of 0 to 255. Values of 8 bits in a file of 16 bits are read "
            "as 0: save such files with 8 bits."
        )
    elif low == high:
        yield f"all pixels have the value {low}; expected pictures of 0 to 255."
    elif high <= 1:
        yield "pixels are 0 and 1 only; expected 0 to 255: multiply values in [0, 1] by 255."
    elif high - low < narrow:
        yield f"pixels are {low} to {high} only; expected pictures of 0 to 255."
    elif len(images) > 1 and (some == some[0]).all():
        yield f"{counted(len(some), 'image')} of {len(images):,} were looked at, and they are all the same."
    elif flat.mean() > FLAT:
        images_of = counted(len(some), "image")
        yield (
            f"{int(flat.sum())} of {images_of} that were looked at have a single value, such "
            f"as {int(some[flat][0].flat[0])}; values of 8 bits in a file of 16 bits are read as 0."
        )


def of_corruption(clean: Images, by_severity: Mapping[int, Images], corruption: str = "") -> Iterator[str]:
    """What shows that corrupted images are not those of `clean`, row by row, or not in order of severity.

    corruption   its name, where it is known.
    """
    whole = {level: images for level, images in sorted(by_severity.items()) if len(images) == len(clean)}
    if not whole:
        return
    reference, sets = _some(clean), {level: _some(images) for level, images in whole.items()}
    found = list(_equal(sets, reference, corruption)) or list(_other_rows(sets, reference, corruption))
    yield from found or _other_severities(sets, reference, corruption)


def _equal(sets: Mapping[int, Images], clean: Images, corruption: str) -> Iterator[str]:
    """Images without values, or that are those of another set."""
    for level, images in sets.items():
        yield from (f"severity {level}: {text}" for text in of_pixels(images, narrow=2))
    if corruption == "saturate" and (clean == clean[..., :1]).all():  # grey images have no colours
        return
    for level, images in sets.items():
        same = (images == clean).reshape(len(clean), -1).all(axis=1)
        if same.mean() > 0.5:
            some = "" if same.all() else f", {int(same.sum())} of {len(same)} that were looked at"
            yield f"severity {level} has the clean images themselves{some}."
    levels = list(sets)
    for level, following in pairwise(levels):
        if (sets[level] == sets[following]).all():
            yield f"severities {level} and {following} have the same images."


def _other_rows(sets: Mapping[int, Images], clean: Images, corruption: str) -> Iterator[str]:
    """Images that are not those of the clean ones in the same rows."""
    mildest = min(sets, key=lambda level: _distance(sets[level], clean))
    for level, images in sets.items():
        share = _nearest_to_own(images, clean)
        least = OWN if level == mildest else 0 if corruption in HIDE else OWN_OF_EACH
        if share < least:
            yield (
                f"only {100 * share:.0f} % of the images at severity {level} are most similar to the clean "
                "image of their row; the rows may be in another order than the clean ones."
            )


def _other_severities(sets: Mapping[int, Images], clean: Images, corruption: str) -> Iterator[str]:
    """Images that are further from the clean ones at a lower severity, but for a few pairs of severities."""
    levels = list(sets)
    enough = len(levels) > 2 or levels == [1, 5]
    if corruption in UNEVEN or not enough:
        return
    distances = {level: _distance(images, clean) for level, images in sets.items()}
    wrong = [(low, high) for low, high in combinations(levels, 2) if distances[high] < 0.9 * distances[low]]
    if len(wrong) > 2 or (1, levels[-1]) in wrong:
        shown = ", ".join(f"{distance:.1f}" for distance in distances.values())
        yield (
            f"the mean difference from the clean images is {shown} per pixel at severities "
            f"{', '.join(map(str, levels))}, but it should grow; the severities may be in another order, or "
            "in reverse."
        )


def step_of(count: int, side: int) -> int:
    """Every how-manieth of `count` images of `side` pixels is looked at."""
    return max(1, -(-count // (LARGE_SAMPLE if side > LARGE else SAMPLE)))


def _some(images: Images) -> Images:
    return np.asarray(images[:: step_of(len(images), images.shape[1])])


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
