"""Replays of the methods that bring target features or activations to the source's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.measure.source_access import SourceProvider
from ttabench.measure.source_statistics import norm_statistics
from ttabench.method import Method
from ttabench_methods.actmad import ActMAD, ActMADConfig
from ttabench_methods.actmad_vit import ActMADViT
from ttabench_methods.neo import NEO
from ttabench_methods.tca import TCA
from ttabench_methods.ttac import TTAC

from .registry import Replayed, exchange_optimizer, replays, stream
from .trace import Trace

M = TypeVar("M", bound=Method[Any])


class TraceSource(SourceProvider):
    """Serves the trace's source images, in order and in batches of `source_batch_size` where it has one."""

    def __init__(self, trace: Trace, cls: type[Method[Any]], dtype: torch.dtype) -> None:
        super().__init__(cls.needs)
        self.trace, self.dtype = trace, dtype

    def _count(self, limit: int) -> int:
        return len(self.trace.folder.inputs["x_fisher"])

    def _take(self, batch_size: int, limit: int, shuffle: bool = False) -> Iterator[Tensor]:
        return self.trace.fisher(self.dtype, int(self.trace.meta.get("source_batch_size", batch_size)))


def prepared(cls: type[M], trace: Trace, dtype: torch.dtype, **config: Any) -> M:
    """A method on the trace's net with these settings, its source statistics from the trace's images."""
    method = cls(trace.classifier(dtype), cls.Config(**config))
    method.prepare(TraceSource(trace, cls, dtype))
    return method


# ---- NEO


@replays("neo")
def neo(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    form = {"form": meta["form"]} | ({"alpha": meta["alpha"]} if "alpha" in meta else {})
    method = prepared(NEO, trace, dtype, **form)
    return stream(method, trace.batches(dtype))


# ---- ActMAD


class BatchwiseSource(TraceSource):
    """Statistics of norm layers as the official code has them: the plain mean over those of its batches."""

    def norm_statistics(
        self, classifier: Classifier, limit: int = 0, per_location: bool = False
    ) -> dict[str, tuple[Tensor, Tensor]]:
        each = [norm_statistics(classifier, [x], per_location) for x in self._take(64, limit)]
        return {
            name: (
                torch.stack([batch[name][0] for batch in each]).mean(dim=0),
                torch.stack([batch[name][1] for batch in each]).mean(dim=0),
            )
            for name in each[0]
        }


@replays("actmad")
def actmad(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = ActMAD(trace.classifier(dtype), ActMADConfig())
    method.prepare(BatchwiseSource(trace, ActMAD, dtype))
    return with_losses(method, method.loss, trace, dtype)


def with_losses(
    method: ActMAD | ActMADViT, loss_of: Callable[[Tensor], Tensor], trace: Trace, dtype: torch.dtype
) -> Replayed:
    exchange_optimizer(method, trace.meta)
    replayed = Replayed()
    for x in trace.batches(dtype):
        with torch.no_grad():
            loss = loss_of(x).item()
        replayed.add(method.adapt(x), method.model, loss_per_batch=loss)
    return replayed


@replays("actmad_vit")
def actmad_vit(trace: Trace, dtype: torch.dtype) -> Replayed:
    weight = trace.meta["lambda"]
    method = prepared(ActMADViT, trace, dtype, weight=weight)
    return with_losses(method, lambda x: weight * method.distance(method.tokens(x)[0]), trace, dtype)


# ---- TTAC


@replays("ttac")
def ttac(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    names = {"scale": "loss_scale", "threshold": "pro_threshold", "length": "global_length"}
    names |= {key: key for key in ("class_length", "class_min", "bias_divisor")}
    settings = {ours: meta[theirs] for ours, theirs in names.items() if theirs in meta}
    if "class_min" in settings:
        settings["class_min"] = max(1, settings["class_min"])  # 0 asks no more: a class with features has 1
    method = prepared(TTAC, trace, dtype, official_quirks=True, **settings)
    exchange_optimizer(method, meta)
    return stream(method, trace.batches(dtype))


# ---- LinearTCA


@replays("lineartca")
def lineartca(trace: Trace, dtype: torch.dtype) -> Replayed:
    """Sizes of the supports come from labels where the trace's do, which the method itself never sees."""
    meta = trace.meta
    method = prepared(TCA, trace, dtype, filter_k=meta["filter_K"], steps=meta["steps"], lr=meta["lr"])
    if meta["proportion"] == "labels":
        result = np.bincount(trace.folder.inputs["y"][trace.idx], minlength=method.model.num_classes)
        method.sizes = torch.from_numpy((meta["filter_K"] * (result / result[0])).astype(np.int64))
    for x in trace.batches(dtype):
        method.take(x)
    adam = partial(
        torch.optim.Adam, betas=(meta.get("beta1", 0.9), 0.999), weight_decay=meta.get("weight_decay", 0.0)
    )
    with patch("torch.optim.Adam", adam):
        method.solve()
    replayed = Replayed()
    for x in trace.batches(dtype):
        replayed.add(method.predict(x), method.model)
    return replayed
