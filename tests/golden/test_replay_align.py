"""Feature-alignment methods against recorded outputs of the official implementations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from replay import Folder, judge

FIELD = Path(__file__).resolve().parents[3] / "shared" / "golden-field"
METHODS = ("actmad", "actmad_vit", "lineartca", "neo", "ttac")
NAMES = sorted(f.stem for f in (FIELD / "traces").glob("*.npz") if f.stem.split("-")[0] in METHODS)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def field() -> Folder:
    return Folder(FIELD)


@pytest.mark.skipif(not NAMES, reason="the golden traces in ../shared/golden-field are not there")
def test_every_method_has_a_trace() -> None:
    assert {name.split("-")[0] for name in NAMES} == set(METHODS)


@pytest.mark.parametrize("name", NAMES)
def test_parity(field: Folder, name: str) -> None:
    verdict = judge(field.trace(name), float32=False)
    assert verdict.status == "ok", str(verdict)
    assert not verdict.norms > 1e-6, str(verdict)  # NaN where a trace has no parameters
    assert not verdict.decisions
