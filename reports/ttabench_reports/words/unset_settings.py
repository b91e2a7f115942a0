"""Settings in the name of a method that nobody set: a method's own defaults on a kind of network.

On a network without batch norm, TENT is stored as ``tent[norms=all]`` though ``tent`` was asked for.
Tables name it TENT and say below, once, which default it has there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ttabench_reports.cells.frames import ROW, TABLE
from ttabench_reports.words import naming

SET = "set by users"
"""In the `attrs` of a table of cells: (method, setting) that a sweep asked for; absent where not known."""


def set_by_users(folder: Path, sweep: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """(method, setting) that the sweeps of a results folder name.

    sweep  the options in its ``sweep.json``; those of all sweeps are in its ``sweep*.toml``.
    """
    asked = [sweep, *filter(None, map(_options, sorted(folder.glob("sweep*.toml"))))]
    return frozenset(pair for options in asked for pair in _named(options))


def of_all(per_frame: Iterable[Mapping[Any, Any]]) -> frozenset[tuple[str, str]] | None:
    """Those of several tables of cells, from their `attrs`; None where one does not know."""
    known = [attrs.get(SET) for attrs in per_frame]
    return None if any(one is None for one in known) else frozenset().union(*filter(None, known))


def unset(rows: pd.DataFrame, known: frozenset[tuple[str, str]] | None) -> list[tuple[str, ...]]:
    """For each row, the settings in its label that nobody set.

    None where this would give two rows of a network the same name.
    """
    if known is None:
        return [()] * len(rows)
    pairs = zip(rows["base"], rows["method"], strict=True)
    found = [_unset(str(base), str(method), known) for base, method in pairs]
    names = [without(str(method), settings) for method, settings in zip(rows["method"], found, strict=True)]
    places = [*TABLE, *(name for name in ROW if name != "method")]
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


def _options(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # damaged: what it asked for is not known
        return {}


def _named(options: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """(method, setting) in the methods and settings of a sweep, and in its rules."""
    methods = options.get("methods", ())
    for label in [methods] if isinstance(methods, str) else methods:
        name, inside = str(label).partition("[")[::2]
        yield from ((name.strip(), part.partition("=")[0].strip()) for part in inside.rstrip("] ").split(","))
    for key in ("settings", "set"):
        for text in options.get(key, ()):  # tent.lr=0.1,0.2
            name, _, setting = str(text).partition("=")[0].partition(".")
            yield name.strip(), setting.strip()
    for rule in options.get("include", ()):
        yield from _named(rule)
    for rules in (options.get("per_method", {}), options.get("per_dataset", {})):
        for rule in rules.values():
            yield from _named(rule)


def _unset(base: str, label: str, known: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    inside = label.partition("[")[2].rpartition("]")[0]
    parts = [part for part in inside.split(",") if "=" in part]
    return tuple(part for part in parts if (base, part.partition("=")[0].strip()) not in known)
