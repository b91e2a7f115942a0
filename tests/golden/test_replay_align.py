"""Feature-alignment methods against recorded outputs of the official implementations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from replay import Folder, judge
from replay.each_commit import BEGINNINGS, WHOLE, beginnings, first_of_each, methods, whole
from replay.verdict import departs

FIELD = Path(__file__).resolve().parents[3] / "shared" / "golden-field"
METHODS = ("actmad", "actmad_vit", "lineartca", "neo", "ttac")
NAMES = sorted(f.stem for f in (FIELD / "traces").glob("*.npz") if f.stem.split("-")[0] in METHODS)


@pytest.fixture(scope="module")
def field() -> Folder:
    return Folder(FIELD)


@pytest.mark.skipif(not NAMES, reason="the golden traces in ../shared/golden-field are not there")
def test_every_method_has_a_trace() -> None:
    assert methods(NAMES) == set(METHODS)
    assert methods(NAMES) <= methods([*WHOLE, *BEGINNINGS])  # and one that is replayed at each commit


@pytest.mark.parametrize("name", whole(NAMES))
def test_parity(field: Folder, name: str) -> None:
    verdict = judge(field.trace(name), float32=False)
    assert verdict.status == "ok", str(verdict)
    assert not verdict.norms > 1e-6, str(verdict)  # NaN where a trace has no parameters
    assert not verdict.decisions


@pytest.mark.parametrize("name", beginnings(NAMES))
def test_the_beginning_is_the_traces(field: Folder, name: str) -> None:
    trace = field.trace(name)
    trace.idx = trace.idx[: BEGINNINGS[name]]
    assert not departs(trace)


CHANGES: dict[str, dict[str, Any]] = {
    "neo-bn_cnn-A": {"form": "continual"},
    "neo-bn_cnn-B": {"alpha": 0.2, "batch_size": 40},
    "actmad-bn_cnn-B": {
        "lr": 0.001, "momentum": 0.8, "nesterov": False, "weight_decay": 0.01, "source_batch_size": 64,
        "optimizer": "Adam",
    },
    "actmad_vit-ln_vit-A": {"lr": 0.01, "momentum": 0.8, "lambda": 20.0, "optimizer": "Adam"},
    "ttac-ln_vit-B": {
        "lr": 0.001, "momentum": 0.8, "pro_threshold": 0.7, "class_length": 20, "global_length": 200,
        "class_min": 20, "loss_scale": 0.1, "bias_divisor": 20.0,
        "optimizer": "Adam",
    },
    "lineartca-bn_cnn-A": {"lr": 0.01, "steps": 10, "filter_K": 10, "proportion": "equal", "beta1": 0.5},
}  # fmt: skip


@pytest.mark.skipif(not NAMES, reason="the golden traces in ../shared/golden-field are not there")
@pytest.mark.parametrize(
    ("name", "key", "value"),
    first_of_each((name, *item) for name, keys in CHANGES.items() for item in keys.items()),
)
def test_every_setting_is_read(field: Folder, name: str, key: str, value: Any) -> None:
    trace = field.trace(name)
    assert trace.meta.get(key) != value
    trace.meta[key] = value
    assert departs(trace)
