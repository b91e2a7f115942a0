"""Replays of SHOT: T3A's and TTAB's online forms, and the authors' offline one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ttabench_methods.shot import SHOT

from .registry import Replayed, Unsupported, optimizer_settings, parameter_norms, replays, tune
from .replay_teacher import chunks
from .trace import Trace


class WatchedSHOT(SHOT):
    """Remembers how many labels counted in the last step, all labels made, and norms after every step."""

    def setup(self, source: Any) -> None:
        super().setup(source)
        self.certain = 0
        self.labels: list[list[int]] = []
        self.norms: list[dict[str, float]] = []

    def learn(self, logits: Tensor, labels: Tensor, certain: Tensor, epsilon: float = 0.0) -> None:
        super().learn(logits, labels, certain, epsilon)
        self.certain = int(certain.sum())
        self.norms.append(parameter_norms(self.model))

    def label(self, batches: Any) -> Tensor:
        labels = super().label(batches)
        self.labels.append(labels.tolist())
        return labels


def prepared_shot(trace: Trace, dtype: torch.dtype, **config: Any) -> WatchedSHOT:
    method = WatchedSHOT(trace.classifier(dtype), SHOT.Config(**optimizer_settings(trace.meta), **config))
    method.prepare()
    tune(method.optimizer, trace.meta)
    return method


def online(method: WatchedSHOT, trace: Trace, dtype: torch.dtype) -> Replayed:
    replayed = Replayed()
    for x in trace.batches(dtype):
        replayed.add(method.adapt(x), method.model, n_certain=method.certain)
    if "n_certain" not in trace:
        replayed.decisions.clear()
    return replayed


@replays("shot")
def shot(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared_shot(
        trace,
        dtype,
        statistics="source",
        label_weight=0.0 if meta["algorithm"] == "SHOTIM" else meta["theta"],
        threshold=meta["beta"],
        steps=meta.get("steps", 1),
    )
    return online(method, trace, dtype)


@replays("shot_ttab")
def shot_ttab(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared_shot(
        trace,
        dtype,
        information_weight=meta.get("ent_par", 0.0),
        label_weight=meta.get("cls_par", 0.0),
        threshold=meta["threshold_shot"],
        steps=meta.get("steps", 1),
    )
    return online(method, trace, dtype)


class RecordedBatches:
    """The stream, and its passes in the recorded order."""

    def __init__(self, trace: Trace, dtype: torch.dtype) -> None:
        self.trace, self.dtype = trace, dtype
        self.count, self.batch_size = len(trace.idx), int(trace.meta["batch_size"])
        self.steps = chunks(trace, "step_idx", "step_len")

    def __len__(self) -> int:
        return len(self.trace["step_len"]) // int(self.trace.meta["max_epoch"])

    def __iter__(self) -> Iterator[Tensor]:
        return self.trace.batches(self.dtype)

    def shuffled(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(len(self)):
            positions = next(self.steps)
            x = self.trace.images(self.trace.idx[positions], self.dtype)
            yield torch.from_numpy(positions).long(), x


@replays("shot_offline")
def shot_offline(trace: Trace, dtype: torch.dtype) -> Replayed:
    """All but the last layer learn with the backbone's rate; a bottleneck has its own."""
    meta = trace.meta
    if meta.get("distance", "cosine") != "cosine":
        raise Unsupported(f"a distance called '{meta['distance']}'")
    method = prepared_shot(
        trace,
        dtype,
        information_weight=meta.get("ent_par", 0.0),
        label_weight=meta.get("cls_par", 0.0),
        labellings=meta["interval"],
        class_images=meta.get("threshold", 0),
    )
    (group,) = method.optimizer.param_groups
    rates: dict[float, list[Tensor]] = {}
    for name, parameter in method.parameters.items():
        fresh = meta.get("bottleneck") and name.split(".")[1] in ("conv3", "bn3", "gn3")
        rates.setdefault(meta["lr"] * meta["lr_decay2" if fresh else "lr_decay1"], []).append(parameter)
    shared = {key: value for key, value in group.items() if key not in ("params", "lr")}
    method.optimizer.param_groups = [
        {**shared, "params": parameters, "lr": rate} for rate, parameters in rates.items()
    ]
    with patch("ttabench_methods.shot.EPSILON", meta.get("epsilon", 1e-5)):
        method.fit(RecordedBatches(trace, dtype), meta["max_epoch"])
    replayed = Replayed()
    for x in trace.batches(dtype):
        replayed.logits.append(method.predict(x))
    names = [str(name) for name in trace["param_names"]]
    replayed.norms = method.norms[-1:]
    replayed.decisions["pseudo_labels"] = method.labels
    replayed.decisions["net_l2_per_update"] = [[row[name] for name in names] for row in method.norms]
    return replayed
