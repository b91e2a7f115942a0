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
    from ttabench.errors import printable
    from ttabench.store import Store

    store = Store.at(results)
    asked = store.sweep()
    for key, value in asked.items():
        if value not in ("", 0, []):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            print(f"{key:<13} {printable(text)}")
    cells = store.frame()
    counts = cells["status"].value_counts()
    done = ", ".join(f"{counts.get(s, 0)} {s}" for s in ("ok", "failed", "n/a"))
    print(f"{'stored':<13} {done}")
    for (base, why), stale in cells[cells["stale"]].groupby(["base", "stale_because"]):
        print(f"{'stale':<13} {len(stale)} cells of {base} were made with other code: {why}")
    if len(failed := cells[cells["status"] == "failed"]):
        print()
        columns(failed[["method", "arch", "dataset", "corruption", "severity", "seed", "reason"]])
