"""Check the image size and the normalisation that a network is said to have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttabench.errors import UserError


def check_images(size: object, mean: object, std: object) -> None:
    """Raises UserError for a side, or a normalisation, that no images can have."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise UserError(f"image_size={size!r}: expected the side of the images in pixels, 1 or larger.")
    for name, values in (("mean", mean), ("std", std)):
        try:
            numbers = as_numbers(values)
        except (TypeError, ValueError):
            numbers = np.empty(0)
        sound = numbers.shape in ((), (1,), (3,)) and np.isfinite(numbers).all()
        if not sound or (name == "std" and (numbers <= 0).any()):
            above = ", above 0" if name == "std" else ""
            raise UserError(f"{name}={values!r}: expected three numbers, one per channel{above}.")
    given = [np.broadcast_to(as_numbers(values), 3) for values in (mean, std)]
    if given[0].max() > 1 or given[1].max() > 2:
        only_std = given[0].max() <= 1
        divided = (given[0] / (1 if only_std else 255), given[1] / 255)
        shown = [", ".join(f"{x:.4g}" for x in each) for each in divided]
        raise UserError(
            f"mean={mean!r} and std={std!r} are for pixels of 0 to 255, and images are in [0, 1]; divide "
            f"{'std' if only_std else 'both'} by 255: mean=({shown[0]}), std=({shown[1]})."
        )


def as_numbers(values: Any) -> NDArray[np.float64]:
    """As an array. Raises TypeError or ValueError where they are no numbers."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=float)
