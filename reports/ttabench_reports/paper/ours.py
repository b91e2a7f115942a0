"""Our numbers, by the names of the paper: dataset, network, method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench_reports.cells.frames import USUAL
from ttabench_reports.cells.stored_settings import stored_settings
from ttabench_reports.published.catalog import catalog

PAPER = "quantile2026"
MEAN = "mean"
PROTOCOL = ("order", "reset", "contamination", "held_out", "stream", "pace")
"""What of the protocol the paper's numbers have as is usual."""
NETWORK = ["arch", "checkpoint", "fingerprint", "foreign", "precision", "limit", *PROTOCOL]
"""What the rows of a network share; mode and batch size are the method's."""
ROW = ["method", "config", "mode", "batch_size", "epochs"]
"""What the cells of a row share besides."""
OFFLINE = ("quantile_paper", "quantile_strict", "quantile")
"""The methods whose rows are offline. Source does not adapt; all others are online."""


@dataclass(frozen=True)
class Found:
    """Of one row: accuracies in percent by corruption, and ``mean``, if all fifteen are there.

    clean   clean accuracy of the source classifier, percent.
    seeds   how many seeds the accuracies are of: those that every measured corruption has, or the fewest.
    why     where a number is missing, the reason.
    stale   the ids of its cells that were measured with other code than is installed.
    about   the last measured cell: settings, protocol, device; its seconds are the median of all.
    over    how many corruptions the mean is over; 0 where there is none.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    clean: float = math.nan
    seeds: int = 0
    why: str = ""
    stale: frozenset[str] = frozenset()
    about: Mapping[str, Any] = field(default_factory=dict)
    over: int = 0

    def value(self, corruption: str) -> float:
        return self.values.get(corruption, math.nan)


class Ours:
    """Lookups in `cells` (as :func:`load.read` gives them, or None).

    All rows of a network on a dataset are of the same weights, data, precision and protocol: those of the
    usual protocol that were measured last, and only where there are none, those of another. An increase over
    Source is not the difference of two networks. Each row is of one mode and setting: see :func:`_one_row`.

    stands   the paper's dataset → the one that was measured in its place.
    nets     the measured dataset → the paper's network → the names of what was measured for it, the last
             one last. Without any, the names of the catalog are looked up.
    missing  the paper's dataset → why it was not measured.
    partial  whether the mean of fewer than fifteen corruptions is a mean: in a rehearsal.
    """

    def __init__(
        self, cells: pd.DataFrame | None, stands: Mapping[str, str] | None = None,
        nets: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        missing: Mapping[str, str] | None = None, *, partial: bool = False,
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

    def archs(self, dataset: str, arch: str) -> Sequence[str]:
        """The names of the network that was asked for last, of those that have cells on a dataset."""
        usual, here = usual_names(arch), self.dataset(dataset)
        asked = reversed(self.nets.get(here, {}).get(arch, ()))
        stored = {*self.cells.loc[self.cells["dataset"] == here, "arch"]}
        choices = [usual if name in usual else [name] for name in asked]
        return next((names for names in choices if stored & {*names}), usual)

    def network(self, dataset: str, arch: str) -> Mapping[str, Any]:
        """What the rows of a network on a dataset share, :data:`NETWORK`; empty where it was not measured."""
        if self.cells.empty:
            return {}
        here = self._of_network(dataset, arch)
        shared = here.loc[here["_chosen"] & here["accuracy"].notna(), NETWORK]
        return {str(name): value for name, value in shared.iloc[-1].items()} if len(shared) else {}

    def find(self, dataset: str, arch: str, method: str, *, severity: int = 5, **settings: Any) -> Found:
        """A row by the paper's names of dataset and network, and by the method's name here."""
        key = (dataset, arch, method, severity, tuple(sorted(settings.items())))
        if key not in self._found:
            self._found[key] = self._find(dataset, arch, method, severity, settings)
        return self._found[key]

    def shown(self) -> list[Found]:
        """The measured rows that tables have looked up so far."""
        return [one for one in self._found.values() if one.about]

    def _find(
        self, dataset: str, arch: str, method: str, severity: int, settings: Mapping[str, Any]
    ) -> Found:
        if self.cells.empty:
            return Found(why=self.missing.get(dataset, "not measured"))
        every = self._of_network(dataset, arch)
        every = every[(every["base"] == method) & (every["severity"] == severity)]
        fits = [all(held.get(k) == v for k, v in settings.items()) for held in every["_settings"]]
        every = every[pd.Series(fits, every.index, dtype=bool)]
        here = every[every["_chosen"]]
        if every.empty:
            return Found(why=self.missing.get(dataset, "not measured"))
        if here.empty:
            return Found(why="measured with other weights or data, or in another precision or protocol")
        if method != "source":
            mode = "offline" if method in OFFLINE else "online"
            here = here[here["mode"] == mode]
            if here.empty:
                return Found(why=f"not measured {mode}")
        measured = here[here["accuracy"].notna()]
        if measured.empty:
            last = here.iloc[-1]
            return Found(why=f"{last['status']}: {last['reason']}" if last["reason"] else str(last["status"]))
        measured = _one_row(measured).drop_duplicates(["corruption", "seed"], keep="last")
        measured, seeds = _of_whole_seeds(measured)
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
        about["seconds"] = float(measured["seconds"].median())
        stale = frozenset(measured.loc[measured["stale"], "cell_id"])
        return Found(values, clean, seeds, why, stale, about, len(main) if MEAN in values else 0)

    def _of_network(self, dataset: str, arch: str) -> pd.DataFrame:
        """The cells of a network on a dataset, in the order in which they were written.

        `_chosen` are those that are alike in :data:`NETWORK` with the last measured one of the usual
        protocol, or of any where none is usual.
        """
        if (dataset, arch) not in self._networks:
            here = self.cells[
                (self.cells["dataset"] == self.dataset(dataset))
                & self.cells["arch"].isin(self.archs(dataset, arch))
            ].sort_values("written", kind="stable")
            alike = map(str, here[NETWORK].itertuples(index=False, name=None))  # a missing number is alike
            used = pd.Series([*alike], here.index, dtype=object)
            measured = here["accuracy"].notna()
            usual = measured & (here[[*PROTOCOL]] == [USUAL[name] for name in PROTOCOL]).all(axis=1)
            among = used[usual if usual.any() else measured]
            chosen = used == among.iloc[-1] if len(among) else pd.Series(True, here.index)
            self._networks[dataset, arch] = here.assign(_chosen=chosen)
        return self._networks[dataset, arch]


def usual_names(arch: str) -> list[str]:
    """What a network of the paper is called here."""
    return catalog()[PAPER].names(arch)


def _one_row(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that share :data:`ROW`: online before offline, the method's own epochs and the label with the
    fewest settings first, then what was measured last.
    """
    rank = [
        (mode == "offline", epochs > 0, label.count("="))
        for mode, epochs, label in zip(cells["mode"], cells["epochs"], cells["method"], strict=True)
    ]
    first = cells[[each == min(rank) for each in rank]].iloc[-1]
    return cells[(cells[ROW] == first[ROW]).all(axis=1)]


def _of_whole_seeds(cells: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The cells of the seeds that each of the fifteen corruptions has, if measured at all, and how many seeds
    these are; all cells and 0 if there is none.
    """
    main = cells[cells["corruption"].isin(CORRUPTIONS)]
    counts = main.groupby("seed")["corruption"].nunique()
    whole = counts.index[counts == main["corruption"].nunique()]
    return (cells[cells["seed"].isin(whole)] if len(whole) else cells), len(whole)
