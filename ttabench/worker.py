"""What one worker does: load once, run cells, store each result as it comes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ttabench.cell import Cell, Result
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.dataset import Dataset
from ttabench.data.mixed import MIXED, mixed
from ttabench.errors import UnusableModel, UserError, warn_of_setting
from ttabench.evaluate import evaluate
from ttabench.method import Method, Needs
from ttabench.models.checkpoints.cache import Loaded, recall
from ttabench.registry import method as find_method
from ttabench.source import Memo, SourceImages
from ttabench.store import Store, Writer

CLEAN = 256  # clean images whose logits a method may check its settings against


@dataclass(frozen=True)
class Job:
    """Cells that one worker runs one after the other; more than one only where state carries over."""

    cells: tuple[Cell, ...]
    results: Path
    device: str = "cpu"

    def __call__(self, emit: Emit) -> Done:
        return work(self, emit)


@dataclass(frozen=True)
class Progress:
    """How far a running cell is. `scored` stays 0 while an offline method looks at the images."""

    cell: str
    total: int
    seen: int
    scored: int
    right: int


@dataclass(frozen=True)
class Done:
    """A job's results, stored already."""

    results: tuple[Result, ...] = field(default=())


Emit = Callable[[Progress], None]


def work(job: Job, emit: Emit) -> Done:
    """Run a job's cells and store their results. A cell that fails is a result with its reason.

    Raises UserError only where results cannot be stored.
    """
    writer = _writer(job.results)
    results: list[Result] = []
    method: Method[Any] | None = None
    standing = ""
    lost: Cell | None = None
    for cell in job.cells:
        try:
            if lost is not None:
                raise UnusableModel(
                    f"{lost.corruption}-{lost.severity}, earlier in this continual run, failed"
                )
            if method is None:
                method, standing = _prepared(_without_place(cell), job.device)
                method.reset()
            result = _run(cell, method, standing, job.device, emit)
        except Exception as problem:  # one bad cell must not end a sweep; the reason is stored
            result = _failed(cell, problem)
            lost = lost or cell
        writer.append(result)
        results.append(result)
    return Done(tuple(results))


def _run(cell: Cell, method: Method[Any], standing: str, device: str, emit: Emit) -> Result:
    dataset = _dataset(cell.dataset)
    if cell.corruption == MIXED:
        data = mixed(dataset, cell.severity, cell.seed)
    else:
        data = dataset.corrupted(cell.corruption, cell.severity)
    if (now := dataset.fingerprint()) != cell.fingerprint:
        raise UnusableModel(f"the data of {cell.dataset} changed during the sweep (now {now[:12]})")
    total = min(cell.protocol.limit or len(data), len(data))
    seen = evaluate(
        method, data, cell.protocol, cell.seed, device,
        lambda done, scored, right: emit(Progress(str(cell), total, done, scored, right)),
    )  # fmt: skip
    alarms = method.alarms()
    source = _classifier(cell.arch, cell.dataset, cell.checkpoint, device)
    return Result(
        cell=cell,
        status="ok",
        accuracy=seen.accuracy,
        clean_accuracy=source.clean_accuracy,
        n_images=len(seen.correct),
        seconds=seen.seconds,
        correct=np.packbits(seen.correct).tobytes(),
        details={
            "adapted": method.adapted(),
            "scores": type(method).scores_frozen if cell.protocol.frozen else type(method).scores,
            "source_warning": source.note.get("warning", ""),
            "restores": type(method).restores,
            "source_data": type(method).needs_of(method.config).source_data,
            "alarm": "; ".join(filter(None, (seen.alarm, standing, str(alarms.pop("alarm", ""))))),
            **alarms,
        },
    )


def _failed(cell: Cell, problem: Exception) -> Result:
    text = str(problem).strip() or type(problem).__name__
    own = isinstance(problem, UnusableModel | UserError)
    reason = text if own else f"{type(problem).__name__}: {text.splitlines()[0]}"
    trace = "".join(traceback.format_exception(problem))
    return Result(cell=cell, status="failed", reason=reason, details={"traceback": trace[-4000:]})


def _without_place(cell: Cell) -> tuple[Any, ...]:
    return cell.method, cell.config, cell.arch, cell.dataset, cell.checkpoint, cell.seed


@lru_cache(maxsize=2)
def _prepared(key: tuple[Any, ...], device: str) -> tuple[Method[Any], str]:
    """A method after `prepare`, and what clean images say against its settings.

    A pure function of the key, so that resumed sweeps repeat numbers.
    """
    name, config, arch, dataset, checkpoint, seed = key
    cls = find_method(name)
    settings = cls.Config(**dict(config))
    classifier = _classifier(arch, dataset, checkpoint, device).classifier
    torch.manual_seed(seed)
    method = cls(classifier, settings)
    memo = _features(arch, dataset, checkpoint, device)
    needs = cls.needs_of(settings)
    method.prepare(SourceImages(lambda: _dataset(dataset).train().images, needs, device, memo))
    standing = ""
    if cls.check is not Method.check:
        standing = method.check(_clean_logits(arch, dataset, checkpoint, device))
    return method, standing and warn_of_setting(name, standing)


@lru_cache(maxsize=2)
def _features(arch: str, dataset: str, checkpoint: str, device: str) -> Memo:
    """Source features of a classifier, for all methods, settings and seeds."""
    return {}


@torch.no_grad()
def _clean_logits(arch: str, dataset: str, checkpoint: str, device: str) -> torch.Tensor:
    """Logits (n, C) of the unadapted classifier on some clean test images, the same for every method."""
    source = SourceImages(lambda: _dataset(dataset).test().images, Needs(source_data="images"), device)
    classifier = _classifier(arch, dataset, checkpoint, device).classifier
    return torch.cat([classifier(x) for x in source.batches(CLEAN // 2, CLEAN)])


@lru_cache(maxsize=4)
def _classifier(arch: str, dataset: str, checkpoint: str, device: str) -> Loaded:
    loaded = recall(arch, _dataset(dataset), checkpoint)
    if loaded is None:
        raise UnusableModel(
            f"the weights {checkpoint[:12]} of {arch} on {dataset} are no longer in the cache"
        )
    loaded.classifier.to(device).eval()
    return loaded


@lru_cache(maxsize=4)
def _dataset(name: str) -> Dataset:
    return open_dataset(name)


@lru_cache(maxsize=1)
def _writer(results: Path) -> Writer:
    return Store.at(results).writer()
