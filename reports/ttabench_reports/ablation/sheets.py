"""Ablations as tables to print."""

from __future__ import annotations

import math

from ttabench_reports.ablation.find import Ablation, Point, letters, rows_of_cross
from ttabench_reports.evidence.given import given
from ttabench_reports.evidence.places import places, untested_among
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Emphasis, Entry, Group, Head, Line, Sheet
from ttabench_reports.tables.rows import DASH
from ttabench_reports.tables.table import LEGEND, OFFLINE, Row
from ttabench_reports.words import naming
from ttabench_reports.words.naming import MEAN


def paper(ablation: Ablation, name: str) -> Sheet:
    """The shape of the paper's table: data, model, settings and accuracy, a line per combination."""
    start = [naming.dataset(str(ablation.table.key["dataset"])), naming.arch(ablation.about["arch"])]
    lines: list[Line] = []
    for point in ablation.points:
        first = start if not lines else [""] * len(start)
        texts = [*first, *(value.text for value in point)]
        lines.append([*map(Entry, texts), _cell(ablation, point)])
    titles = [*map(_title, ablation.settings), "Accuracy"]
    heads = [Head("Dataset", "l"), Head("Model", "l"), *map(Head, titles)]
    return Sheet(
        name, _caption(ablation), _footer(ablation), heads, [Group("", [lines])], (), 2, _notes(ablation)
    )


def cross(ablation: Ablation, name: str) -> Sheet:
    """The first setting down, the second across."""
    *down, across = ablation.settings
    corner = Head(_title(down[0]) if down else "", "r" if down else "l")
    lines = [
        [Entry(label if down else naming.method(label)), *(_cell(ablation, (*start, v)) for v in columns)]
        for label, start, columns in rows_of_cross(ablation)
    ]
    heads = [corner, *(Head(value.text) for value in ablation.axes[-1])]
    over = [("", 1), (_title(across), len(heads) - 1)]
    return Sheet(
        name, _caption(ablation), _footer(ablation), heads, [Group("", [lines])], over, 1, _notes(ablation)
    )


def _cell(ablation: Ablation, point: Point) -> Entry:
    row = ablation.rows.get(point)
    if row is None:
        return Entry(DASH)
    value = row.value(MEAN)
    marks = row.flags.replace(OFFLINE, "") + "".join(letters(row))
    if math.isnan(value):
        return Entry(row.words.get(MEAN, DASH), marks=marks)
    marked = places(list(ablation.rows.values()), ablation.table, MEAN)
    place: Emphasis = next((place for other, place in marked if other is row), "")
    return Entry(words.number(value), row.spread(MEAN), marks, place)


def _caption(ablation: Ablation) -> str:
    """What was measured, Source beside it, protocol, seeds."""
    about, main = ablation.about, ablation.table.main
    under = f"mean over {len(main)} corruptions" if len(main) > 1 else naming.title(main[0])
    sentences = [
        f"Accuracy (%, {under}) of {naming.base(about['base'])} on "
        f"{naming.network(about['arch'], ablation.weights)}, {ablation.table.heading}, "
        f"by {' and '.join(map(_words, ablation.settings))}."
    ]
    source = next((row.printed_baseline for row in ablation.rows.values() if row.baseline), None)
    if source and not math.isnan(source.value(MEAN)):
        sentences.append(f"Source: {naming.number(source.value(MEAN))}.")
    sentences.append(f"Protocol: {ablation.protocol}.")
    seeds = sorted({row.about["seeds"] for row in ablation.rows.values()})
    if seeds[-1] > 1:
        sentences.append(f"Mean and standard deviation over {naming.span(seeds)} seeds.")
    return " ".join([*sentences, *ablation.table.remarks])


def _footer(ablation: Ablation) -> str:
    rows = list(ablation.rows.values())
    tested = any(row.correct for row in rows)
    had = [given(row.about) for row in rows]
    sources, epochs = sorted({one.source for one in had}), sorted({one.epochs for one in had})
    times = f"; {naming.span(epochs)} epochs over the test images" if had[0].epochs else ""
    ties = (
        "that do not differ from it significantly (paired test, 5\u00a0%, Holm-corrected)"
        if tested
        else "with the same printed number"
    )
    return words.join(
        f"Bold: the best result, and results {ties}. Underlined: the second best.",
        words.NOT_TESTED if untested_among(rows, ablation.table) else "",
        words.WEAK if tested and any(row.about["seeds"] in words.FEW_SEEDS for row in rows) else "",
        f"Given of the source data: {', '.join(sources)}{times}.",
    )


def _notes(ablation: Ablation) -> dict[str, str]:
    rows: list[Row] = list(ablation.rows.values())
    used = sorted({letter for row in rows for letter in letters(row)})
    flags = {flag: text for flag, text in LEGEND.items() if flag != OFFLINE}
    return {**flags, **{letter: ablation.table.notes.text(letter) for letter in used}}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _title(name: str) -> str:
    return _words(name).capitalize()
