"""What torch computes in a block, as one hash: codes that compute the same have the same hash."""

from __future__ import annotations

import hashlib
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

RESERVING = ("set_", "resize_")  # their result may be memory that is written to later
PLAIN = (str, int, float, complex, NoneType, torch.dtype, torch.device, torch.layout, torch.memory_format)


class Operations(TorchDispatchMode):
    """A hash over the operations of a block: their order, names, arguments, and every bit of their results.

    Operations of a backward pass count too. Images and weights from elsewhere count as soon as something is
    computed with them. Memory that was only reserved is filled with zeros.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """16 hex digits."""
        return self._hash.hexdigest()[:16]

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        text = [str(operation), *map(_argument, tree_leaves((args, kwargs)))]
        self._hash.update("\n".join(text).encode())
        name = operation.name().partition("::")[2].partition(".")[0]
        if "empty" in name:
            result.zero_()  # a saved state may have memory that nothing writes to
        elif name not in RESERVING and not _new_view(operation):
            for each in tree_leaves(result):
                self._hash.update(_bits(each) if isinstance(each, Tensor) else _argument(each).encode())
        return result


def _argument(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__  # others print their address


def _new_view(operation: Any) -> bool:
    """Whether the result is another view of an argument: it has no bits of its own."""
    aliases = [each.alias_info for each in operation._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _bits(tensor: Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()
