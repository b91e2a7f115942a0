"""Settings in the name of a method that nobody set: a method's own defaults on a kind of network.

On a network without batch norm, TENT is stored as ``tent[norms=all]`` though ``tent`` was asked for.
Tables name it TENT and say below, once, which default it has there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from ttabench_reports.cells.frames import TABLE
from ttabench_reports.words import naming


def unset(rows: pd.DataFrame, known: frozenset[tuple[str, str]] | None) -> list[tuple[str, ...]]:
    """For each row, the settings in its label that nobody set.

    None where this would give two rows of a network the same name.
    """
    if known is None:
        return [()] * len(rows)
    pairs = zip(rows["base"], rows["method"], strict=True)
    found = [_unset(str(base), str(method), known) for base, method in pairs]
    names = [without(str(method), settings) for method, settings in zip(rows["method"], found, strict=True)]
    places = [*TABLE, "arch", "mode"]  # what a reader sees beside the name
    keyed = rows[places].astype(str).assign(name=names, difference=rows["difference"])
    twice = keyed.duplicated(keep=False)
    return [() if again else settings for again, settings in zip(twice, found, strict=True)]


def defaults(rows: Iterable[Any]) -> str:
    """Which settings methods have by default on a network, where their names do not say it; a sentence.

    rows  see :class:`shape.Row`.

    ``Defaults of methods on CCT: norms=all (EATA, TENT), lr=0.001 (SAR).``
    """
    found: dict[str, dict[str, dict[str, None]]] = {}  # network, settings, methods
    for row in rows:
        if row.unset:
            of_network = found.setdefault(naming.arch(row.arch), {})
            of_network.setdefault(", ".join(row.unset), {})[naming.base(str(row.about["base"]))] = None
    networks: dict[str, list[str]] = {}
    for network, settings in found.items():
        listed = (f"{setting} ({', '.join(methods)})" for setting, methods in settings.items())
        networks.setdefault(", ".join(listed), []).append(network)
    parts = [f"on {', '.join(names)}: {text}" for text, names in networks.items()]
    return f"Defaults of methods {'; '.join(parts)}." if parts else ""


def without(label: str, settings: Sequence[str]) -> str:
    """``tent[lr=0.1]`` for ``tent[norms=all,lr=0.1]`` without ``norms=all``."""
    name, bracket, rest = label.partition("[")
    inside, _, after = rest.rpartition("]")
    kept = ",".join(part for part in inside.split(",") if part not in settings)
    return f"{name}[{kept}]{after}" if kept else name + after if bracket else label


def _unset(base: str, label: str, known: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    inside = label.partition("[")[2].rpartition("]")[0]
    parts = [part for part in inside.split(",") if "=" in part]
    return tuple(part for part in parts if (base, part.partition("=")[0].strip()) not in known)
