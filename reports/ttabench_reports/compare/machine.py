"""A comparison for machines: JSON, GitHub's annotations, JUnit's XML."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

import pandas as pd

from ttabench_reports.compare.comparison import Comparison
from ttabench_reports.compare.terminal import WORDS, counts, describe, describe_mean, named, smallest_fall
from ttabench_reports.compare.verdicts import MEAN_OF
from ttabench_reports.words import naming

FORMAT = "ttabench-compare"
MOST = 10  # annotations of a kind that GitHub shows for a step


def as_json(comparison: Comparison) -> str:
    """The whole comparison; of the cells, those that are not the same. NaN is null."""
    cells = comparison.cells[comparison.cells["verdict"] != "same"]
    baseline, candidate = comparison.names
    content = {
        "format": FORMAT, "version": 1, "failed": comparison.failed,
        "baseline": baseline, "candidate": candidate, "bounds": asdict(comparison.bounds),
        "counts": {verdict: comparison.count(verdict) for verdict in WORDS},
        "warnings": list(comparison.warnings), "stale": list(comparison.stale),
        "attested": comparison.attested,
        "means": _rows(comparison.means), "cells": _rows(cells),
        "smallest_fall": None if math.isnan(comparison.smallest_fall) else comparison.smallest_fall,
        "causes": [asdict(one) for one in comparison.causes],
    }  # fmt: skip
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(key): None if value != value else value for key, value in row.items()}
        for row in frame.to_dict("records")
    ]


def github(comparison: Comparison) -> Iterator[str]:
    """Workflow commands of GitHub Actions: errors, warnings, what is stale, and the verdict."""
    failures = [*_bad_means(comparison), *_bad_cells(comparison)]
    for title, text in failures[:MOST]:
        yield f"::error title={_escaped(title, ':', ',')}::{_escaped(text)}"
    for warning in comparison.warnings[:MOST]:
        yield f"::warning title=Accuracy%3A compared with care::{_escaped(warning)}"
    for text in comparison.stale[: MOST - 1]:
        yield f"::notice title=Stale%2C made with other code than is installed::{_escaped(text)}"
    causes = "; ".join(map(str, comparison.causes[:MOST])) or "nothing recorded"
    verdict = "failed" if comparison.failed else "ok"
    note = smallest_fall(comparison)
    parts = [f"{counts(comparison)}.", f"What differs: {causes}." if comparison.changed else "", note]
    text = " ".join(filter(None, parts))
    yield f"::notice title=Accuracy gate {verdict}::{_escaped(text)}"


def _bad_means(comparison: Comparison) -> Iterator[tuple[str, str]]:
    means = comparison.means
    for row in means[means["verdict"] == "fell"].sort_values("change").itertuples():
        yield "Mean accuracy fell", describe_mean(row)


def _bad_cells(comparison: Comparison) -> Iterator[tuple[str, str]]:
    titles = {"fell": "Accuracy fell", "lost": "A cell lost its number", "missing": "A cell is missing"}
    bad = comparison.cells[comparison.cells["verdict"].isin(comparison.bad)]
    for row in bad.sort_values("change", na_position="first").itertuples():
        yield titles[str(row.verdict)], describe(row)


def _escaped(text: str, *also: str) -> str:
    for character in ("%", "\r", "\n", *also):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def junit(comparison: Comparison) -> str:
    """JUnit XML: a suite per architecture and data set, in it a case per mean and one for its cells.

    Each suite also has the warnings: a case that passes may be one of other data or weights.
    """
    root = ElementTree.Element("testsuites", name="ttabench compare")
    cells = comparison.cells
    bad = cells[cells["verdict"].isin(comparison.bad)]
    bad_of = {key: list(some.itertuples()) for key, some in bad.groupby(list(MEAN_OF), sort=False)}
    for (arch, dataset), means in comparison.means.groupby(["arch", "dataset"], sort=False):
        suite = ElementTree.SubElement(root, "testsuite", name=f"{arch} on {dataset}")
        failures = 0
        for row in means.itertuples():
            name = naming.where(named(str(row.method), str(row.variant)), row.severity)
            mine = bad_of.get(tuple(getattr(row, field) for field in MEAN_OF), [])
            failures += _case(suite, f"{name}: mean", [describe_mean(row)] if row.verdict == "fell" else [])
            failures += _case(suite, f"{name}: cells", [describe(cell) for cell in mine])
        suite.set("tests", str(2 * len(means)))
        suite.set("failures", str(failures))
        if said := (*comparison.warnings, *comparison.stale):
            ElementTree.SubElement(suite, "system-out").text = "\n".join(said)
    ElementTree.indent(root)
    text = "".join(c for c in ElementTree.tostring(root, encoding="unicode") if _allowed(c))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, name: str, failures: list[str]) -> bool:
    case = ElementTree.SubElement(suite, "testcase", classname=str(suite.get("name")), name=name)
    if failures:
        message = failures[0] if len(failures) == 1 else f"{len(failures)} cells failed"
        ElementTree.SubElement(case, "failure", message=message).text = "\n".join(failures)
    return bool(failures)


def _allowed(character: str) -> bool:
    """Whether XML 1.0 can hold it."""
    code = ord(character)
    return code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
