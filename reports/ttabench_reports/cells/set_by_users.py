"""The settings of methods that the sweeps of a results folder name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ttabench.errors import UserError
from ttabench.store.sweep_options import are_options
from ttabench.system.files import read_plain

SET = "set by users"
"""In the `attrs` of a table of cells: (method, setting) that a sweep asked for; absent where not known."""


class AskedSettings(frozenset[tuple[str, str]]):
    """(method, setting) that were asked for."""

    def __deepcopy__(self, memo: object) -> AskedSettings:
        """Itself: pandas copies what is in a table's `attrs` at every step."""
        return self


def set_by_users(folder: Path, sweep: Mapping[str, Any]) -> AskedSettings:
    """(method, setting) that the sweeps of a results folder name.

    sweep  the options in its ``sweep.json``; those of all sweeps are in its ``sweep*.toml``.
    """
    asked = [sweep, *filter(None, map(_options, sorted(folder.glob("sweep*.toml"))))]
    return AskedSettings(pair for options in asked for pair in _named(options))


def of_all(per_frame: Iterable[Mapping[Any, Any]]) -> AskedSettings | None:
    """Those of several tables of cells, from their `attrs`; None where one does not know."""
    known = [attrs.get(SET) for attrs in per_frame]
    if any(one is None for one in known):
        return None
    return AskedSettings(frozenset().union(*filter(None, known)))


def _options(file: Path) -> dict[str, Any]:
    """What a sweep file has; {} for one that is damaged: what it asked for is not known."""
    try:
        options = tomllib.loads(read_plain(file).decode())
    except (UserError, OSError, ValueError, RecursionError):
        return {}
    return options if are_options(options) else {}


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
