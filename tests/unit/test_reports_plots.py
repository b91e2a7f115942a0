"""The pictures are complete, legible, and the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps, colors
from matplotlib.container import BarContainer

from tests.unit.made_cells import cells, spoil
from ttabench_reports import naming, plots, tables

CORRUPTIONS = ("snow", "frost", "fog")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    frame = spoil(
        cells(corruptions=CORRUPTIONS, seeds=(0, 1)), "n/a", "no batch norm", arch="cct", method="tent"
    )
    return spoil(frame, "failed", "the logits hold NaN", arch="cct", method="quantile", corruption="fog")


def test_same_cells_same_bytes_whatever_the_users_style(frame: pd.DataFrame, tmp_path: Path) -> None:
    first = plots.write(frame, tmp_path / "a")
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "black", "savefig.dpi": 30}):
        second = plots.write(frame.sample(frac=1, random_state=0), tmp_path / "b")
    assert [p.name for p in first] == [p.name for p in second]
    assert {p.suffix for p in first} == {".png", ".pdf"}
    assert {p.name.split("_")[0] for p in first} == {"heatmap", "bars"}
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
        assert b"CreationDate" not in one.read_bytes()
    assert mpl.rcParams["font.size"] == mpl.rcParamsDefault["font.size"]


def test_the_heat_map_says_every_number_or_why_not(frame: pd.DataFrame) -> None:
    (table,) = tables.tables(frame)
    figure = plots.heatmap(table)
    texts = [text.get_text() for text in figure.axes[0].texts]
    for row in table.rows:
        if row.measured:
            for column in table.columns:
                value = row.value(column)
                assert np.isnan(value) or any(t.startswith(naming.number(value)) for t in texts)
    assert sum(t.startswith("n/a") for t in texts) == len(CORRUPTIONS) + 1
    assert sum(t.startswith("fail") for t in texts) == 1
    assert {naming.title(c) for c in CORRUPTIONS} <= set(texts)
    assert any("online, batch size 200" in t.replace("\n", " ") and "no batch norm" in t for t in texts)


def test_bars_are_the_means_with_their_spread_over_seeds(frame: pd.DataFrame) -> None:
    (table,) = tables.tables(frame)
    axes = plots.bars(table).axes[0]
    heights = [bar.get_height() for c in axes.containers if isinstance(c, BarContainer) for bar in c]
    expected = [row.value("mean") for row in table.rows if row.measured]
    np.testing.assert_allclose(heights, [v for v in expected if not np.isnan(v)])
    spreads = [c for c in axes.containers if not isinstance(c, BarContainer)]
    assert len(spreads) == len(heights)
    assert sum(t.get_text() == "n/a" for t in axes.texts) == 1
    assert axes.get_ylim()[0] == 0  # a bar that does not start at zero lies


def test_no_whiskers_for_a_single_seed() -> None:
    (table,) = tables.tables(cells())
    axes = plots.bars(table).axes[0]
    assert all(isinstance(container, BarContainer) for container in axes.containers)


def test_ink_reads_on_every_shade() -> None:
    def luminance(colour: object) -> float:
        c = np.array(colors.to_rgb(colour))
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for shade in np.linspace(0, 1, 101):
        face = colormaps["Blues"](shade)
        light, dark = sorted((luminance(face), luminance(plots._contrast(face))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3.9  # WCAG asks 3 of large text, 4.5 of small


def test_every_method_looks_different() -> None:
    looks = [plots._look(i) for i in range(-1, 28)]
    assert len(set(looks)) == len(looks)


def test_tables_of_one_title_do_not_overwrite_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "save", lambda figure, path: path)
    frame = cells(("source",), ("cct",), datasets=("a/b", "a b"), corruptions=("fog",))
    paths = plots.write(frame, tmp_path)
    assert len(set(paths)) == len(paths) == 8
