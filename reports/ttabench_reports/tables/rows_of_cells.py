"""Which rows the cells of a report make, and what all cells of a row say."""

from __future__ import annotations

import math

import pandas as pd

from ttabench.store.record_values import LARGEST
from ttabench.store.table import varying
from ttabench_reports.cells.frames import DETAILS, ROW, TABLE, differences, joined

MEASURED = ("compute_ratio", "ms_per_image", "forward_passes", "backward_passes", "adapted_parameters",
            "host_mb", "device_mb")  # fmt: skip
"""What is known of the cost of a row: medians over its cells, see `ttabench.observe.cost.Meter.cost`.

Passes are per image of the stream.
"""

OF_METHOD = ("source_data", "source_used", "scored_classes", "about_method")
"""What results say of their method beside the number; cells that failed may lack it."""


def rows_of_cells(cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The cells with the number of their `row`; and the rows, each with what its cells say."""
    per_image = {f"{kind}_passes": cells[kind] / cells["images"] for kind in ("forward", "backward")}
    measured = cells["accuracy"].notna()
    seconds = cells["seconds"].where(measured)  # a cell that failed has 0
    # One that did not run is stored with the device of the process that planned it.
    codes, devices = pd.factorize(cells["device"].where(measured & (cells["device"] != "")), sort=True)
    device_codes = pd.Series(codes, cells.index).where(codes >= 0)
    # Infinite where a measured cell does not say it, so that a row has 0 only if all its cells have.
    said = [_resets(details) for details in cells[DETAILS]]
    resets = pd.Series(said, cells.index, dtype=float).fillna(math.inf).where(measured)
    frame = cells.assign(**per_image, device_code=device_codes, seconds=seconds, resets=resets)
    same = [*TABLE, *ROW]
    frame = frame.assign(row=frame.groupby(varying(frame, same), sort=False).ngroup())
    rows = frame.groupby("row").agg(
        seeds=("seed", "nunique"), n_images=("n_images", "max"), clean_accuracy=("clean_accuracy", "first"),
        seconds=("seconds", "median"), stale=("stale", "any"), measured=("accuracy", "count"),
        costs=("compute_ratio", "count"), first_device=("device_code", "min"),
        last_device=("device_code", "max"), resets=("resets", "max"),
        **{name: (name, "median") for name in MEASURED},
    )  # fmt: skip
    rows = pd.concat([frame.drop_duplicates("row").set_index("row")[same], rows], axis=1).reset_index()
    for name in ("first_device", "last_device"):
        rows[name] = ["" if math.isnan(code) else devices[int(code)] for code in rows[name]]
    for name in OF_METHOD:
        rows[name] = _texts_of_rows(frame, name, len(rows))
    rows["difference"] = _variants(rows)
    return frame, rows


def _resets(details: object) -> object:
    """How often a method was reset; None where it does not say it, or says something else under this name."""
    said = details.get("resets") if isinstance(details, dict) else None
    return said if isinstance(said, int | float) and abs(said) <= LARGEST else None


def _variants(rows: pd.DataFrame) -> pd.Series[str]:
    """What tells the rows of one method apart, such as ``offline, 10 epochs``.

    Also those at other severities, which stand beside them in tables and curves; Source does not adapt.
    Online rows do not say that they are online, and settings that differ between the modes are not named.
    Where a network has several weights, each of its rows says which: also a method that has one of them.
    """
    method = [*TABLE, "arch", "method"]
    beside = [name for name in method if name != "severity"]
    network = [name for name in beside if name != "method"]
    adapts = rows["base"] != "source"
    offline = (rows["mode"] == "offline") & (rows.groupby(beside)["mode"].transform("nunique") > 1) & adapts
    parts = [
        differences(rows, network, ["checkpoint"]),
        offline.map({True: "offline", False: ""}),
        differences(rows, [*beside, "mode"], ["batch_size", "epochs"]).where(adapts, ""),
        differences(rows, [*method, "mode"], ["pace_ratio"]),  # each sweep measures it
        differences(rows, [*beside, "mode"], ["config"]),
    ]
    return joined(parts, rows.index)


def _texts_of_rows(frame: pd.DataFrame, name: str, rows: int) -> list[str]:
    """What the cells of each row say in column `name`; of several texts the last in the alphabet."""
    pairs = frame[["row", name]].drop_duplicates().sort_values(name)
    texts = dict(zip(pairs["row"].tolist(), pairs[name].to_numpy().tolist(), strict=True))
    return [texts[row] for row in range(rows)]
