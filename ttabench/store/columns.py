"""The table of cells: its columns, and a record as one row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from sys import intern
from typing import Any

from ttabench.cell import canonical_settings
from ttabench.provenance.staleness import StoredCode
from ttabench.store.record import PROTOCOL, Record
from ttabench.store.stored_environment import StoredEnvironment

COST = (
    "images", "ms_per_image", "forward", "backward", "compute_ratio", "adapted_parameters", "device_mb",
    "host_mb", "per_gpu", "recomputed",
)  # fmt: skip
"""The columns that a result has as details under "cost", see `ttabench.observe.cost.Meter.cost`.

`per_gpu` is how many workers shared the GPU; results on a CPU, and earlier ones, have none. `recomputed` is 1
where the network computed its activations again in the backward pass.
"""
COSTLY_SCORES = ("consistency", "source_accuracy")
SCORES = ("entropy", "infomax", "nuclear_norm", "snd", *COSTLY_SCORES)
"""The columns that a result has as details under "unlabelled", see `ttabench.observe.label_free_scores`."""
OF_UNKNOWN = ("softmax", "energy", "own")
"""The certainties of `ttabench.observe.unknown_classes`, which imports torch."""
UNKNOWN = tuple(f"{figure}_{name}" for name in OF_UNKNOWN for figure in ("auroc", "fpr95", "h"))
"""The columns that a result has as details under "unknown", see `ttabench.observe.unknown_classes`."""
COLUMNS = (
    "method", "base", "config", "arch", "dataset", "corruption", "severity", "seed",
    "mode", "order", "batch_size", "epochs", "reset", "contamination", "foreign", "held_out", "limit",
    "precision", "stream", "baseline", "pace", "pace_ratio",
    "history",
    "n_images", "clean_accuracy", "accuracy", "seconds", "status", "reason", "adapted", "scored_classes",
    "scores", "restores", "source_data", "source_used", "about_method", "alarm", "warning", "stale",
    "stale_because", "attested", "code", "device", "processor", "threads", "versions", *COST, *SCORES,
    "foreign_images", *UNKNOWN, "checkpoint", "fingerprint", "cell_id", "written",
)  # fmt: skip

WHOLE = ("severity", "seed", "batch_size", "epochs", "limit", "n_images", "threads")
"""The columns of whole numbers; every cell has them."""
REAL = (
    "held_out", "pace", "pace_ratio", "accuracy", "clean_accuracy", "seconds", "written", *COST, *SCORES,
    "foreign_images", *UNKNOWN,
)  # fmt: skip
"""The columns of numbers that a cell may lack: then NaN."""
FLAGS = ("stale", "attested")

ASKED = "asked"
"""In the `attrs` of a table of cells: the options of its sweeps, see :meth:`Store.sweep`."""
MISSING = "missing"
"""Of a table of cells' `attrs`: the planned cells without a record, with their method as `base`."""

# Columns that are details of a result.
DETAILS = ("adapted", "scored_classes", "scores", "restores", "source_data", "source_used", "alarm")


OWN = (
    "corruption", "severity", "seed", "n_images", "clean_accuracy", "accuracy", "seconds", "status", "reason",
    *COST, *SCORES, "foreign_images", *UNKNOWN, "cell_id", "written",
)  # fmt: skip
"""The columns in which cells differ that share everything else."""

_OF_COST, _OF_SCORES = map(frozenset, (COST, SCORES))
_ABSENT: dict[str, Any] = dict.fromkeys(OWN, math.nan)  # None would cost pandas a look
"""What a record may lack; most records lack most of it."""


_NAMES_OF = itemgetter("label", "method", "arch", "checkpoint", "dataset", "fingerprint")


def row(record: Record) -> dict[str, Any]:
    """A record as one row of the cells table."""
    return {**shared(record), **own(record)}


def own(record: Record) -> dict[str, Any]:
    """The columns :data:`OWN` of a record, in their order."""
    data, cell = record.data, record.data["cell"]
    details = data.get("details", {})
    return {
        **_ABSENT,
        "corruption": intern(cell["corruption"]), "severity": cell["severity"], "seed": cell["seed"],
        "n_images": data.get("n_images", 0), "clean_accuracy": data.get("clean_accuracy"),
        "accuracy": data.get("accuracy"), "seconds": data.get("seconds", 0.0),
        "status": intern(data["status"]), "reason": data.get("reason", ""),
        **(_some(details["cost"], _OF_COST) if "cost" in details else {}),
        **(_some(details["unlabelled"], _OF_SCORES) if "unlabelled" in details else {}),
        **(_unknown(details["unknown"]) if "unknown" in details else {}),
        "cell_id": record.cell_id, "written": record.written,
    }  # fmt: skip


def shared(record: Record) -> dict[str, Any]:
    """The other columns of a record: one object for all records that have the same.

    A text that many rows share is one object too: pandas hashes it once, and it takes no memory again.
    """
    cell, details, changes = record.data["cell"], record.data.get("details", {}), record.code_changes
    return _shared(
        _NAMES_OF(cell), canonical_settings(cell["config"]), tuple(cell["protocol"].items()),
        cell.get("foreign", ""), cell.get("baseline", ""), tuple(cell.get("history", ())),
        tuple([details.get(name, "") for name in DETAILS]), details.get("source_warning", ""),
        record.definitions, record.source, record.environment, changes, bool(changes) and record.attested,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _shared(
    names: tuple[str, ...], config: str, protocol: tuple[tuple[str, Any], ...],
    foreign: str, baseline: str, history: tuple[str, ...], details: tuple[str, ...], warning: str,
    definitions: StoredCode, source: str, environment: StoredEnvironment, changes: tuple[str, ...],
    attested: bool,
) -> dict[str, Any]:  # fmt: skip
    label, method, arch, checkpoint, dataset, fingerprint = names
    changed = () if attested else changes
    columns = {
        **PROTOCOL, **dict(protocol), **dict(zip(DETAILS, details, strict=True)),
        "method": label, "base": method, "config": config, "arch": arch, "dataset": dataset,
        "foreign": foreign, "baseline": baseline, "history": " ".join(history),
        "about_method": definitions.method, "warning": warning,
        "stale": bool(changed), "stale_because": "; ".join(changed), "attested": attested,
        "code": source, **_of_environment(environment), "checkpoint": checkpoint, "fingerprint": fingerprint,
    }  # fmt: skip
    return {name: intern(value) if isinstance(value, str) else value for name, value in columns.items()}


@lru_cache(maxsize=1024)
def _of_environment(environment: StoredEnvironment) -> dict[str, Any]:
    """The columns that tell where a result was made, once for all records that share it."""
    versions = environment.get("versions", {}).items()
    return {
        "device": environment.get("device", ""), "processor": environment.get("processor", ""),
        "threads": environment.get("threads", 0),
        "versions": intern(" ".join(f"{name} {version}" for name, version in versions)),
    }  # fmt: skip


def _some(stored: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """What is stored under some of these names."""
    return {name: value for name, value in stored.items() if name in names}


def _unknown(stored: dict[str, Any]) -> dict[str, Any]:
    """The columns of how foreign images are told from test images; None where they are not."""
    figures = {}
    for column in UNKNOWN:
        figure, _, name = column.partition("_")
        figures[column] = (stored.get(name) or {}).get(figure)
    return {"foreign_images": stored.get("images"), **figures}
