"""One method on one net, and its passes over a stream."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.conformance.nets import images
from ttabench.conformance.watched_data import WatchedSource, split
from ttabench.method import Method

SEED = 7
SIZES = [24, 24, 24, 5]  # more than the 64 images after which methods with a memory update
SHIFT = 0.4


class Case:
    """One method on one net, and the run that most checks use.

    first   no other net came before it; checks that take long may look at this one more closely.
    """

    def __init__(
        self, method: type[Method[Any]], config: Any, name: str, classifier: Classifier, *, first: bool = True
    ) -> None:
        self.method = method
        self.config = config
        self.name = name
        self.classifier = classifier
        self.first = first
        self.needs = method.needs_of(config)

    def fresh(self, classifier: Classifier | None = None, dtype: torch.dtype = torch.float32) -> Method[Any]:
        """A prepared method around a copy of the net, or around another one."""
        seed_torch()
        made = self.method(classifier or copy.deepcopy(self.classifier), self.config)
        made.prepare(WatchedSource(self.needs, dtype))
        return made

    def slower(self) -> Case | None:
        """The same with a tenth of the learning rate `lr`; None for a method that has none."""
        rate = getattr(self.config, "lr", None)
        if not isinstance(rate, float):
            return None
        config = replace(self.config, lr=rate / 10)
        return Case(self.method, config, self.name, self.classifier, first=self.first)

    @cached_property
    def stream(self) -> list[Tensor]:
        return split(images(sum(SIZES), seed=2, shift=SHIFT), SIZES)

    @cached_property
    def online(self) -> Run:
        """A fresh method over the stream."""
        return Run(self.fresh(), self.stream)

    @cached_property
    def again(self) -> Run:
        """The same once more, after generators that are not torch's were seeded."""
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 — a check looks for methods that use this generator
        return Run(self.fresh(), self.stream)


class Run:
    """One pass over copies of a stream.

    `given` are these copies, so that none has the id of an earlier one. `logits` are copies made when they
    were returned; `returned` are the tensors themselves.
    """

    def __init__(self, method: Method[Any], stream: Sequence[Tensor], seed: int = SEED) -> None:
        seed_torch(seed)
        self.method = method
        self.given = [x.clone() for x in stream]
        self.returned: list[Tensor] = []
        self.logits: list[Tensor] = []
        for x in self.given:
            self.returned.append(method.adapt(x))
            self.logits.append(self.returned[-1].detach().clone())


def seed_torch(number: int = SEED) -> None:
    torch.manual_seed(number)
