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
    from ttabench.cli._display import clock
    from ttabench.cli._progress_of import STATES, progress_of
    from ttabench.cli._table import columns
    from ttabench.corruptions.names import NATURAL, NO_SEVERITY
    from ttabench.errors import printable
    from ttabench.store import Store

    store = Store.at(results)
    asked = store.sweep()
    for key, value in asked.items():
        if value not in ("", 0, []):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            print(f"{key:<13} {printable(text)}")
    cells = store.frame()
    for dataset, own in cells.groupby("dataset"):
        if other := [c for c in own["corruption"].unique() if c not in asked.get("corruptions", ())]:
            text = "a natural shift, without corruptions and severities"
            if other != [NATURAL]:
                text = f"has {', '.join(other)}"
            print(f"{dataset:<13} {printable(text)}")
    rows = progress_of(store, cells)
    total, done = int(rows[list(STATES)].to_numpy().sum()), int(rows["done"].sum() + rows["n/a"].sum())
    counts = ", ".join(f"{int(rows[state].sum())} {state}" for state in STATES)
    print(f"{'cells':<13} {total}: {counts}")
    if left := float(rows["left"].sum()):
        print(f"{'left':<13} about {clock(left)} of work for one worker, from the cells that are done")
    for (base, why), stale in cells[cells["stale"]].groupby(["base", "stale_because"]):
        print(f"{'stale':<13} {len(stale)} cells of {base} were made with other code: {why}")
    if done < total:
        print()
        shown = rows.assign(left=[clock(s) if s > 0 else "" for s in rows["left"].fillna(0.0)])
        columns(shown[(rows["done"] + rows["n/a"]) < rows[list(STATES)].sum(axis=1)])
    if len(failed := cells[cells["status"] == "failed"]):
        print()
        failed = failed.assign(severity=failed["severity"].astype(str).replace(str(NO_SEVERITY), "–"))
        columns(failed[["method", "arch", "dataset", "corruption", "severity", "seed", "reason"]])
