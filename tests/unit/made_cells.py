"""Tables of cells for the tests of reports: what ``ttabench.store`` hands over, with numbers made up here."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from ttabench.cell import canonical
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.registry import method_facts
from ttabench.store.columns import COLUMNS

OFFLINE = ("quantile",)


@cache
def facts(method: str, *settings: str) -> str:
    """What is stored of an installed method; "" for another one. `settings` may name other methods."""
    known = method_facts(method, settings)
    return canonical(known) if known else ""


def cells(
    methods: Sequence[str] = ("source", "tent", "quantile"),
    archs: Sequence[str] = ("resnet18", "cct"),
    *,
    datasets: Sequence[str] = ("digits-c",),
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = (5,),
    seeds: Sequence[int] = (0,),
    accuracy: Callable[[dict[str, Any]], float] | None = None,
    **fixed: Any,
) -> pd.DataFrame:
    """Every combination, all ok; `accuracy` of a row (default: noise around 80), `fixed` column values."""
    rng = np.random.default_rng(7)
    rows = []
    for dataset, severity, arch, method, corruption, seed in itertools.product(
        datasets, severities, archs, methods, corruptions, seeds
    ):
        base = method.partition("[")[0]
        row = {
            "method": method, "base": base, "config": json.dumps({"lr": 0.001}),
            "arch": arch, "dataset": dataset, "corruption": corruption, "severity": severity, "seed": seed,
            "mode": "offline" if base in OFFLINE else "online", "order": "iid",
            "batch_size": 128 if base in OFFLINE else 200, "epochs": 0, "reset": "per_corruption",
            "contamination": "", "held_out": 0.0, "limit": 0, "precision": "float32", "history": "",
            "n_images": 360, "clean_accuracy": 98.0, "accuracy": float(rng.normal(80, 5)), "seconds": 1.5,
            "status": "ok", "reason": "", "adapted": "", "scores": "", "restores": "",
            "source_data": "features" if base in OFFLINE else "", "about_method": facts(base),
            "alarm": "", "warning": "", "stale": False,
            "checkpoint": f"weights-of-{arch}", "fingerprint": f"data-of-{dataset}", "written": 1.7e9,
        } | fixed  # fmt: skip
        row["cell_id"] = f"{len(rows):064x}"
        rows.append(row | ({"accuracy": accuracy(row)} if accuracy else {}))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def continual(frame: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """The cells of a continual run with the corruptions of `order`, in this order, at severity 5."""
    frame = frame[frame["corruption"].isin(order)]
    before = [" ".join(f"{name}-5" for name in order[: order.index(c)]) for c in frame["corruption"]]
    return frame.assign(reset="continual", history=before)


def where(frame: pd.DataFrame, **values: Any) -> pd.Series[bool]:
    """Which rows have all these values."""
    mask = pd.Series(True, index=frame.index)
    for name, value in values.items():
        mask &= frame[name] == value
    return mask


def spoil(frame: pd.DataFrame, status: str, reason: str, **values: Any) -> pd.DataFrame:
    """`frame` with these cells failed or n/a."""
    frame = frame.copy()
    mask = where(frame, **values)
    assert mask.any()
    frame.loc[mask, ["status", "reason"]] = [status, reason]
    frame.loc[mask, "accuracy"] = np.nan
    return frame


def with_correctness(
    frame: pd.DataFrame, images: int, better: dict[str, float] | None = None
) -> pd.DataFrame:
    """`frame` with drawn per-image correctness, and the accuracies that follow from it.

    The same images are hard for all methods; `better` (by label, default 0) shifts a method.
    """
    rng = np.random.default_rng(8)
    hard = rng.standard_normal(images)
    ours = {corruption: rng.standard_normal(images) for corruption in sorted(set(frame["corruption"]))}
    packed, accuracies = [], []
    for method, corruption in frame[["method", "corruption"]].itertuples(index=False):
        shift = 0.5 + (better or {}).get(method, 0.0)
        right = hard + ours[corruption] + 0.3 * rng.standard_normal(images) + shift > 0
        packed.append(np.packbits(right).tobytes())
        accuracies.append(100 * float(right.mean()))
    return frame.assign(correct=packed, accuracy=accuracies, n_images=images)
