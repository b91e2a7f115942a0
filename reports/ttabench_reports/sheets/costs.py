"""The cost of each method: time, passes, adapted parameters and memory."""

from __future__ import annotations

import math

from ttabench_reports.cells import costs_apart
from ttabench_reports.evidence import costs
from ttabench_reports.evidence.report import Report
from ttabench_reports.sheets import words
from ttabench_reports.sheets.sheet import Entry, Group, Head, Line, Sheet
from ttabench_reports.sheets.table_notes import TableNotes, measured_rows
from ttabench_reports.tables.table import Row
from ttabench_reports.words.naming import MEAN

FOOTER = (
    "Medians over the cells. C: time of adapting and scoring over that of Source's forward pass on the same "
    "images. Forward, backward: passes per image of the stream, teachers and copies of the model included; "
    "images that the loss leaves out have no backward pass. Parameters: numbers that are adapted. "
    "Host: how far resident memory rose while the method ran, in MB. {device}"
    "Times hold for {where}; passes hold everywhere."
)
APART = "Times and memory were measured apart, with nothing beside, on {}."


def cost(report: Report) -> Sheet | None:
    """None where no cell has a cost."""
    parts, notes = [], TableNotes()
    rows = [row for table in report.tables for row in measured_rows(table)]
    if not any(row.about["costs"] for row in rows):
        return None
    on_device = any(row.about["device_mb"] > 0 for row in rows)
    for table in report.tables:
        blocks: list[list[Line]] = []
        for arch, rows_of_arch in words.archs(measured_rows(table)).items():
            block: list[Line] = []
            for row in rows_of_arch:
                name = notes.label(row)
                said = filter(None, (costs.lacks(row), costs.doubt(row)))
                marks = name.marks + "".join(map(notes.mark, said))
                block.append([
                    Entry(arch if not block else ""), Entry(name.text, marks=marks), words.short(row),
                    Entry(str(row.about["batch_size"])), notes.accuracy(row, table, ranked=False),
                    *_numbers(row, on_device),
                ])  # fmt: skip
            blocks.append(block)
        parts.append(Group(table.heading, blocks))
    heads = [Head("Model", "l"), Head("Method", "l"), Head("Given", "l"), Head("Batch"), Head("Accuracy"),
             Head("C"), Head("ms/image"), Head("Forward"), Head("Backward"), Head("Parameters"),
             Head("Host"), *([Head("Device")] if on_device else [])]  # fmt: skip
    devices = sorted({name for row in rows for name in costs.device(row).split(", ") if name})
    footer = FOOTER.format(
        device="Device: peak of the memory that was allocated on the GPU, in MB. " if on_device else "",
        where=f"the device used ({', '.join(devices)})",
    )
    if costs_apart.APART in report.cells.attrs:
        footer = words.join(footer, APART.format(report.cells.attrs[costs_apart.APART]))
    footer = words.join(footer, words.remarks(report.tables), words.GIVEN)
    caption = words.join(
        f"Cost of adaptation, beside the mean accuracy (%) {words.over(report.tables)}.",
        words.measured(report.tables),
    )
    return Sheet("cost", caption, footer, heads, parts, labels=2, notes=notes.texts, spared=(3, 6))


def in_words(row: Row) -> str:
    """The cost of a row in one line, as far as it is known: ``2.8 times Source's forward pass; …``."""
    about = row.about
    known = (
        (_decimals(about["compute_ratio"]), "{} times Source's forward pass"),
        (_decimals(about["ms_per_image"]), "{} ms per image"),
        (_decimals(about["forward_passes"], whole=True), "{} forward passes per image"),
        (_decimals(about["backward_passes"], whole=True), "{} backward passes per image"),
        (_count(about["adapted_parameters"]), "{} adapted parameters"),
        (_count(about["host_mb"]), "{} MB more of host memory"),
        (_count(about["device_mb"]), "{} MB of device memory"),
    )
    return "; ".join(meaning.format(text) for text, meaning in known if text)


def _numbers(row: Row, on_device: bool) -> list[Entry]:
    about = row.about
    texts = [
        _decimals(about["compute_ratio"]),
        _decimals(about["ms_per_image"]),
        _decimals(about["forward_passes"], whole=True),
        _decimals(about["backward_passes"], whole=True),
        _count(about["adapted_parameters"]),
        _count(about["host_mb"]),
    ]
    if on_device:
        texts.append(_count(about["device_mb"]))
    missing = row.words.get(MEAN, "–") if not about["measured"] else "–"
    return [Entry(text or missing, small=not text) for text in texts]


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
