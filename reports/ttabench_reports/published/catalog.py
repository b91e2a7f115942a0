"""The publications: where each is from, under which setting its numbers were measured, and the numbers."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

from ttabench.errors import unknown

COLUMNS = ("publication", "dataset", "severity", "arch", "method", "corruption", "accuracy")
PACKAGE = "ttabench_reports.published"


@dataclass(frozen=True)
class Publication:
    """One entry of ``sources.toml``; its comments say what the fields mean."""

    name: str
    source: str
    where: str
    url: str = ""
    weights: str = ""
    rows: str = ""
    in_tables: bool = True
    setting: dict[str, Any] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    archs: dict[str, list[str]] = field(default_factory=dict)

    def setting_of(self, method: str, dataset: str) -> dict[str, Any]:
        """The setting of a number: the publication's, the data set's, the method's; the last wins."""
        return {**self.setting, **self.datasets.get(dataset, {}), **self.methods.get(method, {})}

    def taken_from(self, method: str) -> str:
        """The other publication that the numbers of a method are copied from; "": they are its own."""
        return str(self.methods.get(method, {}).get("source", ""))

    def weights_of(self, method: str) -> str:
        """Where the weights behind the numbers of a method are from, if they are not those here."""
        other = self.taken_from(method)
        return f"those of {other}, where the numbers are from" if other else self.weights

    def method(self, published: str) -> str:
        """The label here of a published method: of ``quantile[lr=1]``, ``quantile_paper[lr=1]``."""
        if published in self.here:
            return self.here[published]
        name, bracket, settings = published.partition("[")
        return self.here.get(name, name) + bracket + settings

    def names(self, arch: str) -> list[str]:
        """What a published architecture is called here."""
        return self.archs.get(arch, [arch])


@cache
def catalog() -> dict[str, Publication]:
    """All publications by name, in the order of ``sources.toml``."""
    entries = tomllib.loads((files(PACKAGE) / "sources.toml").read_text(encoding="utf-8"))
    return {name: Publication(name=name, **entry) for name, entry in entries.items()}


def publications() -> list[str]:
    """The names that :func:`load` knows."""
    return sorted(catalog())


def rows(name: str) -> list[dict[str, str]]:
    """The lines of a file of this folder, every value as it is printed."""
    with (files(PACKAGE) / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def load(*names: str) -> pd.DataFrame:
    """Published accuracies (percent) of some publications; columns :data:`COLUMNS`.

    Errors are turned into accuracies. The corruption ``mean`` is the mean as printed. Without a name: the
    publications that give a number per corruption and are for tables. Raises UserError for an unknown
    publication.
    """
    for name in names:
        if name not in catalog():
            raise unknown("publication", name, publications())
    frames = []
    for name in names or catalog():
        frame = accuracies(name)
        if names or (catalog()[name].in_tables and set(frame["corruption"]) - {"mean", "mixed"}):
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)[list(COLUMNS)]


@cache
def accuracies(name: str) -> pd.DataFrame:
    """The numbers of one publication as accuracies; NaN where it prints something else.

    Methods have their names here.
    """
    frame = pd.DataFrame(rows_of(name))
    if "accuracy" in frame:
        values = frame["accuracy"].astype(float)
    elif "error" in frame:
        values = (100 - frame["error"].astype(float)).round(6)
    else:
        values = pd.Series(float("nan"), frame.index)
    severity = pd.to_numeric(frame["severity"], errors="coerce").fillna(0).astype(int)
    methods = frame["method"].map(catalog()[name].method)
    return frame.assign(publication=name, accuracy=values, severity=severity, method=methods)[list(COLUMNS)]


def rows_of(name: str) -> list[dict[str, str]]:
    """The lines of a publication with the columns of :data:`COLUMNS`, whatever the columns of its file."""
    known = rows(name)
    return [line for row in known for line in _of_severity(row)] if catalog()[name].rows else known


def _of_severity(row: dict[str, str]) -> list[dict[str, str]]:
    """A line of a figure, with the accuracies of two methods, as two lines."""
    shared = {key: row[key] for key in ("dataset", "arch", "corruption", "severity")}
    return [{**shared, "method": method, "accuracy": row[method]} for method in ("source", "quantile")]
