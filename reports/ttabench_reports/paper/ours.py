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
NETWORK = ["arch", "checkpoint", "precision", "reset", "order", "limit", "contamination", "stream", "pace"]
"""What the rows of a network share; mode and batch size are the method's."""


@dataclass(frozen=True)
class Found:
    """Of one row: accuracies in percent by corruption, and ``mean``, if all fifteen are there.

    clean   clean accuracy of the source classifier, percent.
    seeds   how many seeds the accuracies are of: those that every measured corruption has, or the fewest.
    why     where a number is missing, the reason.
    about   the last measured cell: settings, protocol, device.
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

    All rows of a network on a dataset are of the same weights, precision and protocol, those that were
    measured last: an increase over Source is not the difference of two networks.

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
        self._networks: dict[tuple[str, str], pd.DataFrame] = {}
        if len(self.cells):
            settings = self.cells["config"].map(stored_settings)
            self.cells = self.cells.assign(_settings=settings)

    def dataset(self, published: str) -> str:
        return self.stands.get(published, published)

    def archs(self, published: str) -> list[str]:
        """The names of a network here, those that stand for it last."""
        return [*catalog()[PAPER].names(published), *self.nets.get(published, ())]

    def measured_as(self, dataset: str, arch: str) -> str:
        """The name under which a network was measured on a dataset; "" where it was not."""
        if self.cells.empty:
            return ""
        here = self._of_network(dataset, arch)
        names = here.loc[here["_last"] & here["accuracy"].notna(), "arch"]
        return str(names.iloc[-1]) if len(names) else ""

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
        every = self._of_network(dataset, arch)
        every = every[(every["base"] == method) & (every["severity"] == severity)]
        fits = [all(held.get(k) == v for k, v in settings.items()) for held in every["_settings"]]
        every = every[pd.Series(fits, every.index, dtype=bool)]
        here = every[every["_last"]]
        if every.empty:
            return Found(why=self.missing.get(dataset, "not measured"))
        if here.empty:
            return Found(why="measured with other weights, or in another precision or protocol")
        measured = here[here["accuracy"].notna()]
        if measured.empty:
            last = here.iloc[-1]
            return Found(why=f"{last['status']}: {last['reason']}" if last["reason"] else str(last["status"]))
        measured, seeds = _of_whole_seeds(measured.drop_duplicates(["corruption", "seed"], keep="last"))
        by = measured.groupby("corruption")["accuracy"].mean()
        values = {str(name): float(value) for name, value in by.items()}
        main = [name for name in CORRUPTIONS if name in values]
        if seeds and (len(main) == len(CORRUPTIONS) or (self.partial and main)):
            values[MEAN] = sum(values[name] for name in main) / len(main)
        why = "" if MEAN in values else f"{len(main)} of 15 corruptions"
        if not seeds:
            why, seeds = "no seed has all corruptions", int(measured.groupby("corruption").size().min())
        clean = float(measured["clean_accuracy"].iloc[-1])
        about = {str(name): value for name, value in measured.iloc[-1].items()}
        return Found(values, clean, seeds, why, about)

    def _of_network(self, dataset: str, arch: str) -> pd.DataFrame:
        """The cells of a network on a dataset, in the order in which they were written.

        `_last` are those that are alike in :data:`NETWORK` with the last measured one.
        """
        if (dataset, arch) not in self._networks:
            here = self.cells[
                (self.cells["dataset"] == self.dataset(dataset)) & self.cells["arch"].isin(self.archs(arch))
            ].sort_values("written", kind="stable")
            alike = map(str, here[NETWORK].itertuples(index=False, name=None))  # a missing number is alike
            used = pd.Series([*alike], here.index, dtype=object)
            measured = used[here["accuracy"].notna()]
            last = [measured.empty or each == measured.iloc[-1] for each in used]
            self._networks[dataset, arch] = here.assign(_last=pd.Series(last, here.index, dtype=bool))
        return self._networks[dataset, arch]


def _of_whole_seeds(cells: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The cells of the seeds that each of the fifteen corruptions has, if measured at all, and how many seeds
    these are; all cells and 0 if there is none.
    """
    main = cells[cells["corruption"].isin(CORRUPTIONS)]
    counts = main.groupby("seed")["corruption"].nunique()
    whole = counts.index[counts == main["corruption"].nunique()]
    return (cells[cells["seed"].isin(whole)] if len(whole) else cells), len(whole)
