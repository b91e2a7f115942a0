"""COME, CMF, RDumb and POEM against recorded outputs of their official implementations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from replay import Folder, judge
from replay.each_commit import BEGINNINGS, WHOLE, beginnings, first_of_each, methods, whole
from replay.registry import REPLAYS
from replay.verdict import departs

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden-field"
METHODS = ("come_", "cmf", "rdumb", "poem")
NAMES = sorted(file.stem for file in (GOLDEN / "traces").glob("*.npz") if file.stem.startswith(METHODS))


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden traces in ../shared/golden-field are not there")
def test_the_traces_are_there() -> None:
    assert len(NAMES) >= 17
    assert methods(NAMES) <= methods([*WHOLE, *BEGINNINGS])  # each is replayed at each commit


@pytest.fixture(scope="module")
def field() -> Folder:
    return Folder(GOLDEN)


@pytest.mark.parametrize("name", whole(NAMES))
def test_parity(field: Folder, name: str) -> None:
    verdict = judge(field.trace(name), float32=False)
    assert verdict.status == "ok", str(verdict)
    assert verdict.norms < 1e-6, str(verdict)
    assert not verdict.decisions


@pytest.mark.parametrize("name", beginnings(NAMES))
def test_the_beginning_is_the_traces(field: Folder, name: str) -> None:
    trace = field.trace(name)
    trace.idx = trace.idx[: BEGINNINGS[name]]
    assert not departs(trace)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    first_of_each([
        ("come_tent-bn_cnn-B", "K", 11), ("come_tent-bn_cnn-B", "steps", 1),
        ("come_eata-bn_cnn-A", "e_margin", 0.05), ("come_eata-bn_cnn-A", "fisher_alpha", None),
        ("come_sar-bn_cnn-B", "margin_e0", 0.9), ("come_sar-gn_cnn-A", "reset_threshold", 0.09),
        ("cmf-bn_cnn-B", "alpha", 0.95), ("cmf-bn_cnn-B", "q", 7.0), ("cmf-bn_cnn-B", "momentum_probs", 0.8),
        ("rdumb-bn_cnn-A", "reset_every", 4), ("rdumb-bn_cnn-A", "d_margin", 0.35),
        ("poem-gn_cnn-B", "gamma", 0.4), ("poem-gn_cnn-B", "eps_clip", 0.5), ("poem-gn_cnn-B", "temp", 1.0),
        ("poem-gn_cnn-A", "e0", 1.1), ("poem-gn_cnn-A", "delayed_start", 40),
    ]),
)  # fmt: skip
@pytest.mark.skipif(not NAMES, reason="the golden traces in ../shared/golden-field are not there")
def test_every_setting_is_read(field: Folder, name: str, key: str, value: Any) -> None:
    """A trace replayed with another setting fails: none is taken for granted."""
    trace = field.trace(name)
    assert trace.meta[key] != value
    trace.meta[key] = value
    assert departs(trace)


@pytest.mark.skipif(not NAMES, reason="the golden traces in ../shared/golden-field are not there")
def test_an_episodic_trace_starts_each_batch_at_the_source(field: Folder) -> None:
    """COME's host is restored with its optimiser: the last batch gives the logits it gives alone."""
    trace = field.trace("come_tent-bn_cnn-B")
    trace.meta["episodic"] = True
    trace.meta["batch_size"] = 30
    replay = REPLAYS["come_tent"].replay
    trace.idx = trace.idx[:90]
    whole = replay(trace, torch.float64)
    trace.idx = trace.idx[60:]
    alone = replay(trace, torch.float64)
    assert torch.equal(whole.logits[-1], alone.logits[0])
    assert whole.norms[-1] == alone.norms[0]
