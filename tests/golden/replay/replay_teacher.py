"""Replays of the methods with a teacher or a memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttabench.nn import entropy, set_norm_mode
from ttabench_methods.cotta import CoTTA
from ttabench_methods.cotta_views import View, random_view
from ttabench_methods.memory import CSTU, HUS, Item
from ttabench_methods.rotta import RoTTA
from ttabench_methods.sotta import SoTTA
from ttabench_methods.view_average import average_over_views

from .registry import Replayed, Unsupported, optimizer_settings, replays, stream, tune
from .trace import Trace, as_images


def chunks(trace: Trace, field: str, lengths: str) -> Iterator[np.ndarray]:
    """`field` cut into pieces of these lengths; none where the trace has no such field."""
    if field in trace:
        ends = np.cumsum(trace[lengths])
        for start, end in zip([0, *ends], ends, strict=False):
            yield trace[field][start:end]


def contents_at_updates(method: RoTTA | SoTTA) -> list[float]:
    """Will hold the stream positions of all items in memory at every update, one after another."""
    contents: list[float] = []
    update = method.update

    def watched() -> None:
        contents.extend(item.arrival for item in method.memory.items())
        update()

    method.update = watched  # type: ignore[method-assign]
    return contents


def note_memory(replayed: Replayed, trace: Trace, contents: list[float]) -> Replayed:
    """`replayed` with `contents` to compare with the recorded ones; NaN where there are more or fewer."""
    if "mem_idx" in trace:
        expected = len(trace["mem_idx"])
        replayed.decisions["mem_idx"] = contents if len(contents) == expected else [math.nan] * expected
    return replayed


# ---- augmentation


class DetAug:
    """The deterministic stand-in for the random views: what call k does depends on k alone."""

    def __init__(self) -> None:
        self.k = 0

    def __call__(self, x: Tensor) -> Tensor:
        k, self.k = self.k, self.k + 1
        x = x.roll((k % 5 - 2, k // 5 % 5 - 2), (2, 3))
        x = x.flip(3) if k % 2 else x
        return (x * (1, 0.875, 1.125, 0.75)[k % 4]).clamp(0, 1)


def view(trace: Trace, recorded: Iterator[np.ndarray]) -> View:
    """The views of a trace; those that are `recorded` one after another."""
    kind = str(trace.meta["augmentation"])
    if kind.startswith("identity"):
        return lambda x: x
    if kind.startswith("deterministic"):
        return DetAug()
    if kind.startswith("recorded"):
        return lambda x: as_images(next(recorded)[: len(x)], x.dtype)  # a short batch may be padded
    if kind.startswith("official random"):
        return random_view
    raise Unsupported(f"augmentation '{kind}' is not known")


@replays("cotta_transform", tolerance=1e-5, dtype=torch.float32)
def cotta_transform(trace: Trace, dtype: torch.dtype) -> Replayed:
    x = trace.images(trace.idx, dtype)
    replayed = Replayed(expected=trace.tensor("out"))
    for seed in trace["seeds"].tolist():
        torch.manual_seed(seed)
        replayed.logits.append(random_view(x)[None])
    return replayed


# ---- CoTTA


class MaskedCoTTA(CoTTA):
    """Restores what the trace's masks say, where it has some."""

    masks: Mapping[str, Iterator[np.ndarray]] | None = None

    def draw_mask(self, parameter: Tensor) -> Tensor:
        if self.masks is None:
            return super().draw_mask(parameter)
        (name,) = (name for name, theirs in self.parameters.items() if theirs is parameter)
        return torch.from_numpy(next(self.masks[name])).view_as(parameter)


def recorded_masks(trace: Trace, sizes: Mapping[str, int]) -> dict[str, Iterator[np.ndarray]]:
    """By parameter, the masks of all batches; `sizes` are the numbers of elements."""
    order = [f"net.{name}" for name in trace["mask_order"]]
    if set(order) != set(sizes):
        raise Unsupported("its masks are of other parameters than those trained")
    bits = np.unpackbits(trace["mask_bits"])[: int(trace["mask_total"])].astype(bool)
    each = bits.reshape(-1, sum(sizes.values()))
    ends = np.cumsum([sizes[name] for name in order])
    return dict(zip(order, map(iter, np.split(each, ends[:-1], axis=1)), strict=True))


def prepared_cotta(trace: Trace, dtype: torch.dtype, threshold: str, **config: Any) -> MaskedCoTTA:
    method = MaskedCoTTA(
        trace.classifier(dtype),
        CoTTA.Config(
            **optimizer_settings(trace.meta), **config, threshold=trace.meta[threshold], official_quirks=True
        ),
    )
    method.prepare()
    tune(method.optimizer, trace.meta)
    views = trace.arrays.get("aug_batches", ())
    method.view = view(trace, (x for batch in views for x in batch))
    if "mask_bits" in trace:
        method.masks = recorded_masks(trace, {name: p.numel() for name, p in method.parameters.items()})
    return method


