"""Read pickled CIFAR batches with an unpickler that can build arrays and nothing else.

A pickle is a program. Here it may only make dictionaries, lists, tuples, bytes, text, numbers and NumPy
arrays of plain numbers. For each function or class that it names, it gets a replacement from this file:
it can call nothing else.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench.errors import UserError

NUMBERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")


class _ForbiddenError(pickle.UnpicklingError):
    """The pickle contains what a CIFAR batch does not; the message names it."""


class _DType:
    """Replaces numpy.dtype: a number type and a byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        name = code.decode("ascii") if isinstance(code, bytes) else code
        if name not in NUMBERS:
            raise _ForbiddenError(f"an array of type {name!r}")
        self.name: str = name
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        self.order = order.decode("ascii") if isinstance(order, bytes) else order
        if self.order not in ("<", ">", "|", "="):
            raise _ForbiddenError(f"the byte order {self.order!r}")

    def real(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.name)


class _Array:
    """Replaces numpy.ndarray: shape, number type and raw bytes."""

    values: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _DType) or not isinstance(raw, bytes):
            raise _ForbiddenError("an array that is not made of plain numbers")
        flat = np.frombuffer(raw, dtype.real())
        self.values = flat.reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    """Replaces NumPy's function: an empty array, which gets its content later."""
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Replaces _codecs.encode, which Python 3 writes for bytes in the old protocols."""
    if encoding != "latin1":
        raise _ForbiddenError(f"text encoded as {encoding!r}")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle._Unpickler):
    """The one in Python: that in C takes up to 64 GiB for ten bytes that number what was read very highly."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise _ForbiddenError(f"a call of {module}.{name}") from None


def load_batch(path: Path) -> dict[str, Any]:
    """The dictionary in one pickled CIFAR batch, of Python 2 or 3, with text keys and real arrays.

    Raises UserError where the file is missing, is not a pickle, or contains anything but arrays.
    """
    try:
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror}).") from None
    except _ForbiddenError as problem:
        raise UserError(
            f"{path} was refused: it contains {problem}, but a CIFAR batch contains only arrays; delete it "
            "and fetch the dataset again."
        ) from None
    except Exception:  # a damaged pickle can raise anything
        raise UserError(
            f"{path} is not a CIFAR batch, or it is damaged; delete it and fetch the dataset again."
        ) from None
    if not isinstance(batch, dict):
        raise UserError(f"{path} holds a {type(batch).__name__}; a CIFAR batch is a dictionary.")
    return {
        key.decode("ascii", "replace") if isinstance(key, bytes) else str(key): (
            value.values if isinstance(value, _Array) else value
        )
        for key, value in batch.items()
    }
