"""Read pickled CIFAR batches with an unpickler that can build arrays and nothing else.

A pickle is a program. This one may only make dictionaries, lists, tuples, bytes, text, numbers and
numpy arrays of plain numbers: every global it names is answered by a stand-in defined here, so that
nothing it could be made to call reaches outside this file.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench.errors import UserError

NUMBERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")


class _DType:
    """Stands in for numpy.dtype: a number type and a byte order, nothing more."""

    def __init__(self, code: Any, *_: Any) -> None:
        name = code.decode("ascii") if isinstance(code, bytes) else code
        if name not in NUMBERS:
            raise pickle.UnpicklingError(f"an array of type {name!r}")
        self.name: str = name
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        self.order = order.decode("ascii") if isinstance(order, bytes) else order
        if self.order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"the byte order {self.order!r}")

    def real(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.name)


class _Array:
    """Stands in for numpy.ndarray: shape, number type and raw bytes."""

    values: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _DType) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array that is not made of plain numbers")
        flat = np.frombuffer(raw, dtype.real())
        self.values = flat.reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    """Stands in for numpy's own: an empty array, whose content follows."""
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Stands in for _codecs.encode, which is how Python 3 writes bytes in the old protocols."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoded as {encoding!r}")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"a call of {module}.{name}") from None


def load_batch(path: Path) -> dict[str, Any]:
    """The dictionary in one pickled CIFAR batch, of Python 2 or 3, with text keys and real arrays.

    Raises UserError where the file is missing, is no pickle, or asks for anything but arrays.
    """
    try:
        with path.open("rb") as file:
            found = _ArraysOnly(file, encoding="bytes").load()
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror}).") from None
    except pickle.UnpicklingError as problem:
        raise UserError(
            f"{path} was refused: it is a pickle that contains {problem}, and a CIFAR batch only contains "
            "arrays; delete it and fetch the dataset again."
        ) from None
    except Exception as problem:  # a broken pickle can fail in any way at all
        raise UserError(
            f"{path} is not a CIFAR batch ({type(problem).__name__}: {problem}); "
            "delete it and fetch the dataset again."
        ) from None
    if not isinstance(found, dict):
        raise UserError(f"{path} holds a {type(found).__name__}; a CIFAR batch is a dictionary.")
    return {
        key.decode("ascii", "replace") if isinstance(key, bytes) else str(key): (
            value.values if isinstance(value, _Array) else value
        )
        for key, value in found.items()
    }
