"""Replays of the methods around batch statistics and entropy."""

from __future__ import annotations

import torch

from ttabench_methods.bn_stats import BNStats
from ttabench_methods.source import Source
from ttabench_methods.tent import Tent, TentConfig

from .registry import Replayed, optimizer_settings, replays, stream, tune
from .trace import Trace


@replays("source")
def source(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = Source(trace.classifier(dtype))
    method.prepare()
    return stream(method, trace, dtype)


@replays("norm")
def norm(trace: Trace, dtype: torch.dtype) -> Replayed:
    """Running statistics are moved or dropped by the official code, but never used."""
    classifier = trace.classifier(dtype)
    for layer in classifier.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.eps = trace.meta["eps"]
    method = BNStats(classifier)
    method.prepare()
    return stream(method, trace, dtype)


@replays("tent")
def tent(trace: Trace, dtype: torch.dtype) -> Replayed:
    classifier = trace.classifier(dtype)
    settings = Tent.for_architecture(classifier.architecture())
    config = TentConfig(steps=trace.meta["steps"], **settings, **optimizer_settings(trace.meta))
    method = Tent(classifier, config)
    method.prepare()
    replayed = Replayed()
    for x in trace.batches(dtype):
        if trace.meta["episodic"]:
            method.reset()
        if not method.optimizer.state:
            tune(method.optimizer, trace.meta)
        replayed.add(method.adapt(x), method.model)
    return replayed
