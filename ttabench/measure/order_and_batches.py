"""Orders of a test set, and its unlabelled batches for what is done before scoring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.cell.protocol import parse_call
from ttabench.nn.pixels import to_tensor

Tick = Callable[[], None]


def arrange(order: str, labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Positions 0 … n−1 in the order of the stream.

    ``iid`` is a seeded shuffle. ``dirichlet(δ)`` is label-correlated (Yuan et al., CVPR 2023): the
    stream is cut into as many slots as there are classes, and the share of each class in each slot
    is drawn from a Dirichlet distribution with concentration δ; images are shuffled within a slot.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    if order == "iid":
        return draw.permutation(len(labels))
    _, concentration = parse_call(order) or ("", 1.0)
    classes = np.unique(labels)
    slots: list[list[NDArray[np.int64]]] = [[] for _ in classes]
    for label in classes:
        members = draw.permutation(np.flatnonzero(labels == label))
        shares = draw.dirichlet(np.full(len(slots), concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(int)
        for slot, part in zip(slots, np.split(members, cuts), strict=True):
            slot.append(part)
    return np.concatenate([draw.permutation(np.concatenate(slot)) for slot in slots])


class Images(Protocol):
    """An array of images (N, H, W, 3) uint8, or anything that can be indexed like one."""

    def __getitem__(self, positions: NDArray[np.int64], /) -> NDArray[np.uint8]: ...


class Stream:
    """Implements :class:`ttabench.method.Batches`; contains no labels.

    images     perhaps memory-mapped; only the current batch is copied.
    positions  positions of the images, in stream order.
    tick       called after every batch, for progress displays.
    """

    def __init__(
        self,
        images: Images,
        positions: NDArray[np.int64],
        batch_size: int,
        device: str = "cpu",
        tick: Tick | None = None,
    ) -> None:
        self._images = images
        self._positions = positions
        self._device = device
        self._tick = tick or (lambda: None)
        self.batch_size = batch_size

    @property
    def count(self) -> int:
        return len(self._positions)

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, self.count, self.batch_size):
            yield self._take(np.arange(start, min(start + self.batch_size, self.count)))

    def shuffled(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.split(torch.randperm(self.count), self.batch_size):
            yield chosen, self._take(chosen.numpy())

    def _take(self, chosen: NDArray[np.int64]) -> Tensor:
        self._tick()
        return to_tensor(self._images[self._positions[chosen]], self._device)
