"""The package in docs/your-method.md is installed, conforms, and runs in a sweep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance.test_plugin_package import unpacked
from tests.unit.conftest import Run
from ttabench.store import load_frame

PAGE = Path(__file__).resolve().parents[2] / "docs" / "your-method.md"
LONGEST = 45  # lines that a complete method may take


def block(language: str) -> str:
    (result,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return str(result)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, target = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("installed")
    (source / "my_methods").mkdir()
    (source / "my_methods" / "__init__.py").touch()
    (source / "my_methods" / "pseudo_label.py").write_text(block("python"))
    (source / "pyproject.toml").write_text(block("toml"))
    return unpacked(source, target)


def test_the_method_is_short() -> None:
    assert len(block("python").splitlines()) <= LONGEST


@pytest.mark.usefixtures("seen", "short_memory_check")
def test_it_conforms(ttabench: Run) -> None:
    done = ttabench("conform", "pseudo_label")
    assert done.code == 0, done.out + done.err
    assert "FAIL" not in done.out
    assert "GN CNN n/a: no batch norm" in done.out


@pytest.mark.usefixtures("seen")
def test_it_runs_in_a_sweep(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    options = ("--corruptions", "fog", "--limit", "60", "--workers", "0", "--out", out)
    done = ttabench("sweep", "--methods", "pseudo_label", "--archs", "resnet18,cct", *options)
    assert done.code == 0, done.err
    cells = load_frame(out).set_index(["method", "arch"])
    assert cells.loc[("pseudo_label", "resnet18"), "status"] == "ok"
    assert cells.loc[("pseudo_label", "cct"), "status"] == "n/a"
    assert cells.loc[("pseudo_label", "cct"), "reason"] == "no batch norm"
