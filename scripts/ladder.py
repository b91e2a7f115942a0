"""A ladder of settings as a table: each row changes one setting of the row above, and says what it gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from ttabench_reports.cells.frames import checked, one_per_cell
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.words import naming
from ttabench_reports.words.markdown_text import table_row
from ttabench_reports.words.unset_settings import settings_of

FORMS = ("source", "quantile_strict", "quantile_paper", "quantile")  # other methods come after them


def ladder(report: Report) -> str:
    """A line per method, by form and number of settings: accuracies (%), their mean, and what the mean gains.

    The gain is that over the line above; with several seeds, its lowest and highest stand beside it. Where a
    cell is missing, there is no mean and no gain. A method without settings of which others have some is
    shown apart, without a gain.
    """
    cells = one_per_cell(checked(report.cells))
    names = sorted(cells["corruption"].unique(), key=naming.corruption_key)
    lines = [
        table_row(["", *(name.replace("_", " ").capitalize() for name in names), "Mean", "Gain"]),
        table_row([":---", *["---:"] * (len(names) + 2)]),
    ]
    return "\n".join([*lines, *(table_row(line) for line in _rows(cells, names)), ""])


def _rows(cells: pd.DataFrame, names: Sequence[str]) -> Iterator[list[str]]:
    base = cells.groupby("method")["base"].first()
    with_settings = {base[label] for label in base.index if settings_of(label)}
    above: pd.Series[float] | None = None
    last = ""
    for label in sorted(base.index, key=lambda label: (_form(base[label]), len(settings_of(label)))):
        of_method = cells[cells["method"] == label]
        seeds = of_method.pivot(index="seed", columns="corruption", values="accuracy").reindex(columns=names)
        by_seed = seeds.mean(axis=1, skipna=False)  # none where a cell is missing
        accuracy = seeds.mean(skipna=False)
        row = [words.number(value) for value in (*accuracy, accuracy.mean(skipna=False))]
        if label == base[label] and label in with_settings:
            yield [f"`{label}`", *row, ""]
            continue
        yield [_called(label, last), *row, "" if above is None else _gain(by_seed, above)]
        above, last = by_seed, label


def _form(base: str) -> int:
    return (*FORMS, base).index(base)


def _called(label: str, above: str) -> str:
    """Source, the label, or only the setting that the line above does not have."""
    added = [setting for setting in settings_of(label) if setting not in settings_of(above)]
    same = label.partition("[")[0] == above.partition("[")[0]
    return naming.base(label) if label == "source" else f"`{', '.join(added) if same else label}`"


def _gain(mean: pd.Series[float], above: pd.Series[float]) -> str:
    gains = mean - (above if len(above) > 1 else above.mean())  # Source has one seed
    spread = f" ({words.signed(gains.min())} to {words.signed(gains.max())})" if len(gains) > 1 else ""
    return words.signed(gains.mean()) + spread if gains.notna().all() else ""
