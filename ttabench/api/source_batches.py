"""Source images that a user hands over in batches, served as a sweep serves those of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttabench.api.pixel_check import warn_of_dark
from ttabench.errors import UserError
from ttabench.measure.any_network import AnyNetwork
from ttabench.measure.source_access import SEED, SourceTensors
from ttabench.method import Needs
from ttabench.run.summary_cache import NoMemo


class _Batches(SourceTensors):
    """The images of an iterable of batches.

    A limited request gets a fixed random subset, as from `ttabench.measure.source_access.SourceImages`:
    loaders often yield one class after the other. Reading the batches leaves torch's generator as it was: a
    DataLoader draws from it, and a list does not.

    dtype   of the images that a method gets: that of the network.
    """

    def __init__(
        self, batches: Iterable[Any], needs: Needs, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(batches, needs, device)
        self._memo = NoMemo()
        self._dtype = dtype

    @cached_property
    def _images(self) -> Tensor:
        assert self._batches is not None
        with torch.random.fork_rng(devices=[]):
            batches = list(self._batches)
        images = [batch[0] if isinstance(batch, tuple | list) and batch else batch for batch in batches]
        if any(isinstance(each, tuple | list) for each in images):
            raise UserError("a batch of source images is an empty list; expected a tensor (b, 3, H, W).")
        sizes = sorted({tuple(each.shape[2:]) for each in images if isinstance(each, Tensor)})
        if len(sizes) > 1:
            raise UserError(f"source images have sizes {sizes[0]} and {sizes[1]}; expected one size.")
        self._batches = images
        tensor = super()._images.detach()  # from layers of the caller, which must not learn
        warn_of_dark(tensor, "source images")
        return tensor

    @property
    def size_read(self) -> tuple[int, ...]:
        """Height and width of the images, once a method has read them; before, ()."""
        return tuple(self._images.shape[2:]) if "_images" in vars(self) else ()

    def _take(self, batch_size: int, limit: int, shuffle: bool = False) -> Iterator[Tensor]:
        n = len(self._images)
        chosen = torch.arange(n)
        if self._count(limit) < n:
            subset = np.random.Generator(np.random.PCG64(SEED)).permutation(n)[:limit]
            chosen = torch.from_numpy(np.sort(subset))
        if shuffle:
            chosen = chosen[torch.randperm(len(chosen))]
        for start in range(0, len(chosen), batch_size):
            images = self._images[chosen[start : start + batch_size]].to(self._device, self._dtype)
            # The layout of a sweep's images: convolutions round differently in another one.
            yield images.contiguous(memory_format=torch.channels_last)


class SourceBatches(AnyNetwork, _Batches):
    """The images of an iterable of batches. A method gets the same numbers as in a sweep on these images."""
