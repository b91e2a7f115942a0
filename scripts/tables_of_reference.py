"""The tables of the reference results, written into README.md and pages of docs/, and README.md's picture.

A table stands between two lines:

    <!-- reference digits-c: means -->
    <!-- end of reference -->

The first names a folder below results/reference (or several, separated by commas) and what is shown:

    means         the mean over the corruptions of every method on every network
    networks      the same with a line per network and a column per method, online where it has both forms
    corruptions   every cell
    drop          how far each method drops from clean to corrupted images, datasets side by side
    overview      the best methods of each ranking, a line each
    which_method  the ranking on each network with what it costs and needs
    scores        how well label-free scores order the methods
    times         how long all cells usually take, and on which machines they were measured
    costs         what each method costs
    unknown       known and unknown classes on contaminated streams
    ladder        one setting more on each line, and what it gains

`means of tent,quantile` shows these methods and Source alone. `means on streams` shows what was measured in
another order than iid, on long streams or at a pace; the other tables leave it out. Where none of the folders
is there, what stands between the lines is left as it is.

    python scripts/tables_of_reference.py            # write
    python scripts/tables_of_reference.py --check    # exit code 1 where a file would change
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from bench_suite import bring_up_to_date
from ladder import ladder
from which_method import overview, which_method

from ttabench.store.columns import COSTLY_SCORES
from ttabench.store.columns import SCORES as STORED
from ttabench_reports.cells.frames import ROW, checked, differences_in, one_per_cell
from ttabench_reports.cells.load import read
from ttabench_reports.cells.typical_seconds import typical_seconds
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats.markdown import render
from ttabench_reports.plots.bars import all_bars
from ttabench_reports.plots.plot import render as render_plot
from ttabench_reports.plots.style import plot_style
from ttabench_reports.sheets import per_corruption, words
from ttabench_reports.sheets import unknown_classes as unknown_sheets
from ttabench_reports.sheets.costs import cost
from ttabench_reports.sheets.drops import drops
from ttabench_reports.sheets.selection import NAMES as SCORE_NAMES
from ttabench_reports.tables.table import LEGEND, OFFLINE, Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.markdown_text import escape, table_row
from ttabench_reports.words.naming import MEAN
from ttabench_reports.words.unset_settings import settings_of

TORCH = re.compile(r"\btorch (\S+)")
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "reference"
PAGES = (
    "reference-results.md", "reference-tables.md", "which-method.md", "rankings.md", "choosing-settings.md",
    "quantile.md",
)  # fmt: skip
FILES = (ROOT / "README.md", *(ROOT / "docs" / name for name in PAGES))
PICTURE = ROOT / "docs" / "digits-c.png"
IN_PICTURE = ("tent", "eata", "cotta", "aqr", "quantile")
BLOCK = re.compile(
    r"(?P<start><!-- reference (?P<names>[\w,.-]+): "
    r"(?P<kind>\w+)(?: of (?P<methods>[\w,]+))?(?P<streams> on streams)? -->\n)"
    r"(?P<old>.*?)"
    r"(?P<end><!-- end of reference -->)",
    re.DOTALL,
)


def fill(text: str, results: Path) -> str:
    """`text` with every block made new from the folders in `results`."""

    def new(block: re.Match[str]) -> str:
        folders = [results / name for name in block["names"].split(",")]
        existing = tuple(folder for folder in folders if folder.is_dir())
        if not existing:
            return block[0]
        methods = tuple(block["methods"].split(",")) if block["methods"] else ()
        streams = None if block["kind"] == "times" else block["streams"] is not None
        made = report(existing, methods, streams=streams)
        return f"{block['start']}\n{KINDS[block['kind']](made)}\n{block['end']}"

    return BLOCK.sub(new, text)


def named(text: str) -> set[str]:
    """The folders that the blocks of a text name."""
    return {name for block in BLOCK.finditer(text) for name in block["names"].split(",")}


def report(folders: Sequence[Path], methods: Sequence[str] = (), *, streams: bool | None = False) -> Report:
    """The tables of these folders, of all methods or some; nothing is marked as stale.

    `streams`: those measured on streams, the others, or all (None).

    `ttabench verify` says whether the numbers hold.
    """
    cells = read(folders).assign(stale=False, stale_because="")
    usual = {"order": "iid", "stream": "", "pace": 0.0}
    if streams is not None:
        cells = cells[cells[[*usual]].ne(pd.Series(usual)).any(axis=1) == streams]
    made = Report(cells[cells["base"].isin(["source", *methods])] if methods else cells)
    if streams:  # a table says which, also where it is the only one
        made.tables = [
            replace(table, difference=differences_in(usual, {name: table.key[name] for name in usual}))
            for table in made.tables
        ]
    return made


def picture(results: Path) -> bytes | None:
    """The means on digits-c as bars (PNG); None where its results are not in `results`."""
    if not (results / "digits-c").is_dir():
        return None
    cells = report([results / "digits-c"], IN_PICTURE).cells
    online = set(cells.loc[cells["mode"] == "online", "base"])
    usual = Report(cells[(cells["mode"] == "online") | ~cells["base"].isin(online)])
    with plot_style():
        (drawing,) = all_bars(usual)
    return render_plot(drawing, "png")


def means(report: Report) -> str:
    """Per dataset: a line per method, a column per network; offline methods below the others."""
    return "\n".join(_means(table) for table in report.tables)


def _means(table: Table) -> str:
    rows = [row for row in table.rows if row.measured]
    archs = list(dict.fromkeys(row.arch for row in rows))
    lines: dict[tuple[str, bool], dict[str, Row]] = {}
    for row in rows:
        same_mode = [other for other in rows if other.offline == row.offline]
        lines.setdefault((_line(row, same_mode), row.offline), {})[row.arch] = row
    order = sorted(lines, key=lambda line: _place(lines[line]))
    one = table.natural or len(table.main) == 1
    what = "accuracy (%)" if one else f"mean accuracy (%) over the {len(table.main)} corruptions"
    parts = [f"**{escape(table.heading)}**: {what}.", ""]
    parts += [
        table_row(["", "Given", *map(naming.arch, archs)]),
        table_row([":---", ":---", *["---:"] * len(archs)]),
    ]
    partial = []
    for name, offline in order:
        held = lines[name, offline]
        able = [row for row in held.values() if not math.isnan(row.value(MEAN))] or held.values()
        given = dict.fromkeys(words.short(row).text for row in able)
        mark = f"<sup>{OFFLINE}</sup>" if offline else ""
        numbers = (_number(held[arch]) if arch in held else "–" for arch in archs)
        title = escape(naming.method(name, str(next(iter(held.values())).about["config"]))) + mark
        if all(_number(row) == "–" for row in held.values()):
            partial.append(title)
        else:
            parts.append(table_row([title, "; ".join(given), *numbers]))
    notes = [f"<sup>{OFFLINE}</sup> {LEGEND[OFFLINE]}; never to be ranked against the others."]
    seeds = f"Mean over {table.seeds} seeds." if table.seeds else ""
    further = _further_settings((name, row) for (name, _), held in lines.items() for row in held.values())
    some = f"Measured under some of the corruptions: {', '.join(partial)}." if partial else ""
    notes_text = words.join(seeds, further, words.GIVEN, *(notes if any(row.offline for row in rows) else []))
    unmarked = escape(notes_text).replace("&lt;", "<").replace("&gt;", ">")
    return "\n".join([*parts, "", words.join(unmarked, some), ""])


def _line(row: Row, rows: Sequence[Row]) -> str:
    """A method is one line on all networks, unless one network has several variants of it.

    The line has the settings that all its variants share.
    """
    base = str(row.about["base"])
    variants = {(r.arch, r.method) for r in rows if r.about["base"] == base}
    if len(variants) > len({arch for arch, _ in variants}):
        return row.method
    first, *others = [settings_of(label) for _, label in sorted(variants)]
    shared = [setting for setting in first if all(setting in other for other in others)]
    return f"{base}[{','.join(shared)}]" if shared else base


def _further_settings(rows: Iterable[tuple[str, Row]]) -> str:
    """The settings that single networks have beyond the name of their line, as a sentence."""
    found: dict[str, dict[str, dict[str, None]]] = {}  # network, settings, methods
    for name, row in rows:
        if further := [setting for setting in settings_of(row.method) if setting not in settings_of(name)]:
            of_network = found.setdefault(naming.arch(row.arch), {})
            of_network.setdefault(", ".join(further), {})[naming.base(row.about["base"])] = None
    networks: dict[str, list[str]] = {}
    for network, settings in found.items():
        listed = (f"{', '.join(methods)} with {setting}" for setting, methods in settings.items())
        networks.setdefault("; ".join(listed), []).append(network)
    parts = [f"{', '.join(names)}: {text}" for text, names in networks.items()]
    return f"Settings of one network that its row does not name: {'. '.join(parts)}." if parts else ""


def _place(held: dict[str, Row]) -> tuple[object, ...]:
    row = next(iter(held.values()))
    return row.offline and row.kind != "source", row.kind != "source", row.name.lower()


def _number(row: Row) -> str:
    return words.number(row.value(MEAN)) or escape(row.words.get(MEAN, ""))


def networks(report: Report) -> str:
    """A line per network with the mean of every method; its online form where it has both."""
    lines: dict[str, dict[str, Row]] = {}
    for table in report.tables:
        for row in sorted((row for row in table.rows if row.measured), key=lambda row: row.offline):
            where = f"{naming.dataset(table.key['dataset'])}: {naming.arch(row.arch)}"
            lines.setdefault(where, {}).setdefault(str(row.about["base"]), row)
    columns = sorted({(_place({"": row}), base) for held in lines.values() for base, row in held.items()})
    heads = {base: next(held[base] for held in lines.values() if base in held) for _, base in columns}
    titles = (escape(naming.method(base)) + (OFFLINE if row.offline else "") for base, row in heads.items())
    made = [table_row(["", *titles]), table_row([":---", *["---:"] * len(heads)])]
    for where, held in lines.items():
        best = _best_of_each_mode(held)
        numbers = (_number(held[base]) if base in held else "–" for base in heads)
        marked = (f"**{n}**" if base in best else n for base, n in zip(heads, numbers, strict=True))
        made.append(table_row([escape(where), *marked]))
    notes = words.join(
        "Mean accuracy (%) over the corruptions. Bold: the highest mean of the online methods, as printed.",
        f"{OFFLINE} {LEGEND[OFFLINE]}; the highest of these is bold too."
        if any(map(_offline, heads.values()))
        else "",
    )
    return "\n".join([*made, "", notes, ""])


def _best_of_each_mode(held: Mapping[str, Row]) -> set[str]:
    """The methods with the highest printed mean, ties included: online and offline ones apart."""
    best: set[str] = set()
    for offline in (False, True):
        means = {base: round(row.value(MEAN), 1) for base, row in held.items() if _offline(row) == offline}
        able = {base: mean for base, mean in means.items() if not math.isnan(mean)}
        best |= {base for base, mean in able.items() if mean == max(able.values())}
    return best


def _offline(row: Row) -> bool:
    return row.offline and row.kind != "source"


def corruptions(report: Report) -> str:
    """Every cell: the table of each dataset, by corruption."""
    return "\n".join(_corruptions(report))


def _corruptions(report: Report) -> Iterator[str]:
    for table in report.tables:
        for sheet in per_corruption.sheets(table, increase=False):
            yield render(sheet)


def drop(report: Report) -> str:
    """From clean to corrupted images, datasets side by side."""
    return "\n".join(map(render, drops(report)))


def scores(report: Report) -> str:
    """How well label-free scores order the methods under one corruption: a line per network.

    Accuracy and scores of a method are means over its seeds: seeds differ in which methods have them.
    """
    names = [name for name in STORED if name not in COSTLY_SCORES]
    lines = [
        table_row(["", "Methods", *(heading for name in names for heading in (SCORE_NAMES[name], "Gap"))]),
        table_row([":---", "---:", *["---:"] * (2 * len(names))]),
    ]
    cells = one_per_cell(checked(report.cells))
    cells = cells[cells[["accuracy", *names]].notna().all(axis=1)]
    for network, here in _by_network(cells):
        of_methods = here.groupby(["corruption", "severity", *ROW])[["accuracy", *names]].mean()
        of_methods = of_methods.round(6)  # equal ones are to have equal ranks
        by_cell = [cell for _, cell in of_methods.groupby(["corruption", "severity"])]
        numbers = []
        for name in names:
            orders = [cell["accuracy"].corr(cell[name], "spearman") for cell in by_cell]
            gaps = [cell["accuracy"].max() - cell["accuracy"].iloc[cell[name].argmax()] for cell in by_cell]
            numbers += [words.minus(f"{np.mean(orders):.2f}"), words.number(float(np.mean(gaps)))]
        count = here.groupby(["method", "mode"]).ngroups
        lines.append(table_row([escape(network), str(count), *numbers]))
    return "\n".join([*lines, ""])


def _by_network(cells: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The cells of each network of a dataset, under the name of both."""
    found = {(str(dataset), str(arch)): here for (dataset, arch), here in cells.groupby(["dataset", "arch"])}
    for dataset, arch in sorted(found, key=lambda place: (place[0], naming.arch_key(place[1]))):
        yield f"{naming.dataset(dataset)}: {naming.arch(arch)}", found[dataset, arch]


