"""Replays of the methods around batch statistics and entropy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from ttabench.method import Method, SourceData
from ttabench.nn import adapt_batch_norm, make_optimizer, norm_affine, set_norm_mode, stabilised_entropy
from ttabench_methods.bn_stats import BNStats
from ttabench_methods.eata import EATA
from ttabench_methods.eta import ETA
from ttabench_methods.medbn import MedBN
from ttabench_methods.sar import SAR
from ttabench_methods.source import Source
from ttabench_methods.tent import Tent

from .registry import Replayed, optimizer_settings, replays, stream, tune
from .trace import Trace

M = TypeVar("M", bound=Method[Any])


@dataclass
class FisherImages:
    """The trace's Fisher images in order, whatever order is asked for."""

    trace: Trace
    dtype: torch.dtype

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        return self.trace.fisher(self.dtype, batch_size)

    def features(self, classifier: Any, limit: int = 0) -> Tensor:
        raise PermissionError


def prepared(cls: type[M], trace: Trace, dtype: torch.dtype, **config: Any) -> M:
    """A method on the trace's net, with the trace's optimiser and these settings."""
    classifier = trace.classifier(dtype)
    usual = cls.for_architecture(classifier.architecture())
    method = cls(classifier, cls.Config(**{**usual, **optimizer_settings(trace.meta), **config}))
    method.prepare(FisherImages(trace, dtype))
    tune(method.optimizer, trace.meta)  # type: ignore[attr-defined]
    return method


# ---- source, batch statistics, TENT


