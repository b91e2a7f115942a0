"""Stacking: another method adapts to the images that quantile matching has decorrupted.

Quantile matching does not change the classifier, so any other method can follow it.

| symbol | name   |                                                                            |
| ------ | ------ | -------------------------------------------------------------------------- |
| T_θ    | first  | quantile matching, `quantile` or `quantile_paper`; its decorruptor          |
| –      | second | the method that sees T_θ(x) in place of x, around the source classifier     |

Offline, the first method is fitted, then the second on the decorrupted images, with its own number of passes.
Online, both adapt on each batch. Both have their default settings for the kind of model and the number of
classes, but not the settings for one dataset, such as digits-c.
Scored: offline, the second method's frozen predictions, averaged over the views of T_θ(x) if the first method
uses views; online, what the second method scores.

Deviations: the pairs are not published; both papers are cited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ttabench.method import Architecture, Batches, Method, Needs, Paper, SourceData
from ttabench_methods.bn_stats import BNStats
from ttabench_methods.cotta import CoTTA
from ttabench_methods.deyo import DeYO
from ttabench_methods.lame import LAME
from ttabench_methods.roid import ROID
from ttabench_methods.rotta import RoTTA
from ttabench_methods.sar import SAR
from ttabench_methods.shot import SHOT
from ttabench_methods.t3a import T3A
from ttabench_methods.tent import Tent

from .method import Quantile
from .paper import QuantilePaper

FIRST: dict[str, type[Quantile]] = {"quantile": Quantile, "quantile_paper": QuantilePaper}
SECOND: dict[str, type[Method[Any]]] = {
    "bn_stats": BNStats, "cotta": CoTTA, "deyo": DeYO, "lame": LAME, "roid": ROID, "rotta": RoTTA, "sar": SAR,
    "shot": SHOT, "t3a": T3A, "tent": Tent,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StackConfig:
    """The two methods. Each has its own default settings; those of the first were chosen on the extra
    corruptions.
    """

    first: Literal["quantile", "quantile_paper"] = "quantile"
    second: Literal["bn_stats", "cotta", "deyo", "lame", "roid", "rotta", "sar", "shot", "t3a", "tent"] = (
        "cotta"
    )


class Stack(Method[StackConfig]):
    """Two methods, one after the other: the first brings images to the source, the second adapts the rest."""

    name = "stack"
    paper = Quantile.paper
    needs = Quantile.needs
    Config = StackConfig
    mode = "offline"
    scores = "what the second method scores, on the decorrupted images"
    scores_frozen = (
        "the second method's frozen predictions, averaged over views if the first method uses views"
    )
    restores = "what the second method restores"
    deviations = "the pair is not published; see also the deviations of both methods"

    @classmethod
    def parts(cls, config: StackConfig, arch: Architecture) -> Iterator[tuple[type[Method[Any]], Any]]:
        """Each method with its settings for a kind of model."""
        for part in (FIRST[config.first], SECOND[config.second]):
            usual = {**part.for_dataset("", arch.num_classes or 10), **part.for_architecture(arch)}
            yield part, part.Config(**usual)

    @classmethod
    def needs_of(cls, config: StackConfig) -> Needs:
        second = SECOND[config.second]
        # TENT's norm layers depend on the architecture.
        needs = second.needs_of(second.Config(norms="all") if second is Tent else second.Config())
        return replace(
            needs,
            gradient=True,
            source_data=cls.needs.source_data,
            source_statistics=cls.needs.source_statistics,
        )

    @classmethod
    def papers_of(cls, config: StackConfig) -> tuple[Paper, ...]:
        return tuple(
            paper
            for part, settings in cls.parts(config, Architecture())
            for paper in part.papers_of(settings)
        )

    def setup(self, source: SourceData | None) -> None:
        first, second = (
            part(self.model, settings)
            for part, settings in self.parts(self.config, self.model.architecture())
        )
        assert isinstance(first, Quantile)
        self.first, self.second = first, second
        self.first.setup(source)
        self.second.setup(None)

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        self.first.fit(batches, epochs)
        self.second.fit(Decorrupted(batches, self.first), epochs)

    def adapt(self, x: Tensor) -> Tensor:
        self.first.adapt(x)
        with torch.no_grad():
            decorrupted = self.first.decorruptor(x)
        return self.second.adapt(decorrupted)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.first.predict_with(self.second.predict, x)

    def adapted(self) -> str:
        return f"{self.first.adapted()}, then {self.second.adapted()}"

    def alarms(self) -> dict[str, Any]:
        first, second = self.first.alarms(), self.second.alarms()
        texts = [str(details.pop("alarm", "")) for details in (first, second)]
        return {**second, **first, "alarm": "; ".join(filter(None, texts))}


class Decorrupted:
    """The batches that `first` has decorrupted, as :class:`ttabench.method.Batches`."""

    def __init__(self, batches: Batches, first: Quantile) -> None:
        self.batches, self.first = batches, first

    @property
    def count(self) -> int:
        return self.batches.count

    @property
    def batch_size(self) -> int:
        return self.batches.batch_size

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self._decorrupt, self.batches)

    def shuffled(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((positions, self._decorrupt(x)) for positions, x in self.batches.shuffled())

    @torch.no_grad()
    def _decorrupt(self, x: Tensor) -> Tensor:
        decorrupted: Tensor = self.first.decorruptor(x)
        return decorrupted
