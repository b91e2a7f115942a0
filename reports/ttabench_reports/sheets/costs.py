"""The cost of each method: time, passes, adapted parameters and memory."""

from __future__ import annotations

import math

from ttabench.provenance.staleness import attested_note
from ttabench_reports.cells import costs_apart
from ttabench_reports.evidence import gains_and_costs
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.sheets.footnotes import NAMES, TableNotes, groups
from ttabench_reports.sheets.sheet import Entry, Head, Line, Sheet
from ttabench_reports.tables.rows_of_cells import MEASURED
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.naming import MEAN

FOOTER = (
    "Medians over the cells. C: time of adapting and scoring over that of Source's forward pass on the same "
    "images. Forward, backward: passes per image of the stream, teachers and copies of the model included; "
    "images that the loss leaves out have no backward pass. Parameters: numbers that are adapted. "
    "Host: how far resident memory rose while the method ran, in MB. {device}"
    "Times hold for {where}; passes hold everywhere."
)
SHARED = "Up to {:g} workers shared a GPU, which makes times longer."
RECOMPUTED = "Activations were recomputed in the backward pass, which takes longer and needs less memory."
APART = "Times and memory were measured separately, without other work on the machine, on {}."
FRACTIONS = ("compute_ratio", "ms_per_image", "forward_passes", "backward_passes")
"""The numbers of :data:`MEASURED` that may have decimals."""
IN_WORDS = (
    "times Source's forward pass", "ms per image", "forward passes per image", "backward passes per image",
    "adapted parameters", "MB more of host memory", "MB of device memory",
)  # fmt: skip
"""What the numbers of :data:`MEASURED` count."""


def cost(report: Report) -> Sheet | None:
    """None where no cell has a cost."""
    rows = [row for table in report.tables for row in table.measured_rows]
    if not any(row.about["costs"] for row in rows):
        return None
    notes = TableNotes()
    on_device = any(row.about["device_mb"] > 0 for row in rows)

    def line(table: Table, row: Row, first: bool) -> Line:
        model, name, given = notes.names([row], model=first)
        said = filter(None, (gains_and_costs.lacks(row), gains_and_costs.doubt(row)))
        name = name._replace(marks=name.marks + "".join(map(notes.mark, said)))
        accuracy = notes.accuracy(row, table, ranked=False)
        missing = "" if row.about["measured"] else row.words.get(MEAN, "")
        numbers = [words.known(text or missing, small=not text) for text in _texts(row)]
        batch = Entry(str(row.about["batch_size"]))
        return [model, name, given, batch, accuracy, *(numbers if on_device else numbers[:-1])]

    parts = groups(report.tables, line)
    titles = ("Batch", "Accuracy", "C", "ms/image", "Forward", "Backward", "Parameters", "Host")
    heads = [*NAMES, *map(Head, (*titles, "Device") if on_device else titles)]
    devices = sorted({name for row in rows for name in gains_and_costs.device(row).split(", ") if name})
    footer = FOOTER.format(
        device="Device: peak of the memory that was allocated on the GPU, in MB. " if on_device else "",
        where=f"the device used ({', '.join(devices)})",
    )
    apart = costs_apart.APART in report.cells.attrs
    attested = "" if apart else attested_note(report.cells.get("attested", ()))
    footer = words.join(footer, timed(report), attested, words.remarks(report.tables), words.GIVEN)
    caption = words.join(
        f"Cost of adaptation, beside the mean accuracy (%) {words.over(report.tables)}.",
        words.measured(report.tables),
    )
    sheet = Sheet("cost", caption, footer, heads, parts, labels=2, notes=notes.texts, wide=True)
    return words.with_dashes_said(sheet)


def timed(report: Report, *, apart: bool = True) -> str:
    """What is to be known of how times were measured, in sentences; "" where it is as usual.

    apart  whether the times are those of `--costs`, where there are any: seconds never are.
    """
    if apart and costs_apart.APART in report.cells.attrs:
        return APART.format(report.cells.attrs[costs_apart.APART])
    shared = costs_apart.per_gpu(report.cells)
    return words.join(
        SHARED.format(shared) if shared > 1 else "",
        RECOMPUTED if costs_apart.recomputed(report.cells) else "",
    )


def in_words(row: Row) -> str:
    """The cost of a row in one line, as far as it is known: ``2.8 times Source's forward pass; …``."""
    known = zip(_texts(row), IN_WORDS, strict=True)
    return "; ".join(f"{text} {meaning}" for text, meaning in known if text)


def _texts(row: Row) -> list[str]:
    """What is known of the cost of a row, in the order of :data:`MEASURED`; "" for what is not."""
    return [
        _decimals(row.about[name], whole=name.endswith("_passes")) if name in FRACTIONS
        else _count(row.about[name])
        for name in MEASURED
    ]  # fmt: skip


def _decimals(value: float, *, whole: bool = False) -> str:
    """Three digits: ``0.912``, ``3.31``, ``24.8``, ``105``; with `whole`, ``1`` for 1.0."""
    if math.isnan(value):
        return ""
    if whole and value == round(value):
        return f"{value:,.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(decimals, 3)}f}"


def _count(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"
