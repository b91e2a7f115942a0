"""How much memory a computation keeps for its gradients."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor


class _Kept:
    """A tensor that autograd keeps."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def most_kept(run: Callable[[], object]) -> int:
    """The most bytes that autograd keeps at once in `run()`; storage that tensors share counts once."""
    users: Counter[tuple[int, int]] = Counter()
    most = 0

    def pack(tensor: Tensor) -> _Kept:
        nonlocal most
        storage, kept = tensor.untyped_storage(), _Kept(tensor)
        key = storage.data_ptr(), storage.nbytes()
        users[key] += 1
        most = max(most, sum(size for (_, size), count in users.items() if count))
        weakref.finalize(kept, users.subtract, [key])
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        run()
    return most
