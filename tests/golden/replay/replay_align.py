"""Replays of the methods that bring target features or activations to the source's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ttabench.method import Method
from ttabench.source import SourceProvider
from ttabench_methods.neo import NEO

from .registry import Replayed, replays
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


def largest(found: Tensor, trace: Trace, field: str, row: int | None = None) -> float:
    """How far `found` is from a recorded field, or a row of it, of the float64 run."""
    recorded = trace.recorded(field, torch.float64).numpy()
    return float(np.abs(found.detach().double().numpy() - (recorded if row is None else recorded[row])).max())


# ---- NEO


@replays("neo")
def neo(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    form = {"form": meta["form"]} | ({"alpha": meta["alpha"]} if "alpha" in meta else {})
    method = prepared(NEO, trace, dtype, **form)
    replayed = Replayed()
    for x in trace.batches(dtype):
        replayed.add(method.adapt(x), method.model)
    return replayed
