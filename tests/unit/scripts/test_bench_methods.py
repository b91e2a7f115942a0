"""The floors of the benchmark of methods: an adapter makes the passes of its floor, and no others."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import bench_methods
import pytest
import torch
from bench_methods import (
    CASES,
    Bare,
    Case,
    Floor,
    Work,
    classifier,
    images,
    images_viewed,
    pixels,
    prepared,
    size_of,
    speed,
)  # fmt: skip
from torch import Tensor, nn

from tests.cases import each
from ttabench import nn as tta
from ttabench.classifier import Classifier

BATCH = 16  # four of them make the 64 arrivals that SoTTA waits for


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Images that go through any classifier: forward without gradients, forward with them, and back."""
    seen: Counter[str] = Counter()

    def count(module: nn.Module, inputs: tuple[Any, ...], logits: Any) -> None:
        if isinstance(module, Classifier):
            if logits.requires_grad:
                seen["there"] += len(logits)
                logits.register_hook(lambda gradient: seen.update(back=len(gradient)))
            else:
                seen["forward"] += len(logits)

    hook = nn.modules.module.register_module_forward_hook(count)
    try:
        yield seen
    finally:
        hook.remove()


def passes(step: Callable[[Tensor], object], floor: Floor) -> dict[str, float]:
    """How often each image that arrives goes through, by kind of pass."""
    batches = floor.every // BATCH or 1
    with counted() as seen:
        for _ in range(batches):
            step(images(BATCH))
    return {kind: count / (batches * BATCH) for kind, count in seen.items()}


# By row: forward passes without gradients; passes there and back.
CLAIMS = {
    "source": (1, 0), "bn_stats": (1, 0), "tent": (0, 1), "eata": (0, 1), "eta": (0, 1), "sar": (0, 2),
    "sotta": (1, 2), "sotta, floor without scoring": (0, 2), "cotta, no views": (2, 1),
    "cotta, 32 views": (33, 1), "come": (0, 1), "come, host eata": (0, 1), "come, host sar": (0, 2),
    "rdumb": (0, 1), "poem": (0, 1), "roid, no view": (0, 1), "cmf, no view": (0, 1),
    "neo": (1, 0), "aqr": (1, 0), "aqr, floor with look-ups": (1, 0), "lame": (1, 0), "medbn": (1, 0),
    "medbn, floor with medians": (1, 0), "shot": (0, 1), "deyo": (1, 1),
    "tca, map fitted in each batch": (1, 0), "t3a": (1, 0),
    "adacontrast": (4, 1), "tea": (1, 22), "asr": (1, 1), "spa": (1, 2),
    "rem": (0, 3), "dpcore, known shift": (1, 1), "dpcore, new shift, 5 steps": (2, 5),
    "note": (1, 1), "rmt": (1, 3), "actmad": (1, 1), "ttac": (1, 1), "coral": (1, 1), "actmad_vit": (0, 1),
}  # fmt: skip
# Their losses look at features or activations, so no gradient comes from the logits, where it is counted.
BEFORE_LOGITS = ("actmad", "actmad_vit", "ttac", "coral", "spa", "dpcore")
TRANSFORMERS = {"actmad_vit": "cct_2_3x2", "dpcore": "cct_2_3x2", "rem": "vit_2_4"}


@pytest.mark.slow
@each(
    "case",
    [case for case in CASES if case.floor and not (case.epochs or case.floor.viewed)],
    ids=lambda case: case.label,
)
def test_an_adapter_makes_the_passes_of_its_floor(case: Case) -> None:
    network = classifier(TRANSFORMERS.get(case.method, "resnet18"), width=8)
    floor = case.floor
    assert floor is not None
    forward, back = CLAIMS[case.label]
    claim = {"forward": forward, "there": back, "back": back}
    least = passes(Bare(network, floor, images(floor.every)), floor)
    assert least == {kind: times for kind, times in claim.items() if times}

    adapter = prepared(case, network)
    assert not isinstance(adapter, str), adapter
    if case.method == "dpcore":  # the first batch is of a new shift, also where all others are known
        adapter.adapt(images(BATCH))
    ours = passes(adapter.adapt, floor)
    if case.label.startswith("dpcore, new shift"):  # whether it is known takes a pass that could go back
        ours["there"], ours["forward"] = ours["there"] - 1, ours["forward"] + 1
    if case.label == "sotta, floor without scoring":  # the forward pass that it scores comes on top
        assert ours.pop("forward") == 1
    if case.method in BEFORE_LOGITS:
        assert "back" not in ours
        ours["back"] = least["back"]
    assert ours == least


