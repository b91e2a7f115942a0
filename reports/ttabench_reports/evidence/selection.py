"""Choosing settings without target labels: which setting a score chooses, and what the best one would give.

For the settings h of a method and a score S: h* = argmax S(h). The oracle is the setting with the highest
accuracy. The question is that of Cygert et al., arXiv 2407.14231.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ttabench.corruptions.corruption_names import EXTRA_CORRUPTIONS
from ttabench.errors import NothingToReport, unknown
from ttabench.store.columns import COSTLY_SCORES, MISSING
from ttabench.store.columns import SCORES as STORED
from ttabench_reports.cells.frames import differences
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence.groups import groups, which_weights
from ttabench_reports.evidence.report import Report
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN

EXTRA = "extra"
SCORES = (*STORED, EXTRA)
"""Those of `ttabench.observe.label_free_scores`, and the mean accuracy on the four extra corruptions."""


@dataclass(frozen=True)
class Setting:
    """One setting of a method: its row, and its scores, NaN where one is missing.

    gaps   what is missing, as texts, by score; "" is the accuracy.
    """

    name: str
    row: Row
    accuracy: float
    scores: dict[str, float]
    gaps: dict[str, str]


@dataclass(frozen=True)
class Choice:
    """What a score chooses among the settings of a method on an architecture, for one of its weights.

    weights       ``weights 1a2b3c4d``, if there are several of this architecture.
    compared      settings with a score and an accuracy.
    oracle        the best setting with an accuracy, also where it has no score.
    left_out      the others, each with the reason, planned ones without a cell included.
    correlation   Spearman's rank correlation of score and accuracy over the settings; NaN below 3 of them.
    """

    table: Table
    arch: str
    weights: str
    method: str
    mode: str
    score: str
    compared: tuple[Setting, ...]
    left_out: dict[str, str]
    chosen: Setting | None
    oracle: Setting | None
    correlation: float

    @property
    def gap(self) -> float:
        """Points of accuracy that choosing by the score loses against the oracle."""
        if self.chosen is None or self.oracle is None:
            return math.nan
        return self.oracle.accuracy - self.chosen.accuracy

    @property
    def tied(self) -> tuple[Setting, ...]:
        """The settings with the highest score, of which the first one is `chosen`."""
        highest = self.chosen.scores[self.score] if self.chosen else math.nan
        return tuple(one for one in self.compared if math.isclose(one.scores[self.score], highest))


def choices(report: Report, names: Sequence[str]) -> list[Choice]:
    """What each score chooses for each method with several settings. Of equal scores, the first wins.

    names  of :data:`SCORES`, or ``all``: those that any cell has. Raises UserError for another name, and
    NothingToReport where no method has several settings or no cell has such a score.
    """
    for name in names:
        if name not in (*SCORES, "all"):
            raise unknown("score", name, (*SCORES, "all"))
    made: list[Choice] = []
    several = False
    for table in report.tables:
        for (arch, weights, method, mode), rows in _methods(table).items():
            settings = [_setting(*named, table, report) for named in zip(_names(rows), rows, strict=True)]
            planned = _without_cells(report, table, arch, method)
            several |= len(settings) + len(planned) > 1
            if len(settings) + len(planned) < 2:
                continue
            wanted = SCORES if "all" in names else names
            where = (table, arch, weights, method, mode)
            made += [_choice(*where, name, settings, planned) for name in wanted]
    if not several:
        raise NothingToReport(
            "no method has several settings to choose from; sweep some with --set, e.g. "
            "--set tent.lr=1e-4,1e-3,1e-2."
        )
    known = {choice.score for choice in made if choice.compared}
    if lacking := [name for name in names if name != "all" and name not in known]:
        raise NothingToReport(f"no setting has the score {lacking[0]}; {_how(lacking[0])}.")
    return [choice for choice in made if choice.score in known]


def _how(score: str) -> str:
    if score == EXTRA:
        return "sweep the fifteen and the extra corruptions: --corruptions every"
    return "run the sweep again" + (" with --scores all" if score in COSTLY_SCORES else "")


def _methods(table: Table) -> dict[tuple[str, str, str, str], list[Row]]:
    """The rows of each method on an architecture, by weights and mode."""
    every = {arch: list(groups(rows)) for arch, rows in table.archs().items()}
    return grouped(
        ((row.arch, which_weights([row], every[row.arch]), row.about["base"], row.about["mode"]), row)
        for row in table.rows
        if row.kind == "method"
    )


def _without_cells(report: Report, table: Table, arch: str, method: str) -> dict[str, str]:
    """Planned settings of a method that have no cell here."""
    there = {row.about["method"] for row in table.measured_rows if row.arch == arch}
    return {
        _name(one.method, method): "no cell is measured yet"
        for one in report.cells.attrs.get(MISSING, ())
        if (one.base, one.arch, one.dataset, one.severity)
        == (method, arch, table.key["dataset"], table.key["severity"])
        and one.method not in there
    }


def _name(label: str, method: str) -> str:
    """``tent[lr=0.01]`` → ``lr=0.01``; the method alone is its defaults."""
    name = label.removeprefix(method)
    return name.replace("[", "", 1).replace("]", "", 1).strip() or "defaults"


def _names(rows: Sequence[Row]) -> list[str]:
    """The settings of the rows of a choice, and what else differs: ``defaults (batch size 64)``."""
    also = ["batch_size", "epochs", "pace_ratio", "config"]
    about = pd.DataFrame([{name: row.about[name] for name in ("method", *also)} for row in rows])
    others = differences(about, ["method"], also)
    names = [_name(row.about["method"], row.about["base"]) for row in rows]
    return [f"{name} ({other})" if other else name for name, other in zip(names, others, strict=True)]


def _setting(called: str, row: Row, table: Table, report: Report) -> Setting:
    scores: dict[str, float] = {}
    gaps: dict[str, str] = {}
    accuracy = row.value(MEAN)
    if math.isnan(accuracy):
        numbers = sum(map(row.complete, table.main))
        word = row.words.get(MEAN, "")
        gaps[""] = "n/a" if word == "n/a" else f"measured on {numbers} of {len(table.main)} corruptions"
    cells = report.cells_of(row)
    stored = cells.loc[cells["corruption"].isin(table.main), list(STORED)]
    for name in STORED:
        scores[name] = stored[name].mean(skipna=False)
        if math.isnan(scores[name]):
            gaps[name] = f"{stored[name].count()} of {len(stored)} cells have the score"
    whole = [row.value(name) for name in EXTRA_CORRUPTIONS if row.complete(name)]
    scores[EXTRA] = sum(whole) / len(whole) if len(whole) == len(EXTRA_CORRUPTIONS) else math.nan
    if {*table.main} <= {*EXTRA_CORRUPTIONS}:  # the score would choose by what it is judged by
        scores[EXTRA] = math.nan
        gaps[EXTRA] = "it is the accuracy itself: only extra corruptions are measured"
    elif math.isnan(scores[EXTRA]):
        gaps[EXTRA] = f"measured on {len(whole)} of {len(EXTRA_CORRUPTIONS)} extra corruptions"
    return Setting(called, row, accuracy, scores, gaps)


def _choice(
    table: Table, arch: str, weights: str, method: str, mode: str, score: str,
    settings: Sequence[Setting], planned: dict[str, str],
) -> Choice:  # fmt: skip
    left_out = {one.name: one.gaps.get("") or one.gaps[score] for one in settings if _lacks(one, score)}
    compared = [one for one in settings if not _lacks(one, score)]
    measured = [one for one in settings if not math.isnan(one.accuracy)]
    return Choice(
        table, arch, weights, method, mode, score, tuple(compared), {**left_out, **planned},
        chosen=max(compared, key=lambda one: one.scores[score], default=None),
        oracle=max(measured, key=lambda one: one.accuracy, default=None),
        correlation=_correlation([(one.scores[score], one.accuracy) for one in compared]),
    )  # fmt: skip


def _lacks(setting: Setting, score: str) -> bool:
    return math.isnan(setting.accuracy) or math.isnan(setting.scores[score])


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    from scipy.stats import spearmanr

    scores, accuracies = [score for score, _ in pairs], [accuracy for _, accuracy in pairs]
    if len(pairs) < 3 or len(set(scores)) < 2 or len(set(accuracies)) < 2:
        return math.nan  # a constant has no ranks
    return float(spearmanr(scores, accuracies).statistic)


def frame(made: Sequence[Choice]) -> pd.DataFrame:
    """One line per method, architecture and score; accuracies in percent, unrounded."""
    lines = []
    for choice in made:
        chosen, oracle = choice.chosen, choice.oracle
        lines.append({
            "table": choice.table.title, "dataset": choice.table.key["dataset"],
            "severity": choice.table.key["severity"], "arch": choice.arch,
            "weights": choice.weights, "method": choice.method,
            "mode": choice.mode, "score": choice.score,
            "settings": len(choice.compared) + len(choice.left_out),
            "compared": len(choice.compared), "chosen": chosen.name if chosen else "",
            "tied": len(choice.tied),
            "accuracy": chosen.accuracy if chosen else math.nan, "oracle": oracle.name if oracle else "",
            "oracle_accuracy": oracle.accuracy if oracle else math.nan, "gap": choice.gap,
            "rank_correlation": choice.correlation,
            "missing": "; ".join(f"{name}: {why}" for name, why in choice.left_out.items()),
        })  # fmt: skip
    return pd.DataFrame(lines)


def settings_frame(made: Sequence[Choice]) -> pd.DataFrame:
    """One line per setting that was measured: its accuracy and its scores."""
    lines = {}
    for choice in made:
        for one in choice.compared:
            lines[id(one.row)] = {
                "table": choice.table.title, "arch": choice.arch, "weights": choice.weights,
                "method": choice.method, "mode": choice.mode, "setting": one.name,
                "seeds": one.row.about["seeds"], "accuracy": one.accuracy, **one.scores,
            }  # fmt: skip
    return pd.DataFrame(list(lines.values()))
