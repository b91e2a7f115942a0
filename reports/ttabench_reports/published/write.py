"""The report format ``published``: our numbers beside published ones, as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ttabench.corruptions.names import CORRUPTIONS
from ttabench_reports import naming
from ttabench_reports.files import write_text
from ttabench_reports.frames import PROTOCOL
from ttabench_reports.frames import checked as checked_cells
from ttabench_reports.published.audit import audit, checked
from ttabench_reports.published.beside import beside
from ttabench_reports.published.catalog import catalog

if TYPE_CHECKING:
    from rich.console import RenderableType

ROW = ("dataset", "severity", "arch", "checkpoint", "method", "base", "config", "n_images", *PROTOCOL)
SHOWN = ("dataset", "severity", "arch", "method", "corruption", "seeds", "accuracy")
HEADS = ("Data set", "Architecture", "Method", "Ours", "Published", "Ours − published", "Publication")


def write(cells: pd.DataFrame, to: Path) -> list[Path]:
    """``published.csv`` (every number), ``published.md`` and ``published.tex`` (means); their paths."""
    found = beside(averages(cells), every=True)
    columns = [*SHOWN, "publication", "published", "difference", "why_not", "remark", *PROTOCOL]
    table = found[columns].round({"accuracy": 4, "published": 4, "difference": 4})
    means = found[found["corruption"] == "mean"]
    matched = means[means["why_not"] == ""]
    return [
        write_text(Path(to) / "published.csv", table.to_csv(index=False, lineterminator="\n")),
        write_text(Path(to) / "published.md", _markdown(matched, found)),
        write_text(Path(to) / "published.tex", _latex(matched)),
    ]


def averages(cells: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds per corruption, and over the fifteen; where a number is missing there is none."""
    frame = checked_cells(cells)
    by = frame.groupby([*ROW, "corruption"], sort=False)["accuracy"]
    each = by.mean().where(by.count() == by.size()).to_frame("accuracy")
    each["seeds"] = frame.groupby([*ROW, "corruption"], sort=False)["seed"].nunique()
    each = each.dropna(subset="accuracy").reset_index()
    main = each[each["corruption"].isin(CORRUPTIONS)].groupby(list(ROW), sort=False)
    whole = main.agg(accuracy=("accuracy", "mean"), seeds=("seeds", "min"), count=("accuracy", "size"))
    whole = whole[whole["count"] == len(CORRUPTIONS)].reset_index().drop(columns="count")
    joined = pd.concat([whole.assign(corruption="mean"), each], ignore_index=True)
    return joined.sort_values(
        list(ROW), kind="stable", ignore_index=True, key=lambda column: column.astype(str)
    )


def _rows(matched: pd.DataFrame) -> list[list[str]]:
    return [
        [
            row["dataset"], row["arch"], row["method"], naming.number(row["accuracy"]),
            naming.number(row["published"]), naming.points(row["difference"]), row["publication"],
        ]
        for row in matched.to_dict("records")
    ]  # fmt: skip


def _markdown(matched: pd.DataFrame, found: pd.DataFrame) -> str:
    lines = ["# Beside published numbers", ""]
    if matched.empty:
        lines += ["No mean here has a published one of the same setting.", ""]
    else:
        lines += _grid(HEADS, _rows(matched))
        lines += ["Mean accuracy (%) over the fifteen corruptions.", ""]
        lines += [*(f"- `{name}`: {_source(name)}" for name in dict.fromkeys(matched["publication"])), ""]
    apart = found[found["why_not"] != ""].drop_duplicates(
        ["dataset", "arch", "method", "publication", "why_not"]
    )
    if len(apart):
        lines += ["## Published under another setting, or not at all", ""]
        heads = ("Data set", "Architecture", "Method", "Publication", "Why not")
        shown = apart.assign(publication=apart["publication"].replace("", "–"))
        columns = ["dataset", "arch", "method", "publication", "why_not"]
        rows = [[str(cell) for cell in row] for row in shown[columns].to_numpy().tolist()]
        lines += _grid(heads, rows)
    return "\n".join(lines)


def _grid(heads: Sequence[str], rows: list[list[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [heads, ["---"] * len(heads), *escaped]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _source(name: str) -> str:
    publication = catalog()[name]
    weights = f"; weights: {publication.weights}" if publication.weights else ""
    return f"{publication.source}; {publication.where}{weights}"


def _latex(matched: pd.DataFrame) -> str:
    """A booktabs table; without a match, a comment."""
    if matched.empty:
        return "% No mean here has a published one of the same setting.\n"
    body = "".join(f"{' & '.join(map(_escaped, row))} \\\\\n" for row in _rows(matched))
    sources = "; ".join(
        f"{_escaped(name)}: {_escaped(_source(name))}" for name in dict.fromkeys(matched["publication"])
    )
    caption = f"Mean accuracy (\\%) over the fifteen corruptions, beside published numbers. {sources}."
    return (
        f"% needs booktabs\n\\begin{{table}}\n\\centering\\small\n\\caption{{{caption}}}\n"
        f"\\begin{{tabular}}{{lllrrrl}}\n\\toprule\n{' & '.join(map(_escaped, HEADS))} \\\\\n\\midrule\n"
        f"{body}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "−": "$-$", "η": r"$\eta$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def render_audit() -> RenderableType:
    """The misprints of all publications, for a terminal."""
    from rich.console import Group
    from rich.text import Text

    found = audit()
    told = f"{len(found)} misprints among {checked()} printed numbers that can be recomputed from others."
    lines = [Text(str(one)) for one in found]
    return Group(*lines, Text(f"{told} What rounding explains is not listed.", "bold"))
