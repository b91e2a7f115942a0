"""COME, CMF, RDumb and POEM against recorded outputs of their official implementations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from replay import Folder, judge

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden-field"
METHODS = ("come_", "cmf", "rdumb", "poem")
NAMES = sorted(file.stem for file in (GOLDEN / "traces").glob("*.npz") if file.stem.startswith(METHODS))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden traces in ../shared/golden-field are not there")
def test_the_traces_are_there() -> None:
    assert len(NAMES) >= 17


@pytest.mark.parametrize("name", NAMES)
def test_parity(name: str) -> None:
    verdict = judge(Folder(GOLDEN).trace(name), float32=False)
    assert verdict.status == "ok", str(verdict)
    assert verdict.norms < 1e-6, str(verdict)
    assert not verdict.decisions