@replays("cotta")
def cotta(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared_cotta(
        trace, dtype, "ap", smoothing=meta["mt_alpha"], restore=meta["rst_m"], views=meta["n_aug"]
    )
    torch.manual_seed(0)
    return stream(method, trace.batches(dtype), method.student)


@replays("sottarepo_cotta")
def sottarepo_cotta(trace: Trace, dtype: torch.dtype) -> Replayed:
    """A group is scored on views of its own, before those of the update."""
    meta = trace.meta
    method = prepared_cotta(
        trace, dtype, "aug_threshold", smoothing=meta["ema_factor"], restore=meta["restoration_factor"]
    )
    replayed = Replayed()
    for x in trace.groups(dtype):
        logits = average_over_views(method.model, x, method.view, method.config.views)
        method.adapt(x)
        replayed.add(logits, method.student)
    return replayed


# ---- RoTTA


class RoomyCSTU(CSTU):
    """Takes every image while there is room, also more of a class than its share."""

    def rivals(self, label: int) -> list[int]:
        return super().rivals(label) if len(self) >= self.capacity else []


def prepared_rotta(trace: Trace, dtype: torch.dtype, update_every: int) -> RoTTA:
    meta = trace.meta
    if meta.get("steps", 1) != 1:
        raise Unsupported(f"{meta['steps']} steps per update; RoTTA makes one")
    config = RoTTA.Config(
        **optimizer_settings(meta),
        alpha=meta["alpha"],
        nu=meta["nu"],
        capacity=meta["memory_size"],
        update_every=update_every,
        lambda_t=meta["lambda_t"],
        lambda_u=meta["lambda_u"],
    )
    method = RoTTA(trace.classifier(dtype), config)
    method.prepare()
    method.view = view(trace, chunks(trace, "aug_batches", "aug_count"))
    return method


@replays("rotta")
def rotta(trace: Trace, dtype: torch.dtype) -> Replayed:
    method = prepared_rotta(trace, dtype, trace.meta["update_frequency"])
    tune(method.optimizer, trace.meta)
    contents = contents_at_updates(method)
    return note_memory(stream(method, trace.batches(dtype), method.student), trace, contents)


@replays("sottarepo_rotta")
def sottarepo_rotta(trace: Trace, dtype: torch.dtype) -> Replayed:
    """Its weight decay is ignored there; what it records is the teacher."""
    method = prepared_rotta(trace, dtype, trace.meta["update_every_x"])
    tune(method.optimizer, {**trace.meta, "weight_decay": 0.0})
    memory = method.memory
    method.memory = RoomyCSTU(memory.capacity, len(memory.classes), memory.lambda_t, memory.lambda_u)
    contents = contents_at_updates(method)
    return note_memory(stream(method, trace.groups(dtype)), trace, contents)


# ---- SoTTA


class LeftTrace(Exception):
    """A recorded draw does not fit: the replay went another way before."""


class RecordedHUS(HUS):
    """Evicts what was drawn in the trace, and is gone through in the recorded order."""

    def __init__(self, memory: HUS, trace: Trace) -> None:
        super().__init__(memory.capacity, len(memory.classes))
        self.draws = iter(trace["rng_draws"].tolist() if "rng_draws" in trace else [])
        self.steps = chunks(trace, "step_idx", "step_len")

    def insert(self, item: Item, label: int) -> None:
        self.arrival = item.arrival
        super().insert(item, label)

    def draw_class(self, largest: list[int]) -> int:
        return self.next_draw(0, largest)

    def draw_position(self, label: int) -> int:
        return self.next_draw(1, range(len(self.classes[label])))

    def next_draw(self, kind: int, valid: Sequence[int]) -> int:
        at, recorded, value = next(self.draws, (-1, -1, -1))
        if (at, recorded) != (self.arrival, kind) or value not in valid:
            raise LeftTrace
        return int(value)

    def minibatches(self, size: int) -> Iterator[list[Item]]:
        held = {item.arrival: item for item in self.items()}
        left = set(held)
        while left:
            step = next(self.steps, np.empty(0)).tolist()
            if not step or not left.issuperset(step):
                raise LeftTrace
            yield [held[arrival] for arrival in step]
            left -= set(step)


def prepared_sotta(cls: type[SoTTA], trace: Trace, dtype: torch.dtype, **config: Any) -> SoTTA:
    meta = trace.meta
    if meta.get("temperature", 1.0) != 1.0:
        raise Unsupported(f"a temperature of {meta['temperature']}")
    settings = cls.Config(
        **optimizer_settings(meta),
        **config,
        threshold=meta["high_threshold"],
        capacity=meta["memory_size"],
        rho=meta["rho"],
        bn_momentum=meta["bn_momentum"],
        official_quirks=True,
    )
    method = cls(trace.classifier(dtype), settings)
    method.prepare()
    tune(method.optimizer, meta)
    method.memory = RecordedHUS(method.memory, trace)
    return method


@replays("sotta")
def sotta(trace: Trace, dtype: torch.dtype) -> Replayed:
    meta = trace.meta
    method = prepared_sotta(
        SoTTA,
        trace,
        dtype,
        update_every=meta["update_every_x"],
        epochs=meta["epoch"],
        step_size=meta["loader_batch_size"],
    )
    contents = contents_at_updates(method)
    replayed = Replayed()
    for x in trace.groups(dtype):
        try:
            replayed.add(method.adapt(x), method.model)
        except LeftTrace:
            replayed.logits.append(torch.full((1, method.model.num_classes), math.nan))
            break
    return note_memory(replayed, trace, contents)


class MedianSoTTA(SoTTA):
    """MedBN's port: plain entropy, the whole memory as one batch."""

    entropy = staticmethod(entropy)


@replays("medbn_sotta")
def medbn_sotta(trace: Trace, dtype: torch.dtype) -> Replayed:
    """A batch is remembered, the memory learned from, and the batch scored in train mode."""
    never = len(trace.idx) + 1
    method = prepared_sotta(MedianSoTTA, trace, dtype, statistics="median", update_every=never)
    replayed = Replayed()
    for x in trace.batches(dtype):
        try:
            method.adapt(x)
        except LeftTrace:
            replayed.logits.append(torch.full((1, method.model.num_classes), math.nan))
            break
        set_norm_mode(method.model, train=True)
        items = method.memory.items()
        for _ in range(trace.meta["steps"] if items else 0):
            method.step(torch.stack([item.image for item in items]))
        replayed.add(method.predict(x), method.model)
        set_norm_mode(method.model, train=False)
    return replayed
