"""Methods, datasets and corruptions by name, and a function that corrupts images."""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench.corruptions.corruption_names import KNOWN_CORRUPTIONS
from ttabench.errors import UserError
from ttabench.registry import method, method_names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ttabench.data.dataset import Dataset
    from ttabench.method import Method


def list_methods() -> list[str]:
    """The names of all registered methods, sorted. Nothing is imported."""
    return method_names()


def get_method(name: str) -> type[Method[Any]]:
    """The class of a method. Raises UserError with the nearest name for an unknown one."""
    if not isinstance(name, str):
        raise UserError(f"method is of type {type(name).__name__}; expected a name, see list_methods().")
    if "[" in name:
        raise UserError(f"method '{name}': settings are arguments here, as in adapt(model, 'tent', lr=1e-3).")
    return method(name)


def list_datasets() -> list[str]:
    """The names of the published datasets, of digits-c, and of those generated here."""
    from ttabench.data.catalog import NAMES, local_names

    return [*NAMES, *local_names()]


def get_dataset(name: str | Path) -> Dataset:
    """A dataset by name or path. Raises UserError on an unknown name, or where its files are not there."""
    from ttabench.data.catalog import dataset

    if not isinstance(name, str | Path):
        raise UserError(f"dataset is of type {type(name).__name__}; expected a name or a path.")
    return dataset(str(name))


def list_corruptions() -> list[str]:
    """The fifteen in the order of the field's tables, the four for choosing settings, the ten of -C-bar."""
    return list(KNOWN_CORRUPTIONS)


def corrupt(
    images: NDArray[np.uint8], corruption: str, severity: int, seed: int = 0, *, jpeg: int = 0
) -> NDArray[np.uint8]:
    """Images (N, n, n, 3) uint8 under a corruption at severity 1 … 5; a new array of the same shape.

    The constants are those of CIFAR-10-C (32 pixels), Tiny ImageNet-C (64) and ImageNet-C (224); the ten
    corruptions of CIFAR-10-C-bar exist at 32 pixels only. Images of another size are resized to the nearest
    of these, corrupted there and resized back, and a warning says so.

    jpeg   1 … 100: each corrupted image is saved as JPEG with this quality, as the published files of
           ImageNet-C and Tiny ImageNet-C are (85). 0: no JPEG.

    Raises UserError.
    """
    import numpy as np

    from ttabench.corruptions.any_size import corrupt_any_size as run

    if not isinstance(images, np.ndarray):
        raise UserError(
            f"images are of type {type(images).__name__}; expected a NumPy array (N, n, n, 3) of uint8."
        )
    if images.ndim == 4 and images.shape[1] == 3 and images.shape[-1] != 3:
        raise UserError(
            f"images have shape {images.shape}; expected N×H×W×3: use images.transpose(0, 2, 3, 1)."
        )
    if not isinstance(corruption, str):
        raise UserError(
            f"corruption is of type {type(corruption).__name__}; expected a name, see list_corruptions()."
        )
    check_seed(seed)
    for name, value, expected in (
        ("severity", severity, "1 to 5"), ("jpeg", jpeg, "1 to 100, or 0 = not saved as JPEG"),
    ):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UserError(f"{name}={value!r}: expected a whole number, {expected}.")
    return run(images, corruption, int(severity), seed, jpeg=int(jpeg))


def check_seed(seed: object) -> None:
    """Raises UserError unless `seed` is a whole number from 0 on that generators take."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**64:
        raise UserError(f"seed={seed!r}: expected a whole number, 0 or larger and below 2**64.")
