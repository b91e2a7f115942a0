"""Pictures of the tables: a heat map over the corruptions and bars of their means, as PNG and PDF.

The same cells give the same bytes: no clock, no user's style, no screen. Palettes are safe for the
colour-blind (Okabe and Ito; a single-hue map), and no meaning hangs on colour alone.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib import style
from matplotlib.figure import Figure

from ttabench_reports import naming
from ttabench_reports.files import write_bytes
from ttabench_reports.naming import MEAN, MEAN_EXTRA
from ttabench_reports.shape import LABEL, LEGEND, OFFLINE, Row, Table
from ttabench_reports.tables import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, NARROW = 7.0, 3.4  # inches: a page's text, a column of it
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 7, "axes.titlesize": 8, "axes.linewidth": 0.6,
    "axes.spines.top": False, "axes.spines.right": False, "hatch.linewidth": 0.5,
    "pdf.fonttype": 42, "figure.dpi": 100, "savefig.dpi": 220,
}  # fmt: skip
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
HATCHES = ("", "////", "....", "xxxx")
SOURCE, INK, GREY, PALE = "#9A9A9A", "#222222", "#555555", "#EFEFEF"


def write(cells: pd.DataFrame, to: Path, published: pd.DataFrame | None = None) -> list[Path]:
    """``heatmap_*`` and ``bars_*`` of every per-corruption table in the folder `to`; their paths."""
    paths: list[Path] = []
    used: set[str] = set()
    drawings: dict[str, Callable[[Table], Figure]] = {"heatmap": heatmap, "bars": bars}
    for table in tables(cells, published):
        name = naming.slug(table.title)
        while name in used:
            name += "_"
        used.add(name)
        for kind, draw in drawings.items():
            figure = draw(table)
            paths += [save(figure, Path(to) / f"{kind}_{name}.{suffix}") for suffix in ("png", "pdf")]
    return paths


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as its suffix says, byte for byte the same each time."""
    buffer = io.BytesIO()
    unclocked = {"pdf": ("CreationDate", "Creator", "Producer"), "png": ("Software",)}[path.suffix[1:]]
    with style.context(["default", STYLE]):
        figure.savefig(
            buffer,
            format=path.suffix[1:],
            metadata=dict.fromkeys(unclocked),
            bbox_inches="tight",
            pad_inches=0.04,
        )
    return write_bytes(path, buffer.getvalue())


def heatmap(table: Table) -> Figure:
    """Rows: methods by architecture. Columns: corruptions and their mean. Every cell says its number."""
    with style.context(["default", STYLE]):
        return _heatmap(table)


def _heatmap(table: Table) -> Figure:
    archs = {arch: [row for row in rows if row.kind != "increase"] for arch, rows in table.archs().items()}
    columns = table.main if table.natural else table.columns
    left: list[float] = []
    for column in columns:  # means stand apart
        apart = column in (MEAN, MEAN_EXTRA) or (left and columns[len(left) - 1] == MEAN)
        left.append((left[-1] + 1 if left else 0.0) + (0.25 if apart else 0.0))
    lines = sum(len(rows) + 0.9 for rows in archs.values())
    figure = Figure(figsize=(WIDE, 0.55 + 0.205 * lines))
    axes = figure.add_axes((0, 0, 1, 1))
    numbers = [
        v for rows in archs.values() for row in rows for v in map(row.value, columns) if not math.isnan(v)
    ]
    low = min(10 * math.floor(min(numbers, default=0) / 10), 90)
    best = table.best()
    y = 0.0
    ticks: list[tuple[float, str]] = []
    for arch, rows in archs.items():
        axes.text(-0.12, y + 0.62, arch, ha="right", va="center", weight="bold")
        y += 0.9
        for row in rows:
            ticks.append((y + 0.5, f"{row.method}{row.flags}{row.raised(LABEL)}"))
            for x, column in zip(left, columns, strict=True):
                _square(axes, x, y, row, column, low, (id(row), column) in best)
            y += 1
    for x, column in zip(left, columns, strict=True):
        weight = "bold" if column in (MEAN, MEAN_EXTRA) else "normal"
        axes.text(x + 0.35, 0.72, naming.title(column), rotation=45, ha="left", va="bottom", weight=weight)
    axes.set(xlim=(0, left[-1] + 1), ylim=(y, 0), xticks=[])
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(f"Accuracy (%) on {table.title}", loc="left", pad=25, weight="bold")
    legend = [f"{naming.raised(mark)} {text}." for mark, text in table.legend(columns)]
    _footer(axes, [*_said(table, "Mean", "Bold: best of an architecture."), *legend], 160)
    return figure


