"""The report format ``published``: our numbers beside published ones, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench_reports.cells.frames import PROTOCOL, ROW, TABLE, one_per_cell
from ttabench_reports.cells.frames import checked as checked_cells
from ttabench_reports.formats.csv_files import write_csv
from ttabench_reports.formats.files import write_text
from ttabench_reports.formats.latex import write_sheets
from ttabench_reports.published.audit import audit, checked
from ttabench_reports.published.beside import beside
from ttabench_reports.published.catalog import catalog
from ttabench_reports.sheets.sheet import Entry, Group, Head, Line, Sheet
from ttabench_reports.sheets.words import minus
from ttabench_reports.tables.table import LEGEND, STALE
from ttabench_reports.words import naming
from ttabench_reports.words.markdown_text import escape, table_row

if TYPE_CHECKING:
    from rich.console import RenderableType

KEY = (*TABLE, *ROW)
SHOWN = ("dataset", "severity", "arch", "method", "corruption", "seeds", "accuracy", "stale")
HEADS = ("Data set", "Architecture", "Method", "Ours", "Published", "Ours − published", "Publication")


def write(cells: pd.DataFrame, to: Path) -> list[Path]:
    """``published.csv`` (every number), ``published.md`` and ``published.tex`` (means); their paths.

    No LaTeX where nothing is published of the same setting.
    """
    numbers = beside(averages(cells), every=True)
    columns = [*SHOWN, "publication", "published", "difference", "why_not", "remark"]
    columns += ["checkpoint", "fingerprint", "baseline", *PROTOCOL]
    means = numbers[numbers["corruption"] == "mean"]
    matched = means[means["why_not"] == ""]
    printed = write_sheets([_sheet(matched)], Path(to), "published") if len(matched) else []
    return [
        write_csv(Path(to) / "published.csv", numbers[columns]),
        write_text(Path(to) / "published.md", _markdown(matched, numbers)),
        *printed,
    ]


def averages(cells: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds per corruption, and over the fifteen; where a number is missing there is none.

    A corruption that lacks a seed has its own mean, and the row has no mean over the fifteen.
    They are over the cells that the tables show. A cell that failed has no images, so `n_images` is the most.
    """
    frame = one_per_cell(checked_cells(cells))
    by = frame.groupby([*KEY, "corruption"], sort=False)
    each = by.agg(
        accuracy=("accuracy", "mean"), seeds=("seed", "nunique"), n_images=("n_images", "max"),
        stale=("stale", "any"),
    )  # fmt: skip
    each["accuracy"] = each["accuracy"].where(by["accuracy"].count() == by.size())
    each = each.dropna(subset="accuracy").reset_index()
    main = each[each["corruption"].isin(CORRUPTIONS)].groupby(list(KEY), sort=False)
    whole = main.agg(
        accuracy=("accuracy", "mean"), seeds=("seeds", "min"), n_images=("n_images", "max"),
        stale=("stale", "any"), count=("accuracy", "size"),
    )  # fmt: skip
    seeds_of_row = frame.groupby(list(KEY))["seed"].nunique().reindex(whole.index)
    complete = (whole["count"] == len(CORRUPTIONS)) & (whole["seeds"] == seeds_of_row)
    whole = whole[complete].reset_index().drop(columns="count")
    joined = pd.concat([whole.assign(corruption="mean"), each], ignore_index=True)
    return joined.sort_values(
        list(KEY), kind="stable", ignore_index=True, key=lambda column: column.astype(str)
    )


def _rows(matched: pd.DataFrame) -> list[list[str]]:
    return [
        [
            naming.dataset(row["dataset"]), naming.arch(row["arch"]), naming.method(row["method"]),
            naming.number(row["accuracy"]),
            naming.number(row["published"]), naming.points(row["difference"]), row["publication"],
        ]
        for row in matched.to_dict("records")
    ]  # fmt: skip


def _marks(matched: pd.DataFrame) -> list[str]:
    """The mark of each row's method."""
    return [STALE if stale else "" for stale in matched["stale"]]


def _markdown(matched: pd.DataFrame, numbers: pd.DataFrame) -> str:
    lines = ["# Beside published numbers", ""]
    if matched.empty:
        lines += ["No mean here has a published one of the same setting.", ""]
    else:
        rows = [
            [dataset, arch, method + mark, *numbers]
            for (dataset, arch, method, *numbers), mark in zip(_rows(matched), _marks(matched), strict=True)
        ]
        stale = [f"{STALE} {LEGEND[STALE]}.", ""] if any(_marks(matched)) else []
        lines += _grid(HEADS, rows)
        lines += ["Mean accuracy (%) over the fifteen corruptions.", "", *stale]
        lines += [*(f"- `{name}`: {source}" for name, source in dict.fromkeys(_sources(matched))), ""]
    columns = ["dataset", "arch", "method", "publication", "why_not"]
    unmatched = numbers[numbers["why_not"] != ""].drop_duplicates(columns)
    if len(unmatched):
        lines += ["## Published under another setting, or not at all", ""]
        heads = ("Data set", "Architecture", "Method", "Publication", "Why not")
        shown = unmatched.assign(publication=unmatched["publication"].replace("", "–"))
        rows = [[str(cell) for cell in row] for row in shown[columns].to_numpy().tolist()]
        lines += _grid(heads, rows)
    return "\n".join(lines)


def _grid(heads: Sequence[str], rows: list[list[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *([*map(escape, row)] for row in rows)]
    return [*map(table_row, lines), ""]


def _sources(matched: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Of each row, its publication and where the number is from."""
    for name, base in zip(matched["publication"], matched["base"], strict=True):
        publication = catalog()[name]
        weights = f"; weights: {words}" if (words := publication.weights_of(base)) else ""
        yield name, f"{publication.source}; {publication.where}{weights}"


def _sheet(matched: pd.DataFrame) -> Sheet:
    """The means that have a published number of the same setting; a footnote says where it is from."""
    sources = [*_sources(matched)]
    letters = dict(zip(dict.fromkeys(sources), string.ascii_lowercase, strict=False))
    marked = matched.assign(mark=[letters.get(source, "") for source in sources])
    groups = [
        Group(naming.where(naming.dataset(str(dataset)), severity), [list(_lines(members))])
        for (dataset, severity), members in marked.groupby(["dataset", "severity"], sort=False)
    ]
    caption = "Mean accuracy (%) over the fifteen corruptions, beside published numbers of the same setting."
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Ours"), Head("Published"), Head("Difference")]
    notes = {STALE: LEGEND[STALE]}
    notes |= {letter: f"{name}: {source}" for (name, source), letter in letters.items()}
    footer = "Difference: ours minus the published number."
    return Sheet("published_means", caption, footer, heads, groups, labels=2, notes=notes)


def _lines(marked: pd.DataFrame) -> Iterator[Line]:
    for row, mark, stale in zip(_rows(marked), marked["mark"], _marks(marked), strict=True):
        _, arch, method, ours, published, difference, _ = row
        beside = Entry(published, marks=mark)
        yield [Entry(arch), Entry(method, marks=stale), Entry(ours), beside, Entry(minus(difference))]


def render_audit() -> RenderableType:
    """The misprints of all publications, for a terminal."""
    from rich.console import Group
    from rich.text import Text

    misprints = audit()
    lines = [Text(str(one)) for one in misprints]
    summary = (
        f"{len(misprints)} misprints among {checked()} printed numbers that can be recomputed from others. "
        "What rounding explains is not listed."
    )
    return Group(*lines, Text(summary, "bold"))
