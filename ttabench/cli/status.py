"""``ttabench status``: how far a results folder is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument


def register(app: typer.Typer) -> None:
    app.command()(status)


def status(results: Annotated[Path, Argument(metavar="DIR", help="A results folder.")]) -> None:
    """What was asked for, what is done, what failed and why, what is stale."""
    from ttabench.cli._table import columns
    from ttabench.store import Store

    store = Store.at(results)
    asked = store.sweep()
    for key, value in asked.items():
        if value not in ("", 0, []):
            print(f"{key:<13} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    cells = store.frame()
    counts = cells["status"].value_counts()
    done = ", ".join(f"{counts.get(s, 0)} {s}" for s in ("ok", "failed", "n/a"))
    print(f"{'stored':<13} {done}")
    if stale := int(cells["stale"].sum()):
        print(f"{'stale':<13} {stale} cells were made with other code of their method than what is installed")
    if len(failed := cells[cells["status"] == "failed"]):
        print()
        columns(failed[["method", "arch", "dataset", "corruption", "severity", "seed", "reason"]])
