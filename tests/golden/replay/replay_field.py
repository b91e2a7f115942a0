"""Replays of COME, CMF, RDumb and POEM."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ttabench_methods.cmf import CMF
from ttabench_methods.come import COME, opinion_entropy
from ttabench_methods.poem import POEM
from ttabench_methods.rdumb import RDumb

from .registry import Replayed, optimizer_settings, replays, tune
from .replay_align import TraceSource
from .replay_entropy import FisherImages, prepared, replay_eata, replay_sar, replay_tent
from .replay_teacher import chunks, view
from .trace import Trace

# ---- COME


def prepared_come(trace: Trace, dtype: torch.dtype, **settings: Any) -> Any:
    """COME on the trace's net, ready for batches; K is the trace's."""
    classifier, host = trace.classifier(dtype), trace.method.removeprefix("come_")
    usual = COME.for_architecture(classifier.architecture())
    config = {**usual, **optimizer_settings(trace.meta), **settings}
    method = COME(classifier, COME.Config(host=host, official_quirks=True, **config))
    method.host.entropy = partial(opinion_entropy, K=float(trace.meta["K"]), added=1e-7)
    method.prepare(FisherImages(trace, dtype))
    tune(method.host.optimizer, trace.meta)
    return method


@replays("come_tent")
def come_tent(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared_come(trace, dtype, steps=trace.meta.get("steps", 1))
    return replay_tent(method, trace, dtype, method.host)


@replays("come_eata")
def come_eata(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    host = prepared_come(
        trace,
        dtype,
        d_margin=meta["d_margin"],
        fisher_alpha=meta.get("fisher_alpha") or 0.0,
        fisher_batch_size=meta.get("fisher_batch_size", 64),
    ).host
    host.e0 = meta["e_margin"]
    return replay_eata(host, trace.batches(dtype))


@replays("come_sar")
def come_sar(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    host = prepared_come(trace, dtype, rho=meta["rho"], reset_constant=meta.get("reset_threshold", 0.2)).host
    host.e0 = meta["margin_e0"]
    return replay_sar(host, trace.batches(dtype))


# ---- RDumb


@replays("rdumb")
def rdumb(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared(RDumb, trace, dtype, d_margin=meta["d_margin"], reset_every=meta["reset_every"])
    method.e0 = meta["e_margin"]
    return replay_eata(method, trace.batches(dtype))


# ---- CMF


@replays("cmf")
def cmf(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared(
        CMF,
        trace,
        dtype,
        alpha=meta["alpha"],
        ensemble=meta["gamma"],
        q=meta["q"],
        temperature=meta["temperature"],
        average_momentum=meta["momentum_probs"],
        consistency=meta.get("use_consistency", True),
        prior_correction=meta.get("use_prior_correction", True),
        official_quirks=True,
    )
    method.view = view(trace, chunks(trace, "aug_batches", "n_kept"))
    replayed = Replayed()
    for x in trace.batches(dtype):
        logits = method.adapt(x)
        replayed.add(logits, method.model, beta=method.beta, hidden_var=method.variance)
    return replayed


# ---- POEM


@replays("poem")
def poem(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    classifier = trace.classifier(dtype)
    method = POEM(
        classifier,
        POEM.Config(
            **optimizer_settings(meta),
            weighted=meta["weighted"],
            gamma=meta["gamma"],
            delayed_start=meta["delayed_start"],
            temperature=meta["temp"],
            official_quirks=True,
        ),
    )
    method.prepare(TraceSource(trace, POEM, dtype))
    tune(method.optimizer, meta)
    method.e0, method.bettor.clip = meta["e0"], meta["eps_clip"]
    replayed = Replayed()
    for x in trace.batches(dtype):
        logits = method.adapt(x)
        replayed.add(logits, method.model, log_wealth_per_batch=method.bettor.log_wealth)
    return replayed
