"""The tensors of a summary of the source data: nested tuples and dictionaries of them."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def contiguous(value: Any) -> Any:
    """The summary with contiguous tensors, as read from a file, since some sums depend on strides."""
    tensors: list[Tensor] = []
    structure = pack(value, tensors)
    return unpack(structure, [tensor.contiguous() for tensor in tensors])


def pack(value: Any, tensors: list[Tensor]) -> Any:
    """Tensor → its number, tuple → list, dictionary → dictionary."""
    if isinstance(value, tuple):
        return [pack(part, tensors) for part in value]
    if isinstance(value, dict):
        return {name: pack(part, tensors) for name, part in value.items()}
    tensors.append(value)
    return len(tensors) - 1


def unpack(structure: Any, tensors: list[Tensor]) -> Any:
    if isinstance(structure, list):
        return tuple(unpack(part, tensors) for part in structure)
    if isinstance(structure, dict):
        return {name: unpack(part, tensors) for name, part in structure.items()}
    return tensors[structure]
