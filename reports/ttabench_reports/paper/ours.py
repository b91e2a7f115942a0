"""Our numbers, by the names of the paper: dataset, network, method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ttabench.corruptions.names import CORRUPTIONS
from ttabench_reports.cells.stored_settings import stored_settings
from ttabench_reports.published.catalog import catalog

__all__ = ["PAPER", "Found", "Ours"]

PAPER = "quantile2026"
MEAN = "mean"


@dataclass(frozen=True)
class Found:
    """Of one row: accuracies in percent by corruption, and ``mean``, if all fifteen are there.

    clean   clean accuracy of the source classifier, percent.
    why     where a number is missing, the reason.
    about   the first measured cell: settings, protocol, device.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    clean: float = math.nan
    seeds: int = 0
    why: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    def value(self, corruption: str) -> float:
        return self.values.get(corruption, math.nan)


class Ours:
    """Lookups in `cells` (as :func:`load.read` gives them, or None).

    stands   the paper's dataset → the one that was measured in its place.
    nets     the paper's network → names under which it was run, beside those of the catalog.
    missing  the paper's dataset → why it was not measured.
    partial  whether the mean of fewer than fifteen corruptions is a mean: in a rehearsal.
    """

    def __init__(
        self, cells: pd.DataFrame | None, stands: Mapping[str, str] | None = None,
        nets: Mapping[str, Sequence[str]] | None = None, missing: Mapping[str, str] | None = None,
        *, partial: bool = False,
    ) -> None:  # fmt: skip
        self.cells = pd.DataFrame() if cells is None else cells
        self.stands, self.nets, self.missing = stands or {}, nets or {}, missing or {}
        self.partial = partial
        self._found: dict[Any, Found] = {}
        if len(self.cells):
            settings = self.cells["config"].map(stored_settings)
            self.cells = self.cells.assign(_settings=settings)

    def dataset(self, published: str) -> str:
        return self.stands.get(published, published)

    def archs(self, published: str) -> list[str]:
        """The names of a network here, those that stand for it last."""
        return [*catalog()[PAPER].names(published), *self.nets.get(published, ())]

    def find(self, dataset: str, arch: str, method: str, *, severity: int = 5, **settings: Any) -> Found:
        """A row by the paper's names of dataset and network, and by the method's name here."""
        key = (dataset, arch, method, severity, tuple(sorted(settings.items())))
        if key not in self._found:
            self._found[key] = self._find(dataset, arch, method, severity, settings)
        return self._found[key]

    def _find(
        self, dataset: str, arch: str, method: str, severity: int, settings: Mapping[str, Any]
    ) -> Found:
        if self.cells.empty:
            return Found(why=self.missing.get(dataset, "not measured"))
        here = self.cells[
            (self.cells["dataset"] == self.dataset(dataset))
            & self.cells["arch"].isin(self.archs(arch))
            & (self.cells["base"] == method)
            & (self.cells["severity"] == severity)
        ]
        fits = [all(held.get(k) == v for k, v in settings.items()) for held in here.get("_settings", ())]
        here = here[fits]
        if here.empty:
            return Found(why=self.missing.get(dataset, "not measured"))
        here = here.sort_values(["written"], kind="stable")
        alike = here["checkpoint"].eq(here["checkpoint"].iloc[-1])  # of several weights, the latest
        measured = here[alike & here["accuracy"].notna()]
        if measured.empty:
            last = here.iloc[-1]
            return Found(why=f"{last['status']}: {last['reason']}" if last["reason"] else str(last["status"]))
        measured = measured.drop_duplicates(["corruption", "seed"], keep="last")
        by = measured.groupby("corruption")["accuracy"].mean()
        values = {str(name): float(value) for name, value in by.items()}
        main = [name for name in CORRUPTIONS if name in values]
        if len(main) == len(CORRUPTIONS) or (self.partial and main):
            values[MEAN] = sum(values[name] for name in main) / len(main)
        why = "" if MEAN in values else f"{len(main)} of 15 corruptions"
        clean = float(measured["clean_accuracy"].iloc[-1])
        about = {str(name): value for name, value in measured.iloc[-1].items()}
        return Found(values, clean, int(measured["seed"].nunique()), why, about)
