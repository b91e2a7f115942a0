"""A trained classifier and its data, handed to figures that show adaptation at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.measure.order_and_batches import Stream, arrange
from ttabench.method import Method
from ttabench.method.settings import make_config, usual_settings
from ttabench.run.prepared_method import prepared_method

M = TypeVar("M", bound=Method[Any])


@dataclass(frozen=True)
class ClassifierAndData:
    """Implements :class:`ttabench.figure.Bench`; images come in the order of a sweep of this seed.

    report    called as ``report(what, done, total)`` to show progress.
    settings  settings of the user by method, as texts; they override those of dataset and figure.
    shown     the methods that the figure has used so far.
    """

    arch: str
    dataset: Dataset
    corruption: str
    classifier: Classifier
    report: Callable[[str, int, int], None]
    seed: int = 0
    device: str = "cpu"
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set, init=False)

    @property
    def title(self) -> str:
        return f"{self.arch} on {self.dataset.name}, {self.corruption}"

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.dataset.test().labels[self._order()]

    def method(self, cls: type[M], **settings: Any) -> M:
        data = self.dataset
        defaults = usual_settings(cls, data.name, data.num_classes, self.classifier.architecture())
        config = make_config(cls, self.settings.get(cls.name, {}), {**defaults, **settings})
        self.shown.add(cls.name)
        method: Any = prepared_method(cls, self.classifier, config, self.seed, data, self.device)
        return method  # type: ignore[no-any-return]

    def images(self, severity: int, batch_size: int) -> Stream:
        data = self.dataset.corrupted(self.corruption, severity) if severity else self.dataset.test()
        name = f"{self.corruption}-{severity}" if severity else "clean"
        order, batches = self._order(), 0

        def tick() -> None:
            nonlocal batches
            batches += 1
            passes, rest = divmod(batches, len(stream))
            seen = passes * stream.count + rest * batch_size
            self.tell(f"{name}: images seen", seen, 0)

        stream = Stream(data.images, order, batch_size, self.device, tick)
        return stream

    def tell(self, what: str, done: int, total: int) -> None:
        self.report(what, done, total)

    def _order(self) -> NDArray[np.int64]:
        return arrange("iid", self.dataset.test().labels, self.seed)
