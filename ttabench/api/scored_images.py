"""Checks of the images and labels that a user hands over to be scored."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from operator import index

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ttabench.cell.protocol import Protocol
from ttabench.data.dataset import Labelled
from ttabench.data.foreign import check_share
from ttabench.data.own.picture_checks import of_pixels
from ttabench.errors import UserError


def check_label_type(given: DTypeLike, classes: int) -> None:
    """Raise UserError where labels, as the user `given` them, are of 8 bits and there are more classes."""
    kind = np.dtype(given)
    values = int(np.iinfo(kind).max) + 1
    if kind.itemsize == 1 and classes > values:
        raise UserError(
            f"labels are {kind}, which has {values} values, but the network has {classes:,} classes: labels "
            f"of {values} and more were changed; convert the original labels to int64."
        )


def check_scored(data: Labelled, protocol: Protocol, classes: int) -> None:
    """Raise UserError where nothing is left to score, or labels are not those of a network of `classes`.

    So too where a contaminated stream would have no foreign image. A warning is given where images are no
    pictures.
    """
    count = min(protocol.limit or len(data), len(data))
    if not len(data):
        raise UserError("there are no images to score.")
    if not data.images.size:
        height, width = data.images.shape[1:3]
        raise UserError(f"images are {width}×{height} pixels; expected at least one pixel.")
    if protocol.limit > len(data):
        raise UserError(f"limit={protocol.limit}, but there are {len(data)} images; leave it out for all.")
    if protocol.held_out and not 0 < round(protocol.held_out * count) < count:
        left = "to adapt to" if round(protocol.held_out * count) else "to score"
        raise UserError(
            f"held_out={protocol.held_out:g} of {count} images leaves none {left}; give another share, or "
            "more images."
        )
    check_share(protocol.contamination, count)
    low, high = int(data.labels.min()), int(data.labels.max())
    if low < 0 or high >= classes:
        raise UserError(
            f"labels are from {low} to {high}; the network has {classes} classes, 0 to {classes - 1}."
        )
    for text in of_pixels(data.images):
        warnings.warn(f"images: {text}", UserWarning, stacklevel=3)


def scored_of(chosen: Sequence[int], labels: NDArray[np.int64], classes: int) -> tuple[int, ...]:
    """The scored classes as whole numbers. Raises UserError where labels cannot be scored with them."""
    try:
        scored = tuple(map(index, chosen))
    except (TypeError, ValueError):
        raise UserError(f"scored_classes={chosen!r}: expected whole numbers.") from None
    if wrong := [each for each in scored if not 0 <= each < classes]:
        raise UserError(
            f"scored_classes has {wrong[0]}; the network has {classes} classes, 0 to {classes - 1}."
        )
    if len(set(scored)) != len(scored):
        raise UserError("scored_classes has a class more than once.")
    if scored and (missing := sorted(set(labels.tolist()) - set(scored))):
        raise UserError(f"labels have class {missing[0]}, which is not in scored_classes.")
    return scored
