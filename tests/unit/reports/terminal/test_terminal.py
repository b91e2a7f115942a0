"""The terminal's tables fit, lose no digit silently, and need no colour."""

from __future__ import annotations

import io
import re
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.cases import each
from tests.unit.made_cells import cells, spoil, where
from ttabench.cell.protocol import Protocol
from ttabench.corruptions.corruption_names import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttabench_reports.sheets import words as words_of_tables
from ttabench_reports.tables import build as tables
from ttabench_reports.terminal import accuracy_tables as terminal
from ttabench_reports.words import naming, protocols


def shown(frame: pd.DataFrame, width: int) -> str:
    console = Console(width=width, force_terminal=False, file=io.StringIO())
    with console.capture() as capture:
        console.print(terminal.render(frame))
    return capture.get()


@pytest.fixture(scope="module")
def troubled() -> pd.DataFrame:
    frame = cells(("source", "tent", "tent[norms=all,lr=0.0005]", "quantile"), seeds=(0, 1))
    frame = spoil(frame, "n/a", "no batch norm", arch="cct", method="tent")
    return spoil(frame, "failed", "the logits hold NaN", arch="cct", method="quantile", corruption="fog")


@pytest.fixture(scope="module")
def means(troubled: pd.DataFrame) -> list[str]:
    rows = [row for table in tables.tables(troubled) for row in table.rows if row.measured]
    return [naming.number(row.value("mean")) for row in rows if row.value("mean") == row.value("mean")]


@each("width", [40, 60, 80, 100, 120, 200])
def test_it_fits_and_cuts_nothing(troubled: pd.DataFrame, means: list[str], width: int) -> None:
    text = shown(troubled, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for column in (*CORRUPTIONS, "mean"):
        assert naming.short(column) in text
    assert means
    assert all(mean in text for mean in means)


def test_names_of_columns_are_no_markup() -> None:
    text = shown(cells(("source", "tent"), ("cct",), corruptions=("[/a]", "[bold]"), severities=(0,)), 200)
    assert "[/a" in text
    assert "[bo" in text


def test_one_column_wider_than_the_terminal_is_printed() -> None:
    frame = cells(("source", "tent[norms=all,lr=0.0005]"), ("cct",), corruptions=("natural",), severity=0)
    assert "tent" in shown(frame, 20).lower()


def test_the_best_number_is_bold_and_the_second_underlined() -> None:
    accuracy = {"source": 70.1, "tent": 78.3, "eata": 76.5, "sar": 74.2}
    frame = cells(tuple(accuracy), ("cct",), accuracy=lambda cell: accuracy[cell["method"]])
    console = Console(width=200, force_terminal=True, file=io.StringIO(), color_system="standard")
    segments = [s for s in console.render(terminal.render(frame)) if s.style is not None]
    bold = {s.text.strip() for s in segments if s.style.bold}  # type: ignore[union-attr]
    underlined = {s.text.strip() for s in segments if s.style.underline}  # type: ignore[union-attr]
    assert {text for text in bold if text in ("70.1", "78.3", "76.5", "74.2")} == {"78.3"}
    assert underlined - {""} == {"76.5"}


def test_accuracies_keep_their_decimal_at_120_columns() -> None:
    frame = cells()
    text = shown(frame, 120)
    for value in frame["accuracy"]:
        assert naming.number(value) in text


def test_each_number_stands_under_its_corruption() -> None:
    frame = cells(("source", "tent"), ("cct",))
    lines = [line.split() for line in shown(frame, 200).splitlines() if line.split()]
    heads = next(line for line in lines if line[0] == naming.short(CORRUPTIONS[0]))
    row = next(line for line in lines if line[0] == "TENT")
    tent = frame[where(frame, method="tent")].set_index("corruption")["accuracy"]
    expected = {naming.short(name): naming.number(value) for name, value in tent.items()}
    expected["mean"] = naming.number(tent.mean())
    assert dict(zip(heads, row[1:], strict=True)) == expected


def test_every_row_has_a_number_or_a_word_in_every_column(troubled: pd.DataFrame) -> None:
    text = shown(troubled, 200).replace("TENT [norms=all, lr=0.0005]", "TENT")
    lines = [line for line in text.splitlines() if re.match(r"^  ?(Source|TENT|Quantile)", line)]
    assert len(lines) == 8
    for line in lines:
        assert len(line.split()) == 1 + len(CORRUPTIONS) + 1, line


def test_reasons_and_marks_are_below_the_table(troubled: pd.DataFrame) -> None:
    text = shown(troubled, 120)
    for shown_as, reason in (
        (r"TENT(\w) +n/a +n/a", "n/a: no batch norm"),
        (r" fail(\w) ", "failed: the logits hold NaN"),
    ):
        mark = re.search(shown_as, text)
        assert mark is not None, shown_as
        assert f"\n{mark[1]} {reason}\n" in text
    assert "Quantile†" in text
    assert "† offline" in text
    assert "TENT [norms=all, lr=0.0005]" in text  # square brackets are no markup
    assert "online, batch size 200" in text


def test_no_escape_codes_without_a_terminal(troubled: pd.DataFrame) -> None:
    assert "\x1b" not in shown(troubled, 120)


def test_extra_corruptions_come_below() -> None:
    text = shown(cells(corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS)), 120)
    assert text.index(" jpg") < text.index("spe")
    assert max(map(len, text.splitlines())) <= 120


def test_many_tables_become_their_means() -> None:
    frame = cells(severities=(1, 2, 3, 4, 5), datasets=("digits-c", "cifar10-c"))
    frame = spoil(frame, "n/a", "no batch norm", arch="cct", method="tent")
    text = shown(frame, 100)
    assert "gau" not in text
    assert len(re.findall(r"(?:Source|TENT|Quantile)\S* +(?:\d|n/a)", text)) == 60
    mean = frame[where(frame, arch="cct", method="quantile", severity=3, dataset="digits-c")][
        "accuracy"
    ].mean()
    assert naming.number(mean) in text
    assert "n/a" in text


