"""The weights of a release: those that cells name, and no others."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
import release_weights

from tests.unit.conftest import Run
from ttabench.store import load_frame


@pytest.fixture
def results(swept: Path, weights_in_cache: Path, tmp_path: Path) -> Path:
    """A folder of results folders."""
    (tmp_path / "all").mkdir()
    swept.rename(tmp_path / "all" / "one")
    return tmp_path / "all"


def release(monkeypatch: pytest.MonkeyPatch, results: Path, out: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["release_weights.py", str(out), "--results", str(results)])
    return release_weights.main()


def test_weights_are_copied_with_recipe_card_and_sums(
    results: Path, weights_in_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "release"
    assert release(monkeypatch, results, out) == 0
    assert sorted(file.suffix for file in out.iterdir()) == ["", ".json", ".md", ".safetensors"]
    (checkpoint,) = set(load_frame(results / "one")["checkpoint"])
    described = json.loads(next(out.glob("*.json")).read_text())
    assert described["sha256"] == checkpoint
    weights = out / described["weights"]
    assert weights.read_bytes() == (weights_in_cache / weights.name).read_bytes()
    for line in (out / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest


def test_trained_weights_that_are_brought_too_are_copied(
    results: Path, ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, results, tmp_path / "first")
    file = next((tmp_path / "first").glob("*.safetensors"))
    sweep = ("--methods", "source", "--archs", "resnet18", "--corruptions", "fog", "--limit", "20")
    again = ("--checkpoint", file, "--workers", "0", "--out", tmp_path / "brought" / "one")
    assert ttabench("sweep", *sweep, *again).code == 0
    assert release(monkeypatch, tmp_path / "brought", tmp_path / "second") == 0
    assert (tmp_path / "second" / file.name).read_bytes() == file.read_bytes()


def test_weights_that_are_gone_are_named(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "empty"))
    assert release(monkeypatch, results, tmp_path / "release") == 1
    assert "resnet18 on digits-c: the weights" in capsys.readouterr().out


def test_brought_weights_are_left_out(
    results: Path, ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, results, tmp_path / "first")
    file = next((tmp_path / "first").glob("*.safetensors"))
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "another"))
    sweep = ("--methods", "source", "--archs", "resnet18", "--corruptions", "fog", "--limit", "20")
    brought = ttabench(
        "sweep", *sweep, "--checkpoint", file, "--workers", "0", "--out", tmp_path / "brought" / "one"
    )
    assert brought.code == 0, brought.err
    assert release(monkeypatch, tmp_path / "brought", tmp_path / "second") == 0
    assert [each.name for each in (tmp_path / "second").iterdir()] == ["SHA256SUMS"]
