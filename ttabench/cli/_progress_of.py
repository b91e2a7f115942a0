"""How far a results folder is, per method and architecture. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttabench.store import Store

if TYPE_CHECKING:
    import pandas as pd

STATES = ("done", "failed", "stale", "missing", "n/a")


def progress_of(store: Store, cells: pd.DataFrame) -> pd.DataFrame:
    """One row per method × architecture × dataset: cells by state, and the seconds that are left.

    cells     what ``store.frame()`` gives.
    missing   planned and not stored. Where no plan was kept, only what is stored is counted.
    left      seconds of work for what is missing, failed or stale, on one worker, from the mean of the cells
              of the row that are done; NaN where none is.
    """
    import pandas as pd

    states = cells["status"].map({"ok": "done", "failed": "failed", "n/a": "n/a"})
    states[cells["stale"] & (cells["status"] == "ok")] = "stale"
    stored = cells.assign(state=states)[["cell_id", "method", "arch", "dataset", "state", "seconds"]]
    plan = pd.DataFrame(store.plan(), columns=["id", "method", "arch", "dataset"])
    missing = plan[~plan["id"].isin(stored["cell_id"])]
    missing = missing.rename(columns={"id": "cell_id"}).assign(state="missing", seconds=float("nan"))
    every = pd.concat([stored, missing]) if len(missing) else stored
    place = ["method", "arch", "dataset"]
    counts = every.groupby([*place, "state"], sort=False).size().unstack(fill_value=0)
    counts = counts.reindex(columns=list(STATES), fill_value=0)
    mean = stored[stored["state"] == "done"].groupby(place)["seconds"].mean()
    left = counts[["failed", "stale", "missing"]].sum(axis=1)
    counts["left"] = (left * mean.reindex(counts.index)).where(left > 0, 0.0)
    return counts.reset_index()