def test_a_spread_over_seeds_stands_where_the_caption_says_so_and_source_has_no_zeros() -> None:
    """A stream has one column, which is its mean; what no seed changes has no spread."""
    numbers = {("tent", 0): 80.0, ("tent", 1): 81.0}
    frame = cells(
        ("source", "tent"), ("cct",), corruptions=("recurring",), seeds=(0, 1), stream="recurring(2)",
        reset="continual", accuracy=lambda row: numbers.get((row["base"], row["seed"]), 70.0),
    )  # fmt: skip
    many = cells(("source", "tent"), seeds=(0, 1), corruptions=("fog",), severities=(1, 2, 3, 4, 5),
                 accuracy=lambda row: numbers.get((row["base"], row["seed"]), 70.0))  # fmt: skip
    for text in (shown(frame, 100), shown(pd.concat([many, many.assign(dataset="cifar10-c")]), 100)):
        assert re.search(r"TENT +80\.5 ?±0\.7", text)
        assert re.search(r"Source +70\.0", text)
        assert "±0.0" not in text


def test_every_footnote_below_a_long_stream_has_its_mark_in_the_table() -> None:
    """Tables of streams have no column of means, and so no footnote of one."""
    stream = {"stream": "recurring(2)", "reset": "continual", "corruptions": ("recurring",)}
    frame = cells(("source", "tent"), ("cct",), seeds=(0, 1, 2), **stream)
    text = shown(spoil(frame, "failed", "boom", method="tent", seed=1), 100)
    below = re.findall(r"^([ᵃ-ᶻ]) ", text, re.MULTILINE)
    assert below == re.findall(r"TENT(\S)", text)
    assert "seed 1 failed: boom" in text


def test_means_in_the_terminal_say_what_their_marks_mean_and_how_they_were_measured() -> None:
    frame = cells(
        ("source", "tent", "sar", "eata", "quantile"), ("resnet18", "cct"), seeds=(0, 1),
        corruptions=("fog", "snow"), severities=(1, 2, 3, 4, 5),
    )  # fmt: skip
    frame.loc[where(frame, method="tent", corruption="fog", severity=3), "alarm"] = "collapse: 2 classes"
    frame.loc[frame["method"] == "sar", "stale"] = True
    frame = frame[~where(frame, method="eata", corruption="fog", seed=1)]
    frame["versions"] = np.where(frame["method"] == "eata", "torch 2.1", "torch 2.2")
    text = " ".join(shown(frame, 400).split())
    assert re.search(r"TENT(\S) .*\1 alarm under 1 of 2 corruptions", text)
    assert re.search(r"EATA(\S) –.*\1 no mean: 1 of 2 corruptions in every seed", text)
    for said in (
        "SAR‡", "‡ stale: measured with other code", "Quantile†", "† offline: sees all unlabelled",
        "Mean ± standard deviation over 2 seeds.", "The mean is over 2 of the 15 corruptions: Snow, Fog.",
        "torch 2.1 or 2.2", "Protocol: online", "Offline, batch size 128: Quantile.",
        "Increase: points above Source.",
    ):  # fmt: skip
        assert said in text
    assert "table of protocols" not in text


def test_compute_ratios_that_differ_are_those_of_their_methods() -> None:
    both = [("TENT", Protocol(pace=1, pace_ratio=3.17)), ("CoTTA", Protocol(pace=1, pace_ratio=59.2))]
    text, _ = protocols.said([(who, asdict(protocol)) for who, protocol in both])
    assert text.endswith(", pace 1. Compute ratios: TENT 3.17, CoTTA 59.2")
    alone, _ = protocols.said([("TENT", asdict(both[0][1]))])
    assert alone.endswith(", pace 1 at compute ratio 3.17")


def test_a_caption_says_batch_sizes_once_and_leaves_to_headings_what_they_say() -> None:
    methods = ("source", "tent", "eata", "sar")
    usual = cells(methods, batch_size=64)
    paced = cells(methods, batch_size=64, order="dirichlet(0.1)", pace=1.0)
    frame = pd.concat([usual, paced])
    frame.loc[frame["base"] == "tent", "batch_size"] = 200
    frame["pace_ratio"] = np.where((frame["base"] == "tent") & (frame["pace"] > 0), 2.4, 1.0)
    made = tables.tables(frame)
    assert [table.difference for table in made] == ["", "dirichlet(0.1) order, pace 1"]
    assert words_of_tables.measured(made) == (
        "Protocol: online, batch size 64, iid order, reset per corruption, all images, unless a heading says "
        "otherwise; exceptions: table of protocols."
    )


@pytest.mark.parametrize(
    ("columns", "heads"),
    [
        (("00000-0", "00000-2", "00000-10", "00012-3"), ["0-0", "0-2", "0-10", "12-3"]),
        (("clipart", "clipped", "real"), ["clipa", "clipp", "real"]),
        (("real", "real_2", "real_10"), ["real", "real_2", "real_1"]),
        (("art", "photo", "sketch"), ["art", "pho", "ske"]),
    ],
)
def test_columns_that_are_no_corruptions_have_names_that_differ(
    columns: tuple[str, ...], heads: list[str]
) -> None:
    frame = cells(("source",), ("cct",), corruptions=columns[::-1], severity=0)
    words = shown(frame, 200).splitlines()[1].split()
    assert words == [*heads, "mean"]  # in natural order: parts of CCC are parts of one stream
    assert len({naming.title(column) for column in columns}) == len(columns)