@replays("source")
def source(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = Source(trace.classifier(dtype))
    return stream(method, trace.batches(dtype))


@replays("norm")
def norm(trace: Trace, dtype: torch.dtype) -> Replayed:
    """Running statistics are moved or dropped by the official code, but never used."""
    classifier = trace.classifier(dtype)
    for layer in classifier.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = trace.meta["eps"]
    method = BNStats(classifier)
    method.prepare()
    return stream(method, trace.batches(dtype))


@replays("tent")
def tent(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared(Tent, trace, dtype, steps=trace.meta.get("steps", 1))
    return replay_tent(method, trace, dtype, method)


def replay_tent(method: Method[Any], trace: Trace, dtype: torch.dtype, host: Any) -> Replayed:
    """`host` has the optimiser: the method itself, or the one inside it."""
    replayed = Replayed()
    for x in trace.batches(dtype):
        if trace.meta.get("episodic"):
            method.reset()
            tune(host.optimizer, trace.meta)
        replayed.add(method.adapt(x), method.model)
    return replayed


# ---- EATA and SAR


def prepared_eata(trace: Trace, dtype: torch.dtype, **config: Any) -> EATA:
    meta = trace.meta
    alpha = meta["fisher_alpha"] or 0.0
    method = prepared(
        EATA if alpha else ETA, trace, dtype, d_margin=meta["d_margin"], fisher_alpha=alpha, **config
    )
    method.e0 = meta["e_margin"]
    return method


@replays("eata")
def eata(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared_eata(trace, dtype, fisher_batch_size=trace.meta.get("fisher_batch_size", 64))
    return replay_eata(method, trace.batches(dtype))


def replay_eata(method: Any, batches: Iterator[Tensor]) -> Replayed:
    replayed = Replayed()
    for x in batches:
        before = method.counts["kept"]
        replayed.add(method.adapt(x), method.model, n_kept=method.counts["kept"] - before)
    return replayed


def prepared_sar(
    cls: type[SAR], trace: Trace, dtype: torch.dtype, margin: str, threshold: float, **config: Any
) -> SAR:
    method = prepared(
        cls, trace, dtype, rho=trace.meta["rho"], reset_constant=threshold, official_quirks=True, **config
    )
    method.e0 = trace.meta[margin]
    return method


def replay_sar(method: SAR, batches: Iterator[Tensor]) -> Replayed:
    replayed = Replayed()
    for x in batches:
        before = method.counts["resets"]
        logits = method.adapt(x)
        ema = float("nan") if method.average is None else method.average.item()
        replayed.add(logits, method.model, reset=method.counts["resets"] - before, ema=ema)
    return replayed


@replays("sar")
def sar(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared_sar(SAR, trace, dtype, "margin_e0", trace.meta.get("reset_threshold", 0.2))
    return replay_sar(method, trace.batches(dtype))


# ---- MedBN, whose code scores one more forward pass after the update


@replays("medbn_forward")
def medbn_forward(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = MedBN(trace.classifier(dtype))
    method.prepare()
    return stream(method, trace.batches(dtype))


def adapt_then_score(method: Method[Any], trace: Trace, dtype: torch.dtype, times: int) -> Replayed:
    replayed = Replayed()
    for x in trace.batches(dtype):
        for _ in range(times):
            method.adapt(x)
        replayed.add(method.predict(x), method.model)
    return replayed


@replays("medbn_tent")
def medbn_tent(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared(Tent, trace, dtype, statistics="median", steps=trace.meta.get("steps", 1))
    return adapt_then_score(method, trace, dtype, 1)


class TrackedMedianTent(Tent):
    """Stored statistics, moved by the medians of every forward pass."""

    def setup(self, source: SourceData | None) -> None:
        adapt_batch_norm(self.model, "median", weight=self.weight, track=True)
        set_norm_mode(self.model, train=True)
        self.parameters = norm_affine(self.model, "batch")
        self.optimizer = make_optimizer(self.config.optimizer, self.parameters.values(), self.config.lr)


@replays("medbn_ema_tent")
def medbn_ema_tent(trace: Trace, dtype: torch.dtype) -> Replayed:
    tracked = type("Tracked", (TrackedMedianTent,), {"weight": trace.meta["bn_momentum"]})
    return adapt_then_score(
        prepared(tracked, trace, dtype, steps=trace.meta.get("steps", 1)), trace, dtype, 1
    )


@replays("medbn_eata")
def medbn_eata(trace: Trace, dtype: torch.dtype) -> Replayed:
    """Its Fisher sum starts anew with the second batch, and is not divided."""
    method = prepared_eata(trace, dtype, statistics="median")
    squares = []
    for x in trace.fisher(dtype, 50):
        logits = method.model(x)
        loss = cross_entropy(logits, logits.argmax(dim=1))
        gradients = torch.autograd.grad(loss, list(method.parameters.values()))
        squares.append(parameters_to_vector(gradients).square())
    method.fisher = torch.stack(squares[1:] or squares).sum(dim=0)
    return adapt_then_score(method, trace, dtype, trace.meta.get("steps", 1))


class SecondLookSAR(SAR):
    """The second pass takes what is reliable there, whether or not it was before."""

    def still_reliable(self, reliable: Tensor, second: Tensor) -> Tensor:
        return second < self.e0


@replays("medbn_sar")
def medbn_sar(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared_sar(SecondLookSAR, trace, dtype, "e_margin", 0.0, statistics="median")
    return adapt_then_score(method, trace, dtype, trace.meta.get("steps", 1))


@replays("medbn_layer")
def medbn_layer(trace: Trace, dtype: torch.dtype) -> Replayed:
    """Outputs, gradients and stored statistics of single layers, each as a share of its largest value."""
    ours, theirs = [], []
    for kind, statistics, weight in (
        ("mednorm", "median", 1.0),
        ("robustmedbn", "median", 0.2),
        ("robustbn", "batch", 0.2),
    ):
        x = trace.tensor("f64_in" if dtype == torch.float64 else "in", dtype).requires_grad_()
        body = nn.Sequential(nn.BatchNorm2d(x.shape[1], eps=1e-5))
        names = ("weight", "bias", "running_mean", "running_var")
        body.load_state_dict({f"0.{name}": trace.tensor(f"layer_{name}") for name in names}, strict=False)
        adapt_batch_norm(body.to(dtype), statistics, weight, track=weight < 1)
        layer = body[0].train()
        out = layer(x)
        (out * trace.tensor("loss_weight", dtype)).sum().backward()
        result = {
            "out": out, "grad_in": x.grad, "grad_w": layer.weight.grad, "grad_b": layer.bias.grad,
            "mean": layer.running_mean, "var": layer.running_var,
        }  # fmt: skip
        for name, value in result.items():
            twin = f"f64_{kind}_{name}"
            if dtype == torch.float32 or twin in trace:
                field = twin if dtype == torch.float64 else f"{kind}_{name}"
                if field in trace:
                    recorded = trace.tensor(field, torch.float64)
                    scale = recorded.abs().max()
                    ours.append((value.detach().double() / scale).flatten())
                    theirs.append((recorded / scale).flatten())
    return Replayed(logits=[torch.cat(ours)], expected=torch.cat(theirs))


# ---- the SoTTA repository's copies: scored and then updated in groups


@replays("sottarepo_bnstats")
def sottarepo_bnstats(trace: Trace, dtype: torch.dtype) -> Replayed:
    if not trace.meta["use_learned_stats"]:
        method = BNStats(trace.classifier(dtype))
        method.prepare()
        return stream(method, trace.groups(dtype))
    model = trace.classifier(dtype)
    replayed = Replayed()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = trace.meta["bn_momentum"]
    with torch.no_grad():
        for x in trace.groups(dtype):
            replayed.add(model.eval()(x), model)
            model.train()(x)
    return replayed


@replays("sottarepo_tent")
def sottarepo_tent(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared(Tent, trace, dtype)
    method.entropy = stabilised_entropy
    return stream(method, trace.groups(dtype))


@replays("sottarepo_eata")
def sottarepo_eata(trace: Trace, dtype: torch.dtype) -> Replayed:
    return stream(prepared_eata(trace, dtype, fisher_batch_size=64), trace.groups(dtype))


@replays("sottarepo_sar")
def sottarepo_sar(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared_sar(SAR, trace, dtype, "margin_e0", trace.meta.get("reset_threshold", 0.2))
    for group in method.optimizer.param_groups:
        group["weight_decay"] = 0.0  # the setting is ignored there
    method.entropy = stabilised_entropy
    return replay_sar(method, trace.groups(dtype))
