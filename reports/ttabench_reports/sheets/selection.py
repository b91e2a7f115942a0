"""The settings that label-free scores choose, beside the best ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ttabench_reports.cells.grouped import grouped
from ttabench_reports.evidence.selection import Choice, Setting
from ttabench_reports.sheets import words
from ttabench_reports.sheets.footnotes import TableNotes
from ttabench_reports.sheets.sheet import Entry, Group, Head, Line, Sheet
from ttabench_reports.tables.table import LABEL, OFFLINE
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN

NAMES = {
    "entropy": "Entropy", "infomax": "InfoMax", "nuclear_norm": "Nuclear norm", "snd": "SND",
    "consistency": "Consistency", "source_accuracy": "Source accuracy", "extra": "Extra corruptions",
}  # fmt: skip
FOOTER = (
    "Each score chooses the setting of a method with the highest score; the best setting is chosen with the "
    "labels. Gap: the difference of the printed accuracies. ρ: Spearman's rank correlation of score "
    "and accuracy over the settings, from three of them on. Entropy, InfoMax, nuclear norm and SND come from "
    "the predictions on the target images; consistency from predictions for moved images; source accuracy "
    "from labelled source images after adapting; extra corruptions from their labels."
)


def sheet(made: Sequence[Choice]) -> Sheet:
    groups: dict[str, dict[tuple[str, ...], list[Line]]] = {}
    notes = TableNotes()
    for choice in made:
        blocks = groups.setdefault(choice.table.heading, {})
        block = blocks.setdefault((choice.arch, choice.weights, choice.method, choice.mode), [])
        block.append(_line(choice, notes, first=not block))
    parts = [Group(heading, list(blocks.values())) for heading, blocks in groups.items()]
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Score", "l"), Head("Settings"),
             Head("Chosen", "l"), Head("Accuracy"), Head("Best", "l"), Head("Accuracy"), Head("Gap"),
             Head("ρ")]  # fmt: skip
    tables = list({id(choice.table): choice.table for choice in made}.values())
    caption = words.join(
        f"Choosing settings without labels: mean accuracy (%) {words.over(tables)}.", words.measured(tables)
    )
    footer = words.join(FOOTER, words.remarks(tables))
    return Sheet(
        "select", caption, footer, heads, parts, labels=3, notes=notes.texts, spared=(3, 6), wide=True
    )


def _line(choice: Choice, notes: TableNotes, *, first: bool) -> Line:
    chosen, oracle = choice.chosen, choice.oracle
    said = [f"left out: {name}, {why}" for name, why in choice.left_out.items()] + _seeds(choice)
    marks = "".join(sorted(set(map(notes.mark, said))))
    total = len(choice.compared) + len(choice.left_out)
    count = str(total) if not choice.left_out else f"{len(choice.compared)} of {total}"
    method = Entry(naming.base(choice.method), marks=OFFLINE if choice.mode == "offline" else "")
    gap = math.nan
    if chosen and oracle:
        gap = float(f"{oracle.accuracy:.1f}") - float(f"{chosen.accuracy:.1f}")
    return [
        Entry(naming.network(choice.arch, choice.weights) if first else ""),
        method if first else Entry(""),
        Entry(NAMES[choice.score]), Entry(count, marks=marks),
        Entry(_spaced(chosen.name) if chosen else "–", marks=_tie(choice, notes)),
        _accuracy(chosen, notes),
        Entry(_spaced(oracle.name) if oracle else "–"),
        _accuracy(oracle, notes),
        words.known(words.number(gap)),
        Entry("–" if math.isnan(choice.correlation) else words.minus(f"{choice.correlation:.2f}")),
    ]  # fmt: skip


def _accuracy(setting: Setting | None, notes: TableNotes) -> Entry:
    """With the marks of its row, but for that of offline ones, which the method has."""
    if setting is None:
        return Entry("–")
    marks = setting.row.flags.replace(OFFLINE, "") + notes.letters(setting.row, LABEL, MEAN)
    return Entry(words.number(setting.accuracy), marks=marks)


def _seeds(choice: Choice) -> list[str]:
    """A note where settings have different seeds: their accuracies and scores are of other streams."""
    names = grouped((one.row.about["seed_names"], one.name) for one in choice.compared)
    several = [f"{', '.join(map(str, seeds))} ({', '.join(of)})" for seeds, of in names.items()]
    return [f"settings with different seeds: {'; '.join(several)}"] if len(several) > 1 else []


def _tie(choice: Choice, notes: TableNotes) -> str:
    """The letter of a note, where the score does not say which of several settings is the best."""
    if len(choice.tied) < 2:
        return ""
    accuracies = [one.accuracy for one in choice.tied]
    low, high = words.number(min(accuracies)), words.number(max(accuracies))
    return notes.mark(
        f"{len(choice.tied)} settings have the highest score, with accuracies of at least {low} and at most "
        f"{high}; the first one counts as chosen"
    )


def _spaced(name: str) -> str:
    return name.replace(",", ", ").replace(",  ", ", ")
