"""The unlabelled source data, as far as a method has declared that it needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.method import Needs
from ttabench.nn import channel_statistics
from ttabench.stream import to_tensor

SEED = 0
PROBE = 8  # images that tell whether a classifier is one whose features are known

Memo = dict[int, tuple[Tensor, Tensor]]  # limit → features of PROBE images, of all


class SourceImages:
    """Fulfils :class:`ttabench.method.SourceData` for the clean training images; carries no labels.

    `load` gives the images (N, H, W, 3) uint8; it is called when they are first asked for, so that a
    method without source data runs where there is none. A limited request takes a fixed random
    subset, the same for every method. Features are computed once for all that share a `memo`.
    """

    def __init__(
        self,
        load: Callable[[], NDArray[np.uint8]],
        needs: Needs,
        device: str = "cpu",
        memo: Memo | None = None,
    ) -> None:
        self._load = load
        self._declared = needs.source_data
        self._device = device
        self._memo: Memo = {} if memo is None else memo

    @cached_property
    def _images(self) -> NDArray[np.uint8]:
        return self._load()

    def _some(self, limit: int) -> NDArray[np.int64]:
        n = len(self._images)
        if not limit or limit >= n:
            return np.arange(n)
        return np.sort(np.random.Generator(np.random.PCG64(SEED)).permutation(n)[:limit])

    def _batches(self, chosen: NDArray[np.int64], batch_size: int) -> Iterator[Tensor]:
        for start in range(0, len(chosen), batch_size):
            yield to_tensor(self._images[chosen[start : start + batch_size]], self._device)

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        if self._declared != "images":
            raise PermissionError("source images were asked for, but the method's Needs do not declare them")
        chosen = self._some(limit)
        if shuffle:
            chosen = chosen[torch.randperm(len(chosen)).numpy()]
        return self._batches(chosen, batch_size)

    @torch.no_grad()
    def features(self, classifier: Classifier, limit: int = 0) -> Tensor:
        self._allow_summaries()
        was_training = classifier.training
        classifier.eval()
        chosen = self._some(limit)
        (few,) = (classifier.features(x).float() for x in self._batches(chosen[:PROBE], PROBE))
        known = self._memo.get(limit)
        if known is None or not torch.equal(known[0], few):
            parts = [classifier.features(x).float() for x in self._batches(chosen, 500)]
            known = self._memo[limit] = few, torch.cat(parts)
        classifier.train(was_training)
        return known[1].clone()

    def channels(self, limit: int = 0) -> tuple[Tensor, Tensor]:
        self._allow_summaries()
        return channel_statistics(self._batches(self._some(limit), 500))

    def _allow_summaries(self) -> None:
        if self._declared not in ("features", "images"):
            raise PermissionError(
                "source features were asked for, but the method's Needs do not declare them"
            )
