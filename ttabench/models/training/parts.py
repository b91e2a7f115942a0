"""The gradient of a mini-batch, computed in parts side by side.

Each part of the batch goes forwards and backwards in one thread, and the gradients are summed in the order of
the parts. Each part draws its dropout and its stochastic depth from a generator of its own. So the sum is the
same bits for any number of threads. Networks with batch norm cannot be trained so: their statistics are those
of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class Parts:
    """Gradients of a network over parts of `size` images, in `threads` threads."""

    def __init__(self, net: nn.Module, size: int, threads: int) -> None:
        self.parameters = [p for p in net.parameters() if p.requires_grad]
        self.size = size
        self.pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def backward(
        self, loss_of: Callable[[slice], tuple[Tensor, Tensor]], images: int, seed: Sequence[int]
    ) -> Tensor:
        """Set the gradients of the sum of the parts' losses; the sum of the second of what they return.

        loss_of  the loss of a slice of the batch of `images`, and a tensor to be summed without gradients.
        seed     of what is drawn in this batch.
        """

        def compute(first: int) -> tuple[tuple[Tensor | None, ...], Tensor]:
            (state,) = np.random.SeedSequence((*seed, first)).generate_state(1)
            with DrawFrom(Generator().manual_seed(int(state))):
                loss, noted = loss_of(slice(first, first + self.size))
            return torch.autograd.grad(loss, self.parameters, allow_unused=True), noted

        gradients, noted = zip(*self.pool.map(compute, range(0, images, self.size)), strict=True)
        for parameter, *parts in zip(self.parameters, *gradients, strict=True):
            given = [part for part in parts if part is not None]
            # In the parameter's order of memory: fused optimisers take them for the same without a check.
            parameter.grad = torch.empty_like(parameter).copy_(_sum(given)) if given else None
        return _sum(noted)


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    """In their order, so with the same bits each time."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total += tensor
    return total


class DrawFrom(TorchFunctionMode):
    """Inside this context, `Tensor.bernoulli_` and the dropout of attention draw from one generator.

    Threads share torch's own generator, so what they get of it depends on their order.
    """

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.bernoulli_:
            return func(*args, generator=self.generator, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        return func(*args, **kwargs)

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0) -> Tensor:
        """softmax(q kᵀ / √d), some of its entries dropped, times v: (…, tokens, d) → the same shape."""
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
        if dropout_p:
            keep = 1 - dropout_p
            weights = weights * torch.empty_like(weights).bernoulli_(keep, generator=self.generator) / keep
        attended: Tensor = weights @ value
        return attended