def _square(axes: Axes, x: float, y: float, row: Row, column: str, low: float, best: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    value = row.value(column)
    face: str | tuple[float, float, float, float] = PALE
    if math.isnan(value):
        word = row.words.get(column, "")
        ink, text = GREY, "fail" if word == "failed" else word
    else:
        shade = 0.03 + 0.82 * max(value - low, 0) / (100 - low)
        face = colormaps["Blues"](shade)
        ink, text = _contrast(face), naming.number(value)
    text += row.raised(column)
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", linewidth=0.8))
    axes.text(
        x + 0.5,
        y + 0.53,
        text,
        ha="center",
        va="center",
        color=ink,
        size=6.2,
        weight="bold" if best else "normal",
    )


def bars(table: Table) -> Figure:
    """Mean over the corruptions per method, grouped by architecture; whiskers: ± sd over seeds."""
    with style.context(["default", STYLE]):
        return _bars(table)


def _bars(table: Table) -> Figure:
    archs = {arch: [row for row in rows if row.measured] for arch, rows in table.archs().items()}
    every = [row for rows in archs.values() for row in rows]
    sources = {row.method for row in every if row.kind == "source"}
    labels = [*sorted(sources), *sorted({row.method for row in every} - sources, key=naming.natural)]
    looks = {label: _look(i - len(sources)) for i, label in enumerate(labels)}
    count = len(every)
    narrow = count <= 10
    figure = Figure(figsize=(NARROW if narrow else WIDE, 2.1))
    axes = figure.add_axes((0, 0, 1, 1))
    offline = {row.method for row in every if OFFLINE in row.flags}
    ticks: list[tuple[float, str]] = []
    x = 0.0
    for arch, rows in archs.items():
        ticks.append((x + (len(rows) - 1) / 2, arch))
        for row in rows:
            _bar(axes, x, row, looks[row.method], upright=count > 24)
            x += 1
        x += 0.7
    axes.set(
        ylim=(0, 106),
        ylabel=f"{'A' if table.natural else 'Mean a'}ccuracy (%)",
        xlim=(-0.8, x - 0.9),
        yticks=range(0, 101, 20),
    )
    axes.spines["left"].set_bounds(0, 100)
    axes.set_xticks([at for at, _ in ticks], [arch for _, arch in ticks])
    axes.tick_params(axis="x", length=0)
    axes.yaxis.grid(True, color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    texts = [label + (OFFLINE if label in offline else "") for label in labels]
    _legend(
        axes,
        texts,
        list(looks.values()),
        58 if narrow else 120,
        table.title if table.natural else f"Mean over {len(table.main)} corruptions, {table.title}",
    )
    flags = [f"{OFFLINE} {LEGEND[OFFLINE]}."] if offline else []
    _footer(axes, [*_said(table, "Mean ± standard deviation"), *flags], 76 if narrow else 160, below=16)
    return figure


def _legend(axes: Axes, texts: list[str], looks: list[tuple[str, str]], room: int, title: str) -> None:
    """As few lines as `room` characters allow, and the title above them."""
    from matplotlib.patches import Patch

    def width(columns: int) -> int:
        lines = math.ceil(len(texts) / columns)
        return sum(6 + max(map(len, texts[k : k + lines])) for k in range(0, len(texts), lines))

    columns = max((n for n in range(1, len(texts) + 1) if width(n) <= room), default=1)
    patches = [Patch(facecolor=face, hatch=hatch, edgecolor="white", linewidth=0) for face, hatch in looks]
    axes.legend(
        patches, texts, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False,
        borderaxespad=0.2, handlelength=1.1, handleheight=0.9, columnspacing=1.2,
    )  # fmt: skip
    axes.set_title(title, loc="left", pad=7 + 10.8 * math.ceil(len(texts) / columns), weight="bold")


def _look(index: int) -> tuple[str, str]:
    """Colour and hatch of the method at `index`; baselines, below 0, are grey."""
    if index < 0:
        return SOURCE, HATCHES[(-1 - index) % len(HATCHES)]
    return OKABE_ITO[index % len(OKABE_ITO)], HATCHES[index // len(OKABE_ITO) % len(HATCHES)]


def _bar(axes: Axes, x: float, row: Row, look: tuple[str, str], *, upright: bool) -> None:
    value, sd = row.value(MEAN), row.sd.get(MEAN, math.nan)
    if math.isnan(value):
        axes.text(x, 1.5, row.words.get(MEAN, ""), ha="center", va="bottom", size=6, color=GREY)
        return
    colour, hatch = look
    axes.bar(x, value, 0.84, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
    error = 0.0 if math.isnan(sd) else sd
    if error:
        axes.errorbar(x, value, error, color=INK, linewidth=0.8, capsize=1.8, capthick=0.8)
    rotation = 90 if upright else 0
    axes.text(x, value + error + 1, naming.number(value), ha="center", va="bottom", size=6, rotation=rotation)


def _footer(axes: Axes, said: Sequence[str], characters: int, below: float = 4) -> None:
    """The protocol and the marks, small, under the picture."""
    whole = textwrap.TextWrapper(characters, break_long_words=False, break_on_hyphens=False)
    lines = [line for text in said for line in whole.wrap(text)]
    axes.annotate(
        "\n".join(lines), (0, 0), xytext=(0, -below), xycoords="axes fraction", textcoords="offset points",
        ha="left", va="top", size=5.6, color=GREY, linespacing=1.3,
    )  # fmt: skip


def _said(table: Table, seeds: str, *more: str) -> list[str]:
    counted = f" {seeds} over {table.seeds} seeds." if table.seeds else ""
    return [" ".join([f"Protocol: {table.protocol}.{counted}", *table.remarks, *more])]


def _contrast(face: tuple[float, float, float, float]) -> str:
    """Dark or white ink, whichever reads better on `face` (WCAG's relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in face[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if (luminance + 0.05) / 0.066 > 1.05 / (luminance + 0.05) else "white"
