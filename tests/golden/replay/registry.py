"""How each method is replayed: one function per method name of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ttabench.method import Method
from ttabench.nn import make_optimizer

from .trace import Trace


class Unsupported(Exception):
    """This trace cannot be replayed, and the folder's README allows that; the message says why."""


@dataclass
class Replayed:
    """What a replay produced, in stream order.

    logits    one tensor per batch; may hold fewer images than the stream where a group is incomplete.
    norms     one row per batch: the L2 norm of every parameter, by name ("" of the classifier cut off).
    expected  what `logits` are compared with, where that is not the trace's field of that name.
    decisions one value, or list, per batch, by the trace's name for it, e.g. ``n_kept``; for the tests.
    required  those of them without which the replay is not ok.
    """

    logits: list[Tensor] = field(default_factory=list)
    norms: list[dict[str, float]] = field(default_factory=list)
    expected: Tensor | None = None
    decisions: dict[str, list[Any]] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def add(self, logits: Tensor, model: nn.Module, **decisions: float) -> None:
        """Note the scored logits of a batch, the parameters after it, and what was decided in it."""
        self.logits.append(logits.detach())
        self.norms.append(parameter_norms(model))
        for name, value in decisions.items():
            self.decisions.setdefault(name, []).append(value)


def parameter_norms(model: nn.Module) -> dict[str, float]:
    """L2 norm of every parameter, under the names of the bare net."""
    return {
        name.removeprefix("net."): p.detach().double().norm().item() for name, p in model.named_parameters()
    }


Replay = Callable[[Trace, torch.dtype], Replayed]


@dataclass(frozen=True)
class Entry:
    """tolerance  the largest difference that is still the same algorithm.
    dtype      the precision the verdict is passed in.
    """

    replay: Replay
    tolerance: float = 1e-6
    dtype: torch.dtype = torch.float64


REPLAYS: dict[str, Entry] = {}


def replays(
    *methods: str, tolerance: float = 1e-6, dtype: torch.dtype = torch.float64
) -> Callable[[Replay], Replay]:
    """Register a function for these methods (the part of a trace's name before the first "-")."""

    def register(function: Replay) -> Replay:
        for method in methods:
            assert method not in REPLAYS, method
            REPLAYS[method] = Entry(function, tolerance, dtype)
        return function

    return register


def tune(optimizer: torch.optim.Optimizer, meta: Mapping[str, Any]) -> None:
    """Give an optimiser those of the trace's settings that a method's configuration does not have."""
    for group in optimizer.param_groups:
        group["weight_decay"] = meta.get("weight_decay", 0.0)
        if isinstance(optimizer, torch.optim.Adam):
            group["betas"] = (meta.get("beta1", 0.9), 0.999)
        else:
            group["momentum"] = meta.get("momentum", 0.0)
            group["nesterov"] = meta.get("nesterov", False)


def optimizer_settings(meta: Mapping[str, Any]) -> dict[str, Any]:
    """`optimizer` and `lr` for a method's configuration; the rest by :func:`tune`."""
    kind = str(meta.get("optimizer") or meta.get("base_optimizer")).lower()
    return {"optimizer": "adam" if "adam" in kind else "sgd", "lr": float(meta["lr"])}


def exchange_optimizer(method: Any, meta: Mapping[str, Any]) -> None:
    """Give a method that has one kind of optimiser the trace's, with all its settings."""
    settings = optimizer_settings(meta)
    method.optimizer = make_optimizer(settings["optimizer"], method.parameters.values(), settings["lr"])
    tune(method.optimizer, meta)


def stream(method: Method[Any], batches: Iterable[Tensor], network: nn.Module | None = None) -> Replayed:
    """The plain online protocol: every batch once through `adapt`. `network` learns, if not the model."""
    replayed = Replayed()
    for x in batches:
        replayed.add(method.adapt(x), method.model if network is None else network)
    return replayed