def test_fitting_quantile_makes_the_passes_of_its_floor_and_few_more() -> None:
    network = classifier("resnet18", width=8)
    for case in [case for case in CASES if case.method == "quantile"]:
        assert case.floor is not None
        bare = passes(Bare(network, case.floor, images(0)), case.floor)
        assert bare == {"there": 1, "back": 1}
        adapter = prepared(case, network)
        assert not isinstance(adapter, str)
        with counted() as seen:
            speed(case, adapter, network, images(BATCH), lambda works: [(works[0]() is None, 1.0, 2.0)])
        assert seen["there"] == case.epochs * BATCH
        assert seen["forward"] <= 7 * BATCH  # the start 3, the views 1 or 2, to be sure what to keep 2


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.floor and case.floor.viewed], ids=lambda case: case.label
)
def test_a_view_costs_its_floor_as_many_images(case: Case) -> None:
    network, floor = classifier("resnet18", width=8), case.floor
    assert floor is not None
    adapter, bare = prepared(case, network), Bare(network, floor, images(0))
    assert not isinstance(adapter, str), adapter
    bare.viewed = images_viewed(adapter, images(BATCH))
    assert 0 < bare.viewed < BATCH
    assert (
        passes(adapter.adapt, floor)
        == passes(bare, floor)
        == dict.fromkeys(("there", "back"), 1 + bare.viewed / BATCH)
    )


def test_fitting_tca_makes_the_passes_of_its_floor_and_finds_its_map_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (case,) = (case for case in CASES if case.method == "tca" and case.epochs)
    network, images_seen = classifier("resnet18", width=8), 40
    adapter = prepared(case, network)
    assert not isinstance(adapter, str)
    maps: list[int] = []
    monkeypatch.setattr(type(adapter), "solve", lambda _self: maps.append(1))
    passes_made: list[Counter[str]] = []

    def measure(works: Sequence[Work]) -> list[tuple[float, ...]]:
        for work in works:
            with counted() as seen:
                work()
            passes_made.append(seen)
        return [(2.0, 1.0)]

    result = speed(replace(case, images=images_seen), adapter, network, images(BATCH), measure)
    assert passes_made == [{"forward": images_seen}] * 2
    assert maps == [1]
    assert result.adapter == images_seen / 2
    assert result.ratio == 2


def test_large_networks_see_224_pixels_and_few_source_images(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [size_of(arch) for arch in ("resnet50", "efficientnet_lite/lite0", "resnet18")] == [224, 224, 32]
    network = classifier("resnet18", width=8)
    monkeypatch.setattr(bench_methods, "large", lambda arch: (network, arch))
    assert classifier("resnet50") == (network, "resnet50")
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(bench_methods, "pixels", lambda *given: (asked.append(given), pixels(2))[1])
    assert not isinstance(prepared(Case("coral"), network, size=224), str)
    assert asked == [(64, 224)]


def test_the_command_prints_a_row_for_each_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_methods, "as_in_a_worker", lambda threads: None)  # it changes torch for all
    given = "--archs resnet18 --width 8 --methods source,bn_stats --batch 2 --repeats 2 --seconds 0"
    monkeypatch.setattr(sys, "argv", ["bench_methods.py", *given.split()])
    assert bench_methods.main() == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [len(row) for row in rows if row[0] in ("source", "bn_stats")] == [4, 4]  # with speeds and ratio
    assert rows[-1][0].startswith("worst_floor_ratio=")


def test_where_a_method_does_not_apply_the_reason_is_given() -> None:
    assert prepared(Case("bn_stats"), classifier("cct_2_3x2")) == "no batch norm"


def test_bare_batch_norm_is_that_of_the_batch() -> None:
    case = next(c for c in CASES if c.method == "bn_stats")
    network, x = classifier("resnet18", width=8), images(BATCH)
    assert case.floor is not None
    adapter = prepared(case, network)
    assert not isinstance(adapter, str)
    with torch.no_grad():
        logits = Bare(network, case.floor, images(0)).net(x)
    torch.testing.assert_close(adapter.adapt(x), logits)


def test_second_floors_take_the_median_of_every_channel_and_look_every_value_up() -> None:
    network, x = classifier("resnet18", width=8), images(BATCH)
    values: list[int] = []
    layers = dict(tta.norm_modules(network))
    with tta.on_output(layers, lambda _name, out: values.append(out.numel())), torch.no_grad():
        network(x)
    each_value = {case.method: case for case in CASES if case.floor and case.floor.each_value}
    assert not any(case.counts for case in each_value.values())
    for method, operation in (("medbn", "aten::median"), ("aqr", "aten::index_select")):
        case = each_value[method]
        assert case.floor is not None
        adapter = prepared(case, network)
        assert not isinstance(adapter, str), adapter
        for step in (Bare(network, case.floor, images(0)), adapter.adapt):
            step(x)  # AQR's floor finds the places the first time
            with torch.profiler.profile(record_shapes=True) as profile:
                step(x)
            shapes = [event.input_shapes for event in profile.events() if event.name == operation]
            of_values = [shape[2 if method == "aqr" else 0] for shape in shapes]
            assert sum(map(math.prod, of_values)) >= sum(values), (method, of_values)


def test_an_epoch_is_the_difference_to_twice_as_many() -> None:
    case = next(case for case in CASES if case.method == "quantile" and not case.once)
    network = classifier("resnet18", width=8)
    adapter = prepared(case, network)
    assert not isinstance(adapter, str)
    result = speed(case, adapter, network, images(BATCH), lambda works: [(5.0, 2.0, 8.0)])
    assert result.ratio == 1.5
    assert result.adapter == case.epochs * BATCH / 3
    assert result.floor == case.epochs * BATCH / 2
