"""Settings in the name of a method that nobody set: a method's own defaults on a kind of network.

On a network without batch norm, TENT is stored as ``tent[norms=all]`` though ``tent`` was asked for.
Tables name it TENT and say below, once, which default it has there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ttabench_reports.cells.grouped import grouped
from ttabench_reports.words import naming


def unset(rows: pd.DataFrame, known: frozenset[tuple[str, str]] | None) -> list[tuple[str, ...]]:
    """For each row, the settings in its label that nobody set.

    A setting stays in the names of a method if other rows of it on this network do not have it, as where a
    rate follows the batch size: below a table it would be said of these rows too. It also stays in a label to
    which the user gives a name.
    """
    if known is None:
        return [()] * len(rows)
    places = list(zip(rows["arch"], rows["base"], strict=True))
    labels = [(place, settings_of(label)) for place, label in zip(places, rows["method"], strict=True)]
    shared = {place: set.intersection(*map(set, several)) for place, several in grouped(labels).items()}
    return [
        tuple(
            setting
            for setting in settings
            if setting in shared[place]
            and (place[1], setting.partition("=")[0].strip()) not in known
            and not naming.renamed(label)
        )
        for (place, settings), label in zip(labels, rows["method"], strict=True)
    ]


def defaults(rows: Iterable[Any]) -> str:
    """Which settings methods have by default, where their names do not say it; a sentence for each network.

    rows  see :class:`table.Row`.

    ``Defaults of methods on CCT: norms=all (EATA, TENT); lr=0.001 at batch size 64 (SAR).``
    """
    networks: dict[str, dict[str, dict[str, None]]] = {}  # network, setting, methods
    for row in rows:
        for setting in _said(row):
            of_network = networks.setdefault(naming.arch(row.arch), {})
            of_network.setdefault(setting, {})[naming.base(str(row.about["base"]))] = None
    by_text = _gathered({network: _by_methods(settings) for network, settings in networks.items()})
    return " ".join(f"Defaults of methods on {names}: {text}." for text, names in by_text.items())


def _by_methods(settings: Mapping[str, Iterable[str]]) -> str:
    """``K=10 (COME); norms=all (COME, TENT)``."""
    of_methods = {setting: ", ".join(methods) for setting, methods in settings.items()}
    return "; ".join(f"{same} ({methods})" for methods, same in _gathered(of_methods).items())


def _gathered(texts: Mapping[str, str]) -> dict[str, str]:
    """Each text with the keys that have it."""
    keys = grouped((text, key) for key, text in texts.items())
    return {text: ", ".join(same) for text, same in keys.items()}


def _said(row: Any) -> Iterator[str]:
    """The settings of a row that nobody set; a learning rate with the batch size, which it may follow."""
    for setting in row.unset:
        at_batch_size = f" at batch size {row.about['batch_size']}" if setting.startswith("lr=") else ""
        yield setting + at_batch_size


def without(label: str, settings: Sequence[str]) -> str:
    """``tent[lr=0.1]`` for ``tent[norms=all,lr=0.1]`` without ``norms=all``."""
    name, bracket, rest = label.partition("[")
    inside, _, after = rest.rpartition("]")
    kept = ",".join(part for part in inside.split(",") if part not in settings)
    return f"{name}[{kept}]{after}" if kept else name + after if bracket else label


def settings_of(label: str) -> list[str]:
    """``["norms=all", "lr=0.1"]`` for ``tent[norms=all,lr=0.1]``."""
    inside = label.partition("[")[2].rpartition("]")[0]
    return [part for part in inside.split(",") if "=" in part]
