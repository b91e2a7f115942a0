"""Replays of T3A, LAME, DeYO, ROID, MEMO and FOA."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ttabench_methods.deyo import DeYO
from ttabench_methods.foa import FOA
from ttabench_methods.lame import LAME
from ttabench_methods.memo import MEMO
from ttabench_methods.roid import ROID
from ttabench_methods.t3a import T3A

from .registry import Replayed, parameter_norms, replays, tune
from .replay_entropy import FisherImages, prepared
from .replay_teacher import chunks, view
from .trace import Trace, as_images

# ---- without gradients: T3A and LAME


@replays("t3a")
def t3a(trace: Trace, dtype: torch.dtype) -> Replayed:
    limit = trace.meta["filter_K"]
    keep = limit if limit > 0 else len(trace.idx) + trace["logits"].shape[1]  # no limit
    method = T3A(trace.classifier(dtype), T3A.Config(filter_k=keep, official_quirks=True))
    method.prepare()
    replayed = Replayed()
    replayed.decisions["warmup_labels"] = method.labels.tolist()
    for x in trace.batches(dtype):
        replayed.add(method.adapt(x), method.model)
        held = method.labels.bincount(minlength=method.model.num_classes).tolist()
        replayed.decisions.setdefault("support_count", []).append(held)
    return replayed


@replays("lame")
def lame(trace: Trace, dtype: torch.dtype) -> Replayed:
    """Probabilities are compared, and the number of steps is part of the verdict."""
    meta = trace.meta
    config = LAME.Config(
        affinity=meta["affinity"].lower(),
        neighbours=meta["knn"],
        symmetric=meta.get("force_symmetry", False),
        bound=meta.get("bound_lambda", 1.0),
        iterations=meta["max_steps"],
    )
    method = LAME(trace.classifier(dtype), config)
    method.prepare()
    replayed = Replayed(required=("iterations",))
    for x in trace.batches(dtype):
        with torch.no_grad():
            log_z, steps = method.iterate(x)
        replayed.add(log_z.exp(), method.model, iterations=steps)
    return replayed


# ---- with gradients: DeYO and ROID


@replays("deyo")
def deyo(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared(
        DeYO,
        trace,
        dtype,
        entropy_weight=meta.get("reweight_ent", 0),
        plpd_weight=meta.get("reweight_plpd", 0),
        plpd_limit=meta["plpd_threshold"],
        patches=meta["patch_len"],
        official_quirks=True,
    )
    method.entropy_limit, method.e0 = meta["deyo_margin"], meta["margin_e0"]
    orders = iter(trace["perm"].astype(np.int64)) if "perm" in trace else iter(())
    method.orders = lambda count, *_: torch.from_numpy(np.stack(list(islice(orders, count))))
    replayed = Replayed()
    for x in trace.batches(dtype):
        for _ in range(meta.get("steps", 1)):
            method.counts.clear()
            logits = method.adapt(x)
        replayed.add(logits, method.model, n_reliable=method.counts["sure"], n_kept=method.counts["kept"])
    return replayed


@replays("roid")
def roid(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared(
        ROID,
        trace,
        dtype,
        temperature=meta["temperature"],
        average_momentum=meta["momentum_probs"],
        ensemble=meta["momentum_src"],
        consistency=meta.get("use_consistency", False),
        prior_correction=meta.get("use_prior_correction", False),
        official_quirks=True,
    )
    method.full = meta["batch_size"]
    method.view = view(trace, chunks(trace, "aug_batches", "aug_count"))
    replayed = Replayed()
    for x in trace.batches(dtype):
        logits = method.adapt(x)
        replayed.add(logits, method.model)
        replayed.decisions.setdefault("class_probs", []).append(method.average.tolist())
    return replayed


# ---- MEMO


class RecordedMEMO(MEMO):
    """Takes the recorded views, and notes the parameters before they return to the source."""

    recorded: Iterator[np.ndarray]
    norms: dict[str, float]

    def draw_views(self, x: Tensor) -> Tensor:
        return torch.stack([as_images(next(self.recorded), image.dtype) for image in x])

    def forget(self) -> None:
        self.norms = parameter_norms(self.model)
        super().forget()


@replays("memo")
def memo(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    prior = meta.get("prior_strength")
    method = RecordedMEMO(
        trace.classifier(dtype),
        MEMO.Config(
            views=meta["n_views"],
            steps=meta["niter"],
            optimizer="adamw" if "adam" in meta["optimizer"].lower() else "sgd",
            lr=meta["lr"],
            prior=1e300 if prior is None else prior,  # without: the source's statistics alone
            official_quirks=True,
        ),
    )
    method.prepare()
    tune(method.optimizer, meta)
    method.recorded = iter(trace["aug_batches"])
    replayed = Replayed()
    for x in trace.batches(dtype):
        replayed.logits.append(method.adapt(x))
        replayed.norms.append(method.norms)
    return replayed


# ---- FOA


class RecordedFOA(FOA):
    """Takes the recorded candidates, and notes the fitness of each."""

    recorded: Iterator[Tensor]
    losses: list[float]

    def ask(self) -> Tensor:
        candidates = next(self.recorded)
        if not torch.equal(candidates[-1], self.best):
            raise ValueError("the last candidate is not the fittest of the batch before")
        return candidates[:-1]

    def fitness(self, logits: Tensor, summaries: list[Tensor]) -> Tensor:
        value = super().fitness(logits, summaries)
        self.losses.append(value.item())
        return value


@replays("foa")
def foa(trace: Trace, dtype: torch.dtype) -> Replayed:
    """The fitness of every candidate is part of the verdict."""
    meta = trace.meta
    prompts = trace.tensor("prompts", torch.float64).flatten(2)
    config = FOA.Config(
        prompts=meta["num_prompts"],
        population=prompts.shape[1] - 1,
        weight=meta["fitness_lambda"],
        source_images=len(trace.folder.inputs["x_fisher"]),
        official_quirks=True,
    )
    method = RecordedFOA(trace.classifier(dtype), config)
    method.prepare(FisherImages(trace, dtype))
    method.recorded, method.best = iter(prompts), prompts[0, -1]
    replayed = Replayed(required=("losses",))
    for x in trace.batches(dtype):
        method.losses = []
        replayed.add(method.adapt(x), method.model)
        best = method.losses.index(min(method.losses))
        result = {"losses": method.losses, "best": best, "hist_stat": method.average.tolist()}
        for name, value in result.items():
            replayed.decisions.setdefault(name, []).append(value)
    means, deviations = zip(*method.source, strict=True)
    replayed.decisions["source_mean"] = torch.cat(means).tolist()
    replayed.decisions["source_std"] = torch.cat(deviations).tolist()
    return replayed
