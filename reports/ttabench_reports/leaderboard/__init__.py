"""A static site from several results folders: one ranking for each protocol, and a page for each folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ttabench.errors import UserError
from ttabench.provenance.staleness import attested_note
from ttabench_reports import page
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import csv_files
from ttabench_reports.formats.files import write_text
from ttabench_reports.leaderboard import entries, joined_folders
from ttabench_reports.page import details, render

INDEX, CSV = "index.html", "leaderboard.csv"

__all__ = ["CSV", "INDEX", "build"]


def build(paths: Sequence[Path | str], out: Path) -> list[Path]:
    """Write ``index.html``, ``leaderboard.csv`` and ``NAME.html`` of each folder to `out`; their paths.

    Every accuracy is recomputed from the stored correctness of the images. Raises UserError for a record that
    does not agree with its images, with file and line, and for what is not a results folder.
    """
    read = joined_folders.read(paths)
    merged, repeats = joined_folders.merge(read)
    report = Report(merged)
    groups = entries.groups(report, {folder.name: folder.page for folder in read})
    listed = [entry for group in groups for entry in group.entries]
    if not listed:
        raise UserError(f"{', '.join(map(str, paths))}: no method has a number; there is nothing to rank.")
    index = render.template(
        "leaderboard.html.j2",
        groups=groups,
        filters=entries.filters(groups),
        costs=entries.COSTS,
        several_seeds=any(entry.row.about["seeds"] > 1 for entry in listed),
        folders=[joined_folders.about(folder, repeats) for folder in read],
        attested=attested_note(report.kept.get("attested", ())),
        csv=CSV,
        data=details.details(report, cells=False, pages={one.line.number: one.page for one in listed}),
        title="Leaderboard",
    )
    table = pd.DataFrame(entries.table(groups), columns=list(entries.COLUMNS)).astype({"rank": "Int64"})
    written = [write_text(out / INDEX, index), csv_files.write_csv(out / CSV, table)]
    for folder in read:
        html = page.html(Report(folder.cells), back=INDEX, name=folder.name)
        written.append(write_text(out / folder.page, html))
    return written