def times(report: Report) -> str:
    """The typical time of all cells: a line per network."""
    made = [
        table_row(["", "Cells", "Core-hours", "Processor", "torch"]),
        table_row([":---", "---:", "---:", ":---", ":---"]),
    ]
    cells = report.cells[report.cells["status"] == "ok"]
    cells = cells.assign(typical=typical_seconds(cells))
    for network, here in _by_network(cells):
        processors = "; ".join(sorted(set(here["processor"])))
        torches = sorted({found[1] for text in here["versions"] if (found := TORCH.search(text))})
        hours = f"{here['typical'].sum() / 3600:.1f}"
        made.append(table_row([escape(network), f"{len(here):,}", hours, processors, ", ".join(torches)]))
    return "\n".join([*made, ""])


def costs(made: Report) -> str:
    """The table of costs."""
    sheet = cost(made)
    return "" if sheet is None else f"{render(sheet)}\n"


def unknown(made: Report) -> str:
    """How well the certainty of each method tells test images from foreign ones: a table per stream."""
    return "\n".join(render(sheet) for sheet in unknown_sheets.sheets(made))


KINDS = {
    "means": means, "networks": networks, "corruptions": corruptions, "drop": drop,
    "overview": overview, "which_method": which_method,
    "scores": scores, "times": times, "costs": costs, "unknown": unknown, "ladder": ladder,
}  # fmt: skip


def up_to_date() -> Iterator[tuple[Path, bytes]]:
    """Each page and picture, as it is to be."""
    for file in FILES:
        yield file, fill(file.read_text(encoding="utf-8"), RESULTS).encode()
    if (drawn := picture(RESULTS)) is not None:
        yield PICTURE, drawn


if __name__ == "__main__":
    sys.exit(bring_up_to_date(__doc__, up_to_date()))
