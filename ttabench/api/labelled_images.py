"""The images and labels that a user hands over, as the arrays that are scored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ttabench.api.scored_images import check_label_type
from ttabench.data.dataset import Labelled
from ttabench.errors import UserError

BATCHES = "batches (images, labels) such as a DataLoader gives"
EXPECTED = f"expected {BATCHES}, or labels beside the images"
ROUNDING = 1e-3  # of a pixel's 255 steps: float32 is off by less, other images by more


def of_arrays(images: ArrayLike | Iterable[Any], labels: ArrayLike, classes: int) -> Labelled:
    """Arrays (N, H, W, 3) of uint8, and (N,) of whole numbers.

    Raises UserError for anything else, and for labels of 8 bits if there are more `classes`.
    """
    data = Labelled(_array("images", images, np.uint8), _array("labels", labels, np.int64))
    check_label_type(np.asarray(labels).dtype, classes)
    return data


def of_batches(batches: Any, seed: int, classes: int) -> Labelled:
    """All images and labels of `batches`, of pairs (images (b, 3, H, W) in [0, 1], labels (b,)).

    seed     of a loader that shuffles; torch's generator is left as it was.
    classes  of the network.

    Raises UserError for anything else, for pixels that are not of 8 bits, such as normalised ones, and for
    labels of 8 bits if there are more classes.
    """
    if isinstance(batches, Tensor | np.ndarray) or not isinstance(batches, Iterable):
        raise UserError(f"evaluate got images without labels; {EXPECTED}.")
    images, labels = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for batch in batches:
            if not isinstance(batch, tuple | list) or len(batch) < 2:
                raise UserError(f"a batch is a {type(batch).__name__}; {EXPECTED}.")
            images.append(_pixels(batch[0]))
            labels.append(_labels(batch[1], len(images[-1]), classes))
    if not images:
        raise UserError("there are no images to score.")
    sizes = sorted({each.shape[1:3] for each in images})
    if len(sizes) > 1:
        raise UserError(f"images have sizes {sizes[0]} and {sizes[1]}; expected one size.")
    return Labelled(np.concatenate(images), np.concatenate(labels))


def _pixels(images: Any) -> NDArray[np.uint8]:
    """(b, 3, H, W) in [0, 1], or uint8 → (b, H, W, 3) uint8."""
    if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[1] != 3:
        what = f"of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise UserError(f"a batch of images is {what}; expected a tensor (b, 3, H, W) in [0, 1].")
    pixels = images.detach().cpu()
    if pixels.dtype != torch.uint8 and pixels.numel():
        steps = pixels.double() * 255
        whole = steps.round()
        if not (whole.min() >= 0 and whole.max() <= 255 and (steps - whole).abs().max() < ROUNDING):
            raise UserError(
                "images do not have pixels of 8 bits in [0, 1]: leave out Normalize, and give mean= and std= "
                "to ttabench.adapt; resize and crop before ToTensor, not after it."
            )
        pixels = whole
    return np.ascontiguousarray(pixels.to(torch.uint8).permute(0, 2, 3, 1).numpy())


def _labels(labels: Any, count: int, classes: int) -> NDArray[np.int64]:
    given = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if given.dtype.kind not in "iu" or given.shape != (count,):
        raise UserError(
            f"labels of a batch are {given.dtype} of shape {given.shape}; expected a whole number "
            f"for each of its {count} images."
        )
    check_label_type(given.dtype, classes)
    return given.astype(np.int64)


def _array(what: str, values: Any, dtype: Any) -> NDArray[Any]:
    if isinstance(values, Tensor) and values.device.type != "cpu":
        raise UserError(f"{what} are on {values.device}; pass {what}.cpu().")
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise UserError(f"{what} do not have one shape; expected an array.") from None
    if array.dtype.kind not in "iu" or (what == "images" and array.dtype != np.uint8):
        hint = "whole numbers"
        if what == "images":
            hint = f"uint8: pixels of 0 to 255, (N, H, W, 3), or {BATCHES}, and then no labels beside them"
        given = type(values).__name__ if array.dtype == object else array.dtype
        raise UserError(f"{what} are {given}; expected {hint}.")
    return array.astype(dtype, copy=False)
