"""Access of methods to the unlabelled source data that they declared in their needs."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.measure import source_statistics
from ttabench.measure.summary_tensors import contiguous
from ttabench.method import SOURCE_DATA, Needs
from ttabench.nn import channel_statistics
from ttabench.nn.pixels import to_tensor

SEED = 0
PROBE = 8  # images whose features identify a classifier
BATCH = 128  # images per forward pass of a summary
T = TypeVar("T")

Memo = dict[tuple[Any, ...], tuple[Tensor, Any]]  # request → features of PROBE images, and the summary


class KeptSummaries(Protocol):
    """Where several processes keep their summaries, such as `ttabench.run.summary_cache.SourceCache`."""

    def get(
        self,
        request: Sequence[Any],
        classifier: nn.Module,
        probe: Tensor,
        device: str,
        compute: Callable[[], Any],
    ) -> Any:
        """The summary of a request, which `compute` makes if it is not kept."""


class SourceProvider(ABC):
    """Implements :class:`ttabench.method.SourceData`: serves what `needs` declare and records each request.

    Each summary is computed once per classifier and request for all providers that share a `memo` or a folder
    `cache`. In a `memo`, the features of a few images identify a classifier.

    served  request → the number of images that it was computed from.
    """

    def __init__(
        self, needs: Needs, device: str = "cpu", memo: Memo | None = None, cache: KeptSummaries | None = None
    ) -> None:
        self._declared = needs.source_data
        self._device = device
        self._memo: Memo = {} if memo is None else memo
        self._cache = cache
        self.served: dict[str, int] = {}

    @abstractmethod
    def _count(self, limit: int) -> int:
        """The number of images for a request of `limit` images; 0 = all."""

    @abstractmethod
    def _take(self, batch_size: int, limit: int, shuffle: bool = False) -> Iterator[Tensor]:
        """The images of a request in batches (b, 3, H, W), in a fixed order unless shuffled."""

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        self._serve("images", "images", limit)
        return self._take(batch_size, limit, shuffle)

    def features(self, classifier: Classifier, limit: int = 0) -> Tensor:
        self._serve("features", "features", limit)
        return self._once(
            ("features", limit),
            classifier,
            lambda: source_statistics.features(classifier, self._take(500, limit)),
        )

    def channels(self, limit: int = 0) -> tuple[Tensor, Tensor]:
        self._serve("statistics", "channels of the images", limit)
        return channel_statistics(self._take(500, limit))

    def norm_statistics(
        self, classifier: Classifier, limit: int = 0, per_location: bool = False
    ) -> dict[str, tuple[Tensor, Tensor]]:
        per_location_text = " and location" if per_location else ""
        self._serve("statistics", f"mean and variance per channel{per_location_text} of norm layers", limit)
        return self._once(
            ("norm_statistics", limit, per_location),
            classifier,
            lambda: source_statistics.norm_statistics(classifier, self._take(BATCH, limit), per_location),
        )

    def quantiles(
        self, classifier: Classifier, levels: tuple[float, ...], limit: int = 0
    ) -> dict[str, Tensor]:
        self._serve("statistics", f"{len(levels)} quantiles per channel of norm layers", limit)
        return self._once(
            ("quantiles", limit, levels),
            classifier,
            lambda: source_statistics.quantiles(classifier, lambda: self._take(BATCH, limit), levels),
        )

    def gaussian(self, classifier: Classifier, limit: int = 0) -> tuple[Tensor, Tensor]:
        self._serve("statistics", "mean and covariance of features", limit)
        return self._once(
            ("gaussian", limit),
            classifier,
            lambda: source_statistics.gaussian(classifier, self._take(BATCH, limit)),
        )

    def class_gaussians(self, classifier: Classifier, limit: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        self._serve("statistics", "mean and covariance of features per predicted class", limit)
        return self._once(
            ("class_gaussians", limit),
            classifier,
            lambda: source_statistics.class_gaussians(classifier, self._take(BATCH, limit)),
        )

    def entropies(self, classifier: Classifier, limit: int = 0, temperature: float = 1.0) -> Tensor:
        self._serve("statistics", "entropies", limit)
        return self._once(
            ("entropies", limit, temperature),
            classifier,
            lambda: source_statistics.entropies(classifier, self._take(BATCH, limit), temperature),
        )

    def _serve(self, kind: str, what: str, limit: int) -> None:
        if SOURCE_DATA.index(kind) > SOURCE_DATA.index(self._declared):
            raise PermissionError(
                f"the method requested source {kind} ({what}), but its Needs do not declare them; "
                f"set Needs(source_data={kind!r})"
            )
        self.served[what] = max(self.served.get(what, 0), self._count(limit))

    @torch.no_grad()
    def _once(self, key: tuple[Any, ...], classifier: Classifier, compute: Callable[[], T]) -> T:
        """A copy of the result of `compute` in eval mode, from the memo if it was computed before."""
        was_training = classifier.training
        classifier.eval()
        probe = classifier.features(next(self._take(PROBE, PROBE))).float()
        cached = self._memo.get(key)
        if cached is None or not torch.equal(cached[0], probe):
            cache = self._cache
            summary = compute() if cache is None else cache.get(key, classifier, probe, self._device, compute)
            cached = self._memo[key] = probe, contiguous(summary)
        classifier.train(was_training)
        result: T = copy.deepcopy(cached[1])
        return result


class SourceImages(SourceProvider):
    """The clean training images, without labels.

    `load` returns the images (N, H, W, 3) uint8. It is called at the first request, so methods without
    source data run on datasets without training images. A limited request gets a fixed random subset, the
    same for every method.
    """

    def __init__(
        self,
        load: Callable[[], NDArray[np.uint8]],
        needs: Needs,
        device: str = "cpu",
        memo: Memo | None = None,
        cache: KeptSummaries | None = None,
    ) -> None:
        super().__init__(needs, device, memo, cache)
        self._load = load

    @cached_property
    def _images(self) -> NDArray[np.uint8]:
        return self._load()

    def _count(self, limit: int) -> int:
        return min(limit or len(self._images), len(self._images))

    def _take(self, batch_size: int, limit: int, shuffle: bool = False) -> Iterator[Tensor]:
        n = len(self._images)
        chosen = np.arange(n)
        if self._count(limit) < n:
            chosen = np.sort(np.random.Generator(np.random.PCG64(SEED)).permutation(n)[:limit])
        if shuffle:
            chosen = chosen[torch.randperm(len(chosen)).numpy()]
        for start in range(0, len(chosen), batch_size):
            yield to_tensor(self._images[chosen[start : start + batch_size]], self._device)


class SourceTensors(SourceProvider):
    """Source images from batches of tensors, kept in memory; labels in the batches are dropped."""

    def __init__(self, batches: Iterable[Any], needs: Needs, device: str = "cpu") -> None:
        super().__init__(needs, device)
        self._batches: Iterable[Any] | None = batches

    @cached_property
    def _images(self) -> Tensor:
        assert self._batches is not None
        parts = [batch[0] if isinstance(batch, tuple | list) else batch for batch in self._batches]
        self._batches = None
        for part in parts:
            if not isinstance(part, Tensor) or part.ndim != 4 or part.shape[1] != 3:
                what = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
                raise UserError(f"a batch of source images is {what}; expected a tensor (b, 3, H, W).")
            if len(part) and not (part.min() >= 0 and part.max() <= 1):
                raise UserError(
                    "source images have values outside [0, 1]; pass pixels in [0, 1], and give the "
                    "normalisation of the network with mean= and std=."
                )
        if not sum(map(len, parts)):
            raise UserError("source holds no images; pass at least one batch.")
        return torch.cat([part.float() for part in parts])

    def _count(self, limit: int) -> int:
        return min(limit or len(self._images), len(self._images))

    def _take(self, batch_size: int, limit: int, shuffle: bool = False) -> Iterator[Tensor]:
        chosen = torch.arange(self._count(limit))
        if shuffle:
            chosen = chosen[torch.randperm(len(chosen))]
        for start in range(0, len(chosen), batch_size):
            yield self._images[chosen[start : start + batch_size]].to(self._device)
