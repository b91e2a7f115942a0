"""docs/notebook.ipynb runs from top to bottom, and shows what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebook.ipynb"


@pytest.mark.slow
def test_it_runs_and_adaptation_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")  # no number grows old
    names: dict[str, Any] = {}
    shown: list[list[str]] = []
    monkeypatch.setattr(
        plt, "show", lambda: shown.append([t.get_text() for t in plt.gca().get_xticklabels()])
    )
    with torch.random.fork_rng():
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    plt.close("all")
    table = names["table"]
    assert table.shape == (3, 5)
    assert table.loc["tent", "mean"] > table.loc["source", "mean"] + 5
    assert table.loc["bn_stats", "mean"] > table.loc["source", "mean"] + 5
    assert shown == [["contrast", "fog", "gaussian_noise", "pixelate"]]
