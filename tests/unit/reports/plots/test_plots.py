"""The plots are complete, legible at the width of a column, and the same bytes each time."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps, colors
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.cases import each
from tests.unit.made_cells import cells, continual, spoil, where, with_correctness
from tests.unit.tex import compiled
from ttabench.corruptions.corruption_names import CORRUPTIONS as FIFTEEN
from ttabench.corruptions.corruption_names import EXTRA_CORRUPTIONS
from ttabench.errors import UserError
from ttabench.observe.calibration import calibration_bins
from ttabench.store.columns import UNKNOWN
from ttabench_reports import ablation, plots
from ttabench_reports.cells.calibration import packed
from ttabench_reports.evidence.intervals_and_tests import findings
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import latex
from ttabench_reports.plots import costs, labels, style
from ttabench_reports.plots.numbers import Numbers
from ttabench_reports.plots.plot import Drawing
from ttabench_reports.plots.which import looks
from ttabench_reports.sheets.means import severities, summary
from ttabench_reports.tables import families
from ttabench_reports.tables.table import LEGEND, OFFLINE, STALE, Row
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

CORRUPTIONS = ("snow", "frost", "fog")
FEW = ("source", "tent", "eata", "quantile")
MANY = ("source", "bn_stats", "tent", "eata", "eta", "sar", "cotta", "rotta", "sotta", "medbn", "lame", "t3a",
        "deyo", "memo", "roid", "shot", "foa", "note", "actmad", "actmad_vit", "aqr", "cmf", "come", "coral",
        "neo", "poem", "rdumb", "tca", "ttac", "tent[norms=all,lr=0.0005]", "quantile")  # fmt: skip


def measured(methods: tuple[str, ...]) -> pd.DataFrame:
    """A sweep at three severities, a continual one and a long stream, with everything that cells store."""
    better = {method: 0.12 * (k % 9) - 0.3 for k, method in enumerate(methods)} | {"source": -0.4}
    frame = cells(methods, datasets=("cifar10-c",), corruptions=FIFTEEN, severities=(1, 3, 5))
    frame = with_correctness(frame, 60, better)
    draw = np.random.default_rng(0)

    def bins(row: object) -> bytes:
        confidence = draw.beta(3, 1, 60).astype(np.float32)
        return packed(calibration_bins(confidence, draw.random(60) < confidence))

    frame["calibration"] = [bins(row) for row in frame.itertuples()]
    frame["seconds"] = frame["method"].map({method: 1.0 + (7 * k) % 11 for k, method in enumerate(methods)})
    of_chain = continual(frame[frame["severity"] == 5].assign(dataset="cifar100-c"), FIFTEEN)
    stream = frame[(frame["severity"] == 5) & (frame["corruption"] == "fog")]
    none = [b""] * len(stream)
    stream = stream.assign(corruption="recurring", dataset="imagenet-c", correct=none, calibration=none)
    stream["details"] = [
        {"windows": {"length": 500, "accuracy": draw.normal(70, 5, 100).tolist()}} for _ in range(len(stream))
    ]
    frame = frame.assign(foreign_images=60.0)  # as in a contaminated stream
    frame = frame.assign(**{name: draw.uniform(40, 90, len(frame)) for name in UNKNOWN})
    both = pd.concat([frame, of_chain, stream], ignore_index=True)
    return both.assign(cell_id=[f"{k:064x}" for k in range(len(both))])


@pytest.fixture(scope="module")
def few() -> Report:
    return Report(measured(FEW))


@pytest.fixture(scope="module")
def many() -> Report:
    return Report(measured(MANY))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """A small sweep with trouble."""
    frame = spoil(
        cells(corruptions=CORRUPTIONS, seeds=(0, 1)), "n/a", "no batch norm", arch="cct", method="tent"
    )
    frame = spoil(frame, "failed", "the logits hold NaN", arch="cct", method="quantile", corruption="fog")
    frame.loc[where(frame, arch="resnet18", method="tent", corruption="snow"), "alarm"] = "collapse"
    return frame


@cache
def drawn(report: Report, kind: str) -> list[Drawing]:
    return list(plots.drawings(report, (kind,)))


def texts(figure: Figure) -> list[str]:
    numbers = [number.text for artist in figure.findobj(Numbers) for number in artist.numbers]
    return [text.get_text() for text in figure.findobj(Text)] + numbers


# ---- files


def test_same_cells_same_bytes_whatever_the_users_style(frame: pd.DataFrame, tmp_path: Path) -> None:
    first = plots.write(frame, tmp_path / "a")
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "black", "savefig.dpi": 30}):
        second = plots.write(frame.sample(frac=1, random_state=0), tmp_path / "b")
    assert [p.name for p in first] == [p.name for p in second]
    assert {p.suffix for p in first} == {".png", ".pdf", ".tex"}
    assert {p.name.split("_")[0] for p in first} == {"heatmap", "bars", "cost", "plots.tex"}
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
        assert b"CreationDate" not in one.read_bytes()
    assert mpl.rcParams["font.size"] == mpl.rcParamsDefault["font.size"]


def test_every_kind_is_drawn_where_its_numbers_are_stored(few: Report) -> None:
    made = list(plots.drawings(few))
    assert {drawing.kind for drawing in made} == set(plots.DRAWN)
    assert all(plots.render(drawing, "svg").startswith(b"<?xml") for drawing in made)
    assert all(drawing.title and "Protocol: " in drawing.caption for drawing in made)


def test_files_are_called_after_what_they_show(
    few: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "drawings", partial(plots.drawings, kinds=("severity",)))
    names = [path.name for path in plots.write(few.cells, tmp_path, report=few)]
    assert names == ["severity_cifar10-c.png", "severity_cifar10-c.pdf", "plots.tex"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        plots.write(few.cells, tmp_path / "file", report=few)


def test_tables_of_one_title_do_not_overwrite_each_other(tmp_path: Path) -> None:
    frame = cells(("source",), ("cct",), datasets=("a/b", "a b"), corruptions=("fog",))
    paths = plots.write(frame, tmp_path)
    assert len(set(paths)) == len(paths) == 5  # bars of two tables, and the document


def test_streams_of_nineteen_corruptions_have_files_of_their_own(tmp_path: Path) -> None:
    """Their names would be longer than a file system takes."""
    names = "+".join((*FIFTEEN, *EXTRA_CORRUPTIONS))
    windows = {"windows": {"length": 100, "accuracy": [50.0, 60.0]}}
    streams = [
        cells(
            ("source", "tent[lr=0.1]", "tent[lr=0.2]"), ("cct",), corruptions=("recurring",),
            stream=f"recurring({rounds},corruptions={names})", reset="continual",
        )
        for rounds in (2, 3)
    ]  # fmt: skip
    frame = pd.concat(streams, ignore_index=True)
    frame["details"] = [windows] * len(frame)
    frame["config"] = '{"lr": ' + frame["method"].str.extract(r"=([\d.]+)")[0].fillna("1") + "}"
    paths = plots.write(frame, tmp_path) + latex.write(frame, tmp_path) + ablation.write(frame, tmp_path)
    assert len(set(paths)) == len(paths)
    for kind in ("per_corruption", "stability", "bars", "stream"):
        found = [path.stem for path in paths if path.name.startswith(f"{kind}_digits-c")]
        assert len({stem.removesuffix("_column") for stem in found}) == 2, kind
    assert len(list(tmp_path.glob("ablation_tent-cct*_crossed.csv"))) == 2


def test_fonts_are_embedded_as_outlines_and_not_as_type_3(frame: pd.DataFrame, tmp_path: Path) -> None:
    if shutil.which("pdffonts") is None:
        pytest.skip("pdffonts is not installed")
    for path in plots.write(frame, tmp_path):
        if path.suffix != ".pdf":
            continue
        listed = subprocess.run(["pdffonts", path], capture_output=True, text=True, check=True)
        fonts = listed.stdout.splitlines()[2:]
        assert fonts
        assert all("TrueType" in font and re.search(r"yes\s+yes\s+yes", font) for font in fonts)


# ---- on paper


def outside(figure: Figure) -> Iterator[str]:
    """Texts and axes with their ticks that are cut off at the edge of the figure."""
    with style.plot_style():
        figure.draw_without_rendering()
    width, height = figure.bbox.size
    axles = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    ticks = {id(text) for axis in axles for text in axis.findobj(Text)}
    texts = [text for text in figure.findobj(Text) if text.get_text() and id(text) not in ticks]
    for part in (*texts, *axles):
        box = part.get_tightbbox()
        if box and (box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1):
            yield f"{part} at {box}"


# With many methods and networks there is the least space; few of them are drawn by the same code.
@pytest.mark.parametrize("kind", list(plots.DRAWN))
@pytest.mark.parametrize("which", [pytest.param("few", marks=pytest.mark.slow), "many"])
def test_plots_are_a_column_wide_and_nothing_is_cut_off(
    kind: str, which: str, request: pytest.FixtureRequest
) -> None:
    made = drawn(request.getfixturevalue(which), kind)
    assert made
    for drawing in made:
        width, height = drawing.figure.get_size_inches()
        assert width == style.WIDTH
        assert height <= style.TALLEST + 0.01
        assert list(outside(drawing.figure)) == [], drawing.about
        assert all(text.get_size() >= 4.5 for text in drawing.figure.findobj(Text) if text.get_text())


@each("kind", list(plots.DRAWN))
def test_a_long_difference_between_tables_is_not_cut_off(
    kind: str, few: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report(few.cells[few.cells["corruption"].isin(["fog", "snow", "recurring"])])
    long = "dirichlet(0.1) order, per corruption, no long stream, 20 % of each class"
    report.tables = [replace(table, difference=long) for table in report.tables]
    monkeypatch.setattr(families, "unusual", lambda keys, *_: [long] * len(keys))
    for drawing in drawn(report, kind):
        assert list(outside(drawing.figure)) == [], drawing.about
        assert long in drawing.caption + drawing.title


def test_a_long_name_of_a_dataset_is_not_cut_off() -> None:
    frame = cells(datasets=("photographs-of-products-in-warehouses-at-night",), corruptions=CORRUPTIONS)
    for kind in ("bars", "ranks"):
        for drawing in drawn(Report(frame), kind):
            assert list(outside(drawing.figure)) == [], drawing.about


def test_accuracies_at_a_cost_that_hardly_differ_have_short_numbers_beside_them() -> None:
    frame = cells(
        FEW, ("cct",), corruptions=("fog",), accuracy=lambda row: 77.98 + 0.01 * FEW.index(row["base"])
    )
    (drawing,) = drawn(Report(frame), "cost")
    (axes,) = drawing.figure.axes
    assert list(outside(drawing.figure)) == []
    low, high = axes.get_ylim()
    assert high - low >= costs.LEAST_RANGE
    assert all(len(text.get_text()) <= len("100.2") for text in axes.get_yticklabels())


def test_names_are_those_of_papers(many: Report) -> None:
    for kind in plots.DRAWN:
        for drawing in drawn(many, kind):
            output = " ".join([*texts(drawing.figure), drawing.title, drawing.caption])
            assert not re.search(r"bn_stats|actmad_vit|resnet18|\bcct\b|cifar10|quantile", output), kind


def test_the_heat_map_has_each_number_in_its_row_and_column(few: Report) -> None:
    (drawing, *_), (table, *_) = drawn(few, "heatmap"), few.tables
    heads = {round(a.xy[0], 6): a.get_text() for a in drawing.figure.axes[0].texts if a.get_rotation() == 90}
    lines: dict[float, dict[str, str]] = {}
    for artist in drawing.figure.findobj(Numbers):
        for number in artist.numbers:
            lines.setdefault(round(number.y, 6), {})[heads[round(number.x, 6)]] = number.text

    def text(row: Row, column: str) -> str:
        if np.isnan(value := row.value(column)):
            return row.words.get(column, "").replace("failed", "fail")
        return naming.number(value) if column == MEAN else f"{value:.0f}"

    rows = [row for row in table.rows if row.kind != "increase"]
    expected = [{naming.title(column): text(row, column) for column in table.columns} for row in rows]
    assert [lines[y] for y in sorted(lines)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("which", ["few", "many"])
def test_the_document_of_all_plots_compiles(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    report = request.getfixturevalue(which)
    plots.write(report.cells, tmp_path, report=report)
    assert "Protocol: " in compiled(tmp_path, "plots")


# ---- heat map


def test_the_heat_map_says_every_number_or_why_not(frame: pd.DataFrame) -> None:
    report = Report(frame)
    (drawing,) = drawn(report, "heatmap")
    output = texts(drawing.figure)
    for row in report.tables[0].rows:
        if row.measured:
            for column in CORRUPTIONS:
                value = row.value(column)
                assert np.isnan(value) or f"{value:.0f}" in output
            assert np.isnan(row.value(MEAN)) or naming.number(row.value(MEAN)) in output
    assert output.count("n/a") == len(CORRUPTIONS) + 1
    assert output.count("fail") == 1
    assert {naming.title(c) for c in CORRUPTIONS} <= set(output)
    assert "exceptions: table of protocols" in drawing.caption
    dots = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "."]
    assert [len(np.asarray(line.get_xdata())) for line in dots] == [2]  # the alarm, and the mean with it
    assert "A dot: an alarm" in drawing.caption


def test_ink_reads_on_every_shade() -> None:
    def luminance(colour: object) -> float:
        c = np.array(colors.to_rgb(colour))  # type: ignore[arg-type]
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for shade in np.linspace(0, 1, 101):
        face = colormaps["Blues"](shade)
        light, dark = sorted((luminance(face), luminance(style.ink_on(face))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3.9  # WCAG asks 3 of large text, 4.5 of small


# ---- bars


def test_bars_are_sorted_means_with_their_intervals(few: Report) -> None:
    drawing = drawn(few, "bars")[0]
    table = few.tables[2]
    assert table.heading in drawing.title
    assert table.key["severity"] == 5
    axes = drawing.figure.axes[0]
    dots = [
        (float(line.get_xdata()[0]), line.get_marker()) for line in axes.lines if len(line.get_xdata()) == 1
    ]
    expected = []
    for (
        rows
    ) in table.archs().values():  # Source and online methods, then offline ones in a panel of their own
        for offline in (False, True):
            of_mode = [row for row in rows if row.measured and _offline(row) == offline]
            expected += sorted((row.value(MEAN) for row in of_mode), reverse=True)
    np.testing.assert_allclose([value for value, _ in dots], expected)
    headings = {text.get_text() for text in axes.texts}
    assert {"ResNet18, online", "ResNet18, offline"} <= headings
    assert {marker for _, marker in dots} == {"s", "o", "D"}
    result = findings(table)
    ends = {tuple(np.round(line.get_xdata(), 6)) for line in axes.lines}
    for row in table.rows:
        if row.measured:
            assert tuple(np.round(result[id(row)].interval, 6)) in ends
    assert 0 <= axes.get_xlim()[0] <= min(start for start, _ in (end for end in ends if len(end) == 2))
    assert "The axis does not begin at 0." in drawing.caption
    assert "95\u00a0% intervals" in drawing.caption


def _offline(row: Row) -> bool:
    return row.offline and row.kind != "source"


def test_cost_plots_of_few_rows_name_all(few: Report) -> None:
    for drawing in drawn(few, "cost"):
        (table,) = (table for table in few.tables if table.title == drawing.about)
        for axes in drawing.figure.axes:
            names = sorted(text.get_text().rstrip("†") for text in axes.texts)
            rows = [row for row in table.rows if naming.arch(row.arch) == axes.get_title(loc="left")]
            assert names == sorted(row.plain_name.partition(" [")[0] for row in rows if row.measured)
        assert "are named" not in drawing.caption


def test_cost_plots_mark_what_is_stale(few: Report) -> None:
    frame = few.cells.assign(stale=few.cells["base"].isin(["tent", "quantile"]))
    for drawing in drawn(Report(frame), "cost"):
        for axes in drawing.figure.axes:
            names = {text.get_text() for text in axes.texts}
            assert {f"TENT{STALE}", f"Quantile{OFFLINE}{STALE}", "EATA"} <= names
        assert LEGEND[STALE] in drawing.caption


def test_cost_plots_name_the_front_of_each_mode_and_source_alone(
    few: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "ALL_NAMED", 3)
    ratios = {"source": 1.0, "tent": 3.0, "bn_stats": 1.2, "quantile": 20.0}
    frame = few.cells.assign(compute_ratio=[ratios.get(base, 2.0) for base in few.cells["base"]])
    report = Report(frame)
    for drawing in drawn(report, "cost"):
        assert "these and Source are named" in drawing.caption
        table = next(table for table in report.tables if table.title == drawing.about)
        for axes in drawing.figure.axes:
            rows = [
                row
                for row in table.rows
                if row.measured and naming.arch(row.arch) == axes.get_title(loc="left")
            ]
            named = {text.get_text() for text in axes.texts if text.get_text()}
            best = max((row for row in rows if not _offline(row)), key=lambda row: row.value(MEAN))
            assert best.name.partition(" [")[0] in {name.partition(" [")[0] for name in named}
            assert "Source" in named
            dearer = [
                row
                for row in rows
                if not _offline(row) and row.about["compute_ratio"] > best.about["compute_ratio"]
            ]
            assert not {row.plain_name for row in dearer} & named
            assert sum(name.endswith("†") for name in named) <= sum(map(_offline, rows))


def test_offline_bars_stand_beside_source_with_all_its_seeds() -> None:
    frame = cells(
        ("source", "tent", "quantile", "shot"), ("cct",), seeds=(0, 1), held_out=0.5,
        accuracy=lambda row: 50.0 + 10 * row["seed"] + 20 * (row["base"] == "quantile"),
    )  # fmt: skip
    frame.loc[frame["method"] == "shot", "mode"] = "offline"
    fewer = frame[(frame["method"] != "quantile") | (frame["seed"] == 0)]
    (drawing,) = drawn(Report(fewer), "bars")
    dotted = [line.get_xdata()[0] for line in drawing.figure.axes[0].lines if line.get_linestyle() == ":"]
    assert dotted == [55.0, 55.0]  # of the panels of online and of offline methods


def test_the_sources_of_several_weights_look_different() -> None:
    parts = [
        cells(("source", "tent"), ("cct",), severities=(3, 5), checkpoint=digest)
        for digest in ("1a2b3c4d5e", "9f8e7d6c5b")
    ]
    (drawing,) = drawn(Report(pd.concat(parts, ignore_index=True)), "severity")
    lines = drawing.figure.axes[0].lines
    styles = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines]
    assert len(set(styles)) == len(styles) == 4


def test_each_of_several_weights_has_panels_with_its_own_source() -> None:
    parts = [
        cells(("source", "tent", "sar"), ("cct",), checkpoint=digest, accuracy=lambda _, base=base: base)
        .assign(compute_ratio=ratio)
        for digest, base, ratio in (("1a2b3c4d5e", 60.0, 2.0), ("9f8e7d6c5b", 80.0, 1.5))
    ]  # fmt: skip
    report = Report(pd.concat(parts, ignore_index=True))
    headings = ["CCT, weights 1a2b3c4d", "CCT, weights 9f8e7d6c"]
    (bars,) = drawn(report, "bars")
    assert [text for text in texts(bars.figure) if text in headings] == headings
    dotted = [line.get_xdata()[0] for line in bars.figure.axes[0].lines if line.get_linestyle() == ":"]
    assert dotted == [60.0, 80.0]
    (cost,) = drawn(report, "cost")
    assert [axes.get_title(loc="left") for axes in cost.figure.axes] == headings


def test_bars_without_correctness_have_the_spread_over_seeds_or_nothing(frame: pd.DataFrame) -> None:
    assert "standard deviation over seeds" in drawn(Report(frame), "bars")[0].caption
    (single,) = drawn(Report(cells(corruptions=CORRUPTIONS)), "bars")
    assert "Whiskers" not in single.caption
    stored = with_correctness(cells(("source", "tent"), ("cct",), seeds=(0, 1)), 100)
    stored.loc[where(stored, method="tent"), "correct"] = b""
    (both,) = drawn(Report(stored), "bars")
    assert "Whiskers of rows without an interval: standard deviation over seeds." in both.caption


# ---- curves


def test_severity_curves_are_the_means_of_each_severity(few: Report) -> None:
    (drawing,) = drawn(few, "severity")
    family = few.tables[:3]
    for axes in drawing.figure.axes:
        (arch,) = {row.arch for row in family[0].rows if naming.arch(row.arch) == axes.get_title(loc="left")}
        curves = {tuple(np.round(np.asarray(line.get_ydata(), float), 6)) for line in axes.lines}
        for method in FEW:
            means = [
                row.value(MEAN)
                for table in family
                for row in table.rows
                if row.measured and row.arch == arch and row.method == method
            ]
            assert tuple(np.round(means, 6)) in curves


def test_a_method_without_one_of_the_severities_has_a_colour_after_those_with_all() -> None:
    frame = cells(("source", "tent", "sar"), ("cct",), corruptions=("fog", "snow"), severities=(1, 3, 5))
    gap = where(frame, method="tent") & (frame["severity"] == 3)
    (drawing,) = drawn(Report(frame[~gap]), "severity")
    (legend,) = drawing.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Source", "SAR", "TENT"]


def test_a_severity_with_another_protocol_too_stays_in_its_family() -> None:
    """Tables with protocols of their own at one severity, and none at the others."""
    methods, corruptions = ("source", "tent"), ("fog", "snow")
    swept = cells(methods, ("cct",), corruptions=corruptions, severities=(1, 3, 5))
    once = cells(methods, ("cct",), corruptions=corruptions, order="dirichlet(0.1)")
    report = Report(pd.concat([swept, once], ignore_index=True))
    (drawing,) = drawn(report, "severity")
    assert drawing.title == "Accuracy by severity: Digits-C"
    assert [len(line.get_xdata()) for line in drawing.figure.axes[0].lines] == [3, 3]
    (sheet,) = severities(report)
    assert [head.text for head in sheet.heads[3:]] == ["Severity 1", "Severity 3", "Severity 5"]
    assert "of Digits-C by severity" in sheet.caption
    for kind in ("bars", "cost"):
        assert [drawing.about for drawing in drawn(report, kind)] == [
            "digits-c, severity 5", "digits-c, severity 5 (dirichlet(0.1) order)"
        ]  # fmt: skip


def test_a_long_stream_by_severity_is_a_mean_over_images() -> None:
    frame = cells(
        ("source", "tent"), ("cct",), corruptions=("recurring",), severities=(3, 5),
        stream="recurring(2)", reset="continual",
    )  # fmt: skip
    report = Report(frame)
    (drawing,), (sheet,) = drawn(report, "severity"), severities(report)
    for caption in (drawing.caption, sheet.caption):
        assert caption.startswith("Mean accuracy (%) over the images of Digits-C, recurring stream")


def test_a_severity_with_fewer_corruptions_is_named_below_the_curves() -> None:
    parts = [
        cells(("source", "tent"), ("cct",), corruptions=corruptions, severities=(severity,))
        for severity, corruptions in ((3, ("fog", "snow")), (5, ("fog",)))
    ]
    (drawing,) = drawn(Report(pd.concat(parts, ignore_index=True)), "severity")
    assert "Digits-C, severity 3: The mean is over 2 of the 15 corruptions: Snow, Fog." in drawing.caption
    assert "Digits-C, severity 5: The mean is over 1 of the 15 corruptions: Fog." in drawing.caption


@pytest.mark.parametrize("names", [("fog", "snow", "frost"), ("rain", "dust", "glare")])
def test_as_many_other_corruptions_are_said_where_means_stand_beside_each_other(names: Sequence[str]) -> None:
    """Severities of three corruptions each, of which one differs; also for corruptions of a user."""
    parts = [
        cells(("source", "tent"), ("cct",), corruptions=(names[0], name), severities=(severity,))
        for severity, name in ((3, names[1]), (5, names[2]))
    ]
    report = Report(pd.concat(parts, ignore_index=True))
    (drawing,) = drawn(report, "severity")
    (sheet,) = severities(report)
    for text in (drawing.caption, sheet.footer, summary(report).footer):
        for severity, name in ((3, names[1]), (5, names[2])):
            said = re.search(rf"Digits-C, severity {severity}: The mean is over [^:]+: ([\w ,]+)\.", text)
            assert said, text
            assert {*said[1].split(", ")} == {naming.title(names[0]), naming.title(name)}


def test_families_of_other_severities_have_other_names() -> None:
    parts = [
        cells(("source", "tent"), ("cct",), corruptions=("fog",), severities=several, order=order)
        for several, order in (((1, 2), "iid"), ((3, 4), "dirichlet(0.1)"))
    ]
    report = Report(pd.concat(parts, ignore_index=True))
    titles = ["digits-c", "digits-c (dirichlet(0.1) order)"]
    assert [drawing.about for drawing in drawn(report, "severity")] == titles
    assert len({sheet.name for sheet in severities(report)}) == 2


def test_a_legend_over_panels_and_severities_has_the_flags_of_each() -> None:
    frame = cells(("source", "tent"), ("cct", "resnet18"), corruptions=("fog",), severities=(3, 5))
    tent = (frame["arch"] == "cct") & (frame["method"] == "tent")
    for stale in (tent, tent & (frame["severity"] == 3), tent & (frame["severity"] == 5)):
        (drawing,) = drawn(Report(frame.assign(stale=stale)), "severity")
        assert [axes.get_title(loc="left") for axes in drawing.figure.axes[:2]] == ["ResNet18", "CCT"]
        assert {f"TENT{STALE}", "Source"} <= set(texts(drawing.figure))
        assert LEGEND[STALE] in drawing.caption


def test_a_legend_says_offline_once() -> None:
    online = measured(("source", "tent"))
    offline = online[online["method"] == "tent"].assign(mode="offline")
    both = pd.concat([online, offline], ignore_index=True)
    report = Report(both.assign(cell_id=[f"{k:064x}" for k in range(len(both))]))
    drawings = drawn(report, "reliability")
    assert drawings
    for drawing in drawings:
        (legend,) = drawing.figure.legends
        assert {text.get_text() for text in legend.get_texts()} == {"Source", "TENT", f"TENT{OFFLINE}"}


def test_of_thirty_methods_six_are_in_colour_and_the_others_are_named(many: Report) -> None:
    (drawing,) = drawn(many, "severity")
    assert f"{len(MANY) - 7} other methods" in texts(drawing.figure)
    assert "Gray: " in drawing.caption
    assert "BNStats" in drawing.caption.partition("Gray: ")[2].partition(". ")[0]


def test_looks_go_to_the_best_methods_and_differ_in_more_than_colour(many: Report) -> None:
    rows = [row for row in many.tables[0].archs()["cct"] if row.measured]
    chosen = looks({"cct": rows}, lambda row: row.value(MEAN))
    best = sorted((row for row in rows if row.kind == "method"), key=lambda row: -row.value(MEAN))[:6]
    assert [row.method for row in rows if chosen.of(row)] == [
        row.method for row in rows if row.kind == "source" or row in best
    ]
    assert len({(look.dashes, look.marker) for look in chosen.by_name.values()}) == 7
    some = looks({"cct": rows}, lambda row: row.value(MEAN), lowest=2)
    worst = min((row for row in rows if row.kind == "method"), key=lambda row: row.value(MEAN))
    assert some.of(worst)
    assert not chosen.of(worst)


def test_a_method_is_one_curve_in_all_panels_and_those_in_all_panels_come_first() -> None:
    def panel(arch: str, values: dict[str, float]) -> list[Row]:
        return [
            Row(
                arch, label, "method", {MEAN: value},
                about={
                    "base": label.partition("[")[0].partition(" (")[0],
                    "mode": "offline" if "(offline)" in label else "online",
                },
            )
            for label, value in values.items()
        ]  # fmt: skip

    narrow = {f"only{k}": 90.0 + k for k in range(8)}  # higher, but on one network
    panels = {
        "cnn": panel("cnn", {**narrow, "tent": 80.0, "sar": 70.0}),
        "cct": panel("cct", {"tent[norms=all]": 60.0, "sar[lr=1]": 61.0}),
    }
    chosen = looks(panels, lambda row: row.value(MEAN))
    first = {row.about["base"]: chosen.of(row) for row in panels["cnn"]}
    other = {row.about["base"]: chosen.of(row) for row in panels["cct"]}
    assert first["tent"] == other["tent"] != None  # noqa: E711
    assert first["sar"] == other["sar"] != None  # noqa: E711
    assert [name for name, look in first.items() if look][:4] == ["only4", "only5", "only6", "only7"]
    several = {"cnn": panel("cnn", {"tent": 1.0, "tent[lr=1]": 2.0}), "cct": panel("cct", {"tent": 3.0})}
    ours = looks(several, lambda row: row.value(MEAN))
    assert ours.of(several["cnn"][0]) == ours.of(several["cct"][0]) != ours.of(several["cnn"][1])
    both = {
        "cnn": panel("cnn", {"tent": 2.0, "tent (offline)": 1.0}),
        "cct": panel("cct", {"tent[norms=all]": 2.0, "tent[norms=all] (offline)": 1.0}),
    }
    modes = looks(both, lambda row: row.value(MEAN))
    online, offline = ([modes.of(rows[k]) for rows in both.values()] for k in (0, 1))
    assert online[0] == online[1] != offline[0] == offline[1]


def test_the_heat_map_writes_a_hundred_within_its_cell(many: Report) -> None:
    full = many.cells.assign(accuracy=99.9, correct=b"")
    for drawing in drawn(Report(full), "heatmap"):
        axes = drawing.figure.axes[0]
        left, right = axes.get_xlim()
        cell = axes.get_position().width * style.WIDTH / (right - left)
        (numbers,) = [artist for artist in axes.get_children() if isinstance(artist, Numbers)]
        hundreds = [number for number in numbers.numbers if number.text == "100" and number.weight == "bold"]
        assert hundreds
        narrow = [number for number in hundreds if style.text_width("100", number.size, "bold") <= cell]
        means = len({number.y for number in hundreds})  # their column is wider
        assert len(narrow) >= len(hundreds) - means
        assert min(number.size for number in hundreds) >= 4


def test_a_continual_row_in_another_order_is_named_below_the_stream() -> None:
    frame = cells(("source", "tent", "eata"), ("cct",), corruptions=("fog", "snow"), reset="continual")
    frame["history"] = frame["corruption"].map({"fog": "", "snow": "fog-5"})
    frame.loc[where(frame, method="eata"), "history"] = ["snow-5", ""]
    (drawing,) = drawn(Report(frame), "stream")
    assert "so not drawn: TENT." in drawing.caption
    assert (
        "In another order of corruptions than the other rows, which changes numbers: TENT" in drawing.caption
    )
    assert len(drawing.figure.axes[0].lines) == 2


def test_a_continual_sweep_is_drawn_in_the_order_of_its_stream(few: Report) -> None:
    drawing = next(drawing for drawing in drawn(few, "stream") if "CIFAR100" in drawing.title)
    axes = drawing.figure.axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [naming.short(name) for name in FIFTEEN]
    table = next(table for table in few.tables if table.key["dataset"] == "cifar100-c")
    (row,) = [row for row in table.archs()["resnet18"] if row.measured and row.method == "tent"]
    expected = [row.value(corruption) for corruption in FIFTEEN]
    assert any(
        np.array_equal(line.get_ydata(), expected) for axes in drawing.figure.axes for line in axes.lines
    )


def test_a_curve_over_a_continual_sweep_has_one_order_of_corruptions() -> None:
    """That of the most methods: not the order of Source, and none of a row whose seeds differ in it."""
    one, other = ("fog", "snow", "frost"), ("frost", "fog", "snow")
    parts = [
        continual(cells((method,), ("cct",), seeds=(seed,)), order)
        for method, seed, order in (
            ("source", 0, one), ("tent", 0, one), ("tent", 1, other), ("sar", 0, other),
        )
    ]  # fmt: skip
    (drawing,) = drawn(Report(pd.concat(parts, ignore_index=True)), "stream")
    assert "not drawn: TENT." in drawing.caption
    (axes,) = drawing.figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == naming.shorts(other)
    assert len([line for line in axes.lines if len(line.get_xdata()) == 3]) == 2


def test_windows_of_a_long_stream_are_merged_without_changing_their_mean(few: Report) -> None:
    table = next(table for table in few.tables if table.key["dataset"] == "imagenet-c")
    row = next(row for row in table.rows if row.windows)
    whole = row.windows["recurring"]
    merged = whole.merged(25)
    assert merged.length == 2000
    np.testing.assert_allclose(merged.accuracy, whole.accuracy.reshape(25, 4).mean(axis=1))
    drawing = next(drawing for drawing in drawn(few, "stream") if "ImageNet" in drawing.title)
    assert "windows of 2,000 test images" in drawing.caption


# ---- cost


def test_cost_is_the_stored_ratio_where_every_row_has_it(few: Report) -> None:
    drawing = drawn(few, "cost")[0]
    assert "Seconds for a corruption" in texts(drawing.figure)
    assert "score them (median over the cells)" in drawing.caption
    ratio = few.cells.assign(compute_ratio=2.5)
    drawing = drawn(Report(ratio), "cost")[0]
    assert "Cost (1: Source's forward pass)" in texts(drawing.figure)
    assert "(median over the cells)" in drawing.caption
    ratio.loc[ratio["method"] == "tent", "compute_ratio"] = np.nan
    assert "Seconds for a corruption" in texts(drawn(Report(ratio), "cost")[0].figure)


def test_labels_neither_cover_each_other_nor_leave_the_plot() -> None:
    draw = np.random.default_rng(0)
    points = [(float(x), float(y)) for x, y in draw.uniform((0.2, 0.1), (2.7, 1.8), (30, 2))]
    boxes = labels.place(points, [naming.method(name) for name in MANY[:30]], 2.9, 1.9)
    for k, box in enumerate(boxes):
        assert box.left >= 0
        assert box.bottom >= 0
        assert box.right <= 2.9
        assert box.top <= 1.9
        assert sum(box.overlap(other) for other in boxes[:k]) < 1e-4  # square inches: texts have other widths


def test_labels_leave_a_line_free() -> None:
    points = [(0.5, 0.5), (2.0, 0.5)]
    line = labels.Box(0.5, 0.49, 2.0, 0.51)
    free = labels.place(points, ["TENT", "BNStats"], 2.9, 1.9, [line])
    assert any(box.overlap(line) for box in labels.place(points, ["TENT", "BNStats"], 2.9, 1.9))
    assert not any(box.overlap(line) for box in free)


def test_a_label_does_not_pass_for_that_of_the_point_beside() -> None:
    """As on digits-c: AQR and BNStats are equally good, and other methods as good stand to their right."""
    x = (0.40, 0.47, 0.64, 0.73, 0.66, 0.67, 0.68, 0.70, 0.74, 0.76, 0.80, 0.85)
    points = [*((each, 1.71) for each in x), (0.71, 1.63), (0.26, 1.07)]
    texts = ["AQR", "BNStats", "TENT", "SHOT", *[""] * 9, "NEO"]
    lines = [labels.Box(0.255, 1.062, 0.409, 1.078), labels.Box(0.393, 1.062, 0.409, 1.712)]
    lines += [labels.Box(0.393, 1.696, 0.733, 1.715)]
    aqr, bn_stats, *_ = labels.place(points, texts, 2.88, 1.9, lines)
    for box, own, other in ((aqr, points[0], points[1]), (bn_stats, points[1], points[0])):
        assert math.dist(own, box.nearest(own)) < math.dist(other, box.nearest(other))
    through = labels.Box(0.0, 1.6, 0.2, 1.68)  # a line from BNStats to here touches AQR's point
    free = labels.Box(0.5, 1.7, 0.7, 1.78)
    assert labels._mistaken(points[1], free, points[:2]) == 0
    assert labels._mistaken(points[1], through, points[:2]) > 1


# ---- ranks


def test_the_rank_diagram_has_the_mean_ranks_of_the_tests_and_says_that_it_is_descriptive(
    few: Report,
) -> None:
    drawing = drawn(few, "ranks")[0]
    assert "descriptive" in drawing.title
    assert "descriptive" in drawing.caption
    table = few.tables[2]
    shown = set(texts(drawing.figure))
    ranks = [findings(table)[id(row)].rank for row in table.rows if row.kind == "method"]
    assert sum(not np.isnan(rank) for rank in ranks) >= 4
    for row, rank in zip((row for row in table.rows if row.kind == "method"), ranks, strict=True):
        assert row.offline or f"{rank:.1f}" in shown  # of the offline ones there are too few


# ---- reliability


def test_the_reliability_diagram_shows_bins_and_their_errors(few: Report) -> None:
    drawing = drawn(few, "reliability")[0]
    table = few.tables[2]
    output = texts(drawing.figure)
    for row in table.rows:
        if row.measured:
            assert row.reliability is not None
            assert row.reliability.bins[0].sum() == 60 * len(FIFTEEN)
            assert f"{row.name} {row.reliability.error:.1f}" in output


@pytest.mark.parametrize(("above", "left"), [(True, False), (False, True)])
def test_calibration_errors_stand_where_no_curve_is(few: Report, above: bool, left: bool) -> None:
    frame = few.cells
    sums = [{"count": 10, "confidence": 10 * (k + 0.5) / 15} for k in range(15)]
    bins = packed({
        "count": [one["count"] for one in sums], "confidence": [one["confidence"] for one in sums],
        "correct": [min(10, one["confidence"] + 5) if above else 0.3 * one["confidence"] for one in sums],
    })  # fmt: skip
    odd = frame.assign(calibration=[bins] * len(frame))
    odd.attrs = {}
    for axes in drawn(Report(odd), "reliability")[0].figure.axes:
        numbers = [text for text in axes.texts if re.search(r" \d+\.\d$", text.get_text())]
        assert numbers
        assert all((text.get_position()[0] < 0.3) == left for text in numbers)


def test_cells_without_confidences_give_no_reliability(few: Report) -> None:
    cells = few.cells.copy()
    mask = where(cells, method="tent", arch="cct", corruption="fog", severity=5, dataset="cifar10-c")
    cells.loc[mask, "calibration"] = b""
    table = Report(cells).tables[2]
    lacking = [row for row in table.rows if row.measured and row.reliability is None]
    assert [(row.arch, row.method) for row in lacking] == [("cct", "tent")]
