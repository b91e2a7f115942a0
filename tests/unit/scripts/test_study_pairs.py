"""The study of pairs: what it trains, what it measures, and that it goes on where it stopped."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import study_pairs

from tests.unit.figure.test_figures import Stripes, bench  # noqa: F401
from ttabench.figure.classifier_and_data import ClassifierAndData
from ttabench_methods.quantile import QuantilePaper

QUICK = {"epochs": "6", "minibatch": "30", "size": "small", "regulariser": "1"}


def test_matching_lowers_the_loss_and_pairs_lower_the_error(bench: ClassifierAndData) -> None:  # noqa: F811
    quick = replace(bench, settings={"quantile_paper": QUICK})
    none, matching, pairs = study_pairs.study(quick, QuantilePaper, 3)
    assert [row["training"] for row in (none, matching, pairs)] == [*study_pairs.TRAININGS]
    assert none["harm"] == 0 < matching["harm"]
    assert matching["loss"] < 0.5 * none["loss"]
    assert pairs["mse"] < 0.5 * none["mse"]
    assert pairs["mse"] < matching["mse"]
    for row in (matching, pairs):
        assert row["accuracy"] > none["accuracy"]
        assert row["harm"] == pytest.approx(none["clean"] - row["clean"])


def test_it_goes_on_where_it_stopped(
    bench: ClassifierAndData,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = SimpleNamespace(ready=True, load=lambda device: SimpleNamespace(classifier=bench.classifier))
    monkeypatch.setattr(study_pairs, "open_dataset", lambda name: Stripes())
    monkeypatch.setattr(study_pairs, "resolve_model", lambda *_, **__: model)
    asked: list[tuple[int, int]] = []

    def study(bench: ClassifierAndData, cls: type, severity: int) -> list[dict[str, object]]:
        asked.append((bench.seed, severity))
        assert bench.settings == {"quantile_paper": {"epochs": "1"}}
        return [{"training": "none", "accuracy": 50.0}]

    monkeypatch.setattr(study_pairs, "study", study)
    for seeds in ("0", "0,1"):
        line = ["study_pairs.py", tmp_path, "--dataset", "stripes", "--arch", "mlp", "--seeds", seeds]
        line += ["--set", "epochs=1", "--corruptions", "fog", "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", [*map(str, line)])
        study_pairs.main()
    assert asked == [(0, 5), (1, 5)]
    assert pd.read_csv(tmp_path / "pairs.csv")["seed"].tolist() == [0, 1]
