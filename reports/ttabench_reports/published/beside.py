"""Published numbers beside ours, where the setting is the same; where it is not, why not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from ttabench.errors import UserError
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.stored_settings import stored_settings
from ttabench_reports.published.catalog import Publication, accuracies, catalog

NEEDED = ("dataset", "severity", "arch", "method", "corruption", "accuracy")
# Columns of a result that a published setting may fix, and how a sentence names them.
_PROTOCOL = {
    "mode": "mode", "reset": "reset", "order": "order", "batch_size": "batch size", "epochs": "epochs",
    "precision": "precision",
}  # fmt: skip
# What none of the publications states; a result that has it otherwise is taken for another setting.
_USUAL = {"contamination": "", "held_out": 0.0, "precision": "float32", "stream": "", "pace": 0.0}
_IN_WORDS = {"precision": "is in", "contamination": "is contaminated by", "held_out": "holds out"}
_UNSTATED = "which the publication does not state"
_NOT_A_SETTING = frozenset((*_PROTOCOL, "images", "chosen", "only", "source", "remark"))
# Source neither adapts nor sees more than one image at a time.
_NO_MATTER_TO_SOURCE = frozenset(("mode", "reset", "order", "batch_size", "epochs"))


# What all rows of a table share.
_SHARED = ("dataset", "reset", "order", *_USUAL, "limit")


@dataclass(frozen=True)
class Candidate:
    """A published number for one result: why it does not stand beside it ("" if it does), and a remark."""

    publication: str
    published: float
    why_not: tuple[str, ...]
    remark: str


def beside(frame: pd.DataFrame, *, every: bool = False) -> pd.DataFrame:
    """`frame` with the columns publication, published, difference (ours − published), why_not, remark.

    frame   results, one row each: dataset, severity, arch, method, corruption (or ``mean``) and accuracy in
            percent; of ``base``, ``config`` (JSON), ``n_images`` and the columns of the protocol, those that
            are there are held against the published setting.
    every   a row per publication that has the number, instead of only the best one.

    `published` (percent) and `difference` are NaN where no published number has the same setting; `why_not`
    says why. The index is kept. Raises UserError for a frame without the columns it needs.
    """
    if missing := [name for name in NEEDED if name not in frame.columns]:
        raise UserError(f"results have no column {', '.join(missing)}; expected {', '.join(NEEDED)}.")
    wanted = dict.fromkeys((*NEEDED[:-1], "base", "config", "n_images", "limit", *_PROTOCOL, *_USUAL))
    about = [name for name in wanted if name in frame]
    known: dict[tuple[Any, ...], list[Candidate]] = {}
    rows: list[int] = []
    candidates: list[Candidate] = []
    for position, values in enumerate(frame[about].itertuples(index=False, name=None)):
        if values not in known:
            known[values] = _candidates(dict(zip(about, values, strict=True)))
        chosen = known[values] if every else known[values][:1]
        rows += [position] * len(chosen)
        candidates += chosen
    result = frame.iloc[rows].copy()
    matched = [not one.why_not for one in candidates]
    result["publication"] = [one.publication for one in candidates]
    result["published"] = [
        one.published if ok else math.nan for one, ok in zip(candidates, matched, strict=True)
    ]
    result["difference"] = result["accuracy"] - result["published"]
    result["why_not"] = ["; ".join(one.why_not) for one in candidates]
    result["remark"] = [one.remark if ok else "" for one, ok in zip(candidates, matched, strict=True)]
    return result


def _candidates(ours: dict[str, Any]) -> list[Candidate]:
    """What is published of a result, the best match first; never empty."""
    base = str(ours.get("base") or ours["method"].partition("[")[0])
    candidates = [
        candidate for publication in catalog().values() for candidate in _of(publication, ours, base)
    ]
    if candidates:
        ranked = sorted(candidates, key=lambda one: len(one.why_not))
        nearest: dict[str, Candidate] = {}
        for one in ranked:  # a publication may have the number in several settings
            nearest.setdefault(one.publication, one)
        return list(nearest.values())
    return [Candidate("", math.nan, (_nothing(ours, base),), "")]


def _of(publication: Publication, ours: dict[str, Any], base: str) -> Iterator[Candidate]:
    for row in _numbers_of(publication.name).get((ours["dataset"], ours["corruption"]), ()):
        same_method = ours["method"] == row.method or base == row.method.partition("[")[0]
        same_severity = row.severity in (ours["severity"], 0)
        if same_method and same_severity and ours["arch"] in publication.names(row.arch):
            why_not = tuple(_differences(publication, ours, base, _in_label(row.method)))
            remark = "; ".join(_remarks(publication, ours, base))
            yield Candidate(publication.name, float(row.accuracy), why_not, remark)


def of_same_setting(publication: str, method: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The remark on a published method beside the rows of one network in a table; None: another setting.

    method  by its label here.
    rows    what is known of the measured rows. Those of this method count; where it was not measured, what
            all rows share: its batch size and settings are its own.
    """
    if not (source := catalog().get(publication)):
        return ""  # numbers of a user: nothing is known of their setting
    base = method.partition("[")[0]
    own = _in_label(method)
    same = [dict(row) for row in rows if method == row["method"] or row["base"] == base]
    for ours in same:
        if not any(_differences(source, ours, base, own)):
            return "; ".join(_remarks(source, ours, base))
    shared = [{name: row[name] for name in _SHARED} for row in rows[:1] if not same]
    for ours in shared:
        theirs = {**source.setting_of(base, ours["dataset"]), **own}
        ours["n_images"] = max(row["n_images"] for row in rows)
        if not any(_in_protocol(theirs, ours, base)):
            return "; ".join(_remarks(source, ours, base))
    return None


@cache
def _numbers_of(publication: str) -> dict[tuple[str, str], list[Any]]:
    """The rows of :func:`accuracies` by dataset and corruption."""
    rows = accuracies(publication).itertuples()
    return grouped(((str(row.dataset), str(row.corruption)), row) for row in rows)


def _differences(
    publication: Publication, ours: dict[str, Any], base: str, own: dict[str, str]
) -> Iterator[str]:
    """What the two settings do not share; `own` are those that the published label has."""
    theirs = {**publication.setting_of(base, ours["dataset"]), **own}
    yield from _in_protocol(theirs, ours, base)
    yield from _settings(theirs, ours)


def _in_protocol(theirs: dict[str, Any], ours: dict[str, Any], base: str) -> Iterator[str]:
    """What differs beside the settings of the method."""
    if "only" in theirs:
        yield f"published for {theirs['only']}"
    for name, word in _PROTOCOL.items():
        if base == "source" and name in _NO_MATTER_TO_SOURCE:
            continue
        if name in theirs and name in ours and not _same(theirs[name], ours[name]):
            yield f"published for {word} {_spelled(theirs[name])}, ours is {_spelled(ours[name])}"
    for name, usual in _USUAL.items():
        if name in ours and name not in theirs and not _same(usual, ours[name]):
            yield f"ours {_IN_WORDS.get(name, 'has ' + name)} {ours[name]}, {_UNSTATED}"
    if "images" in theirs and ours.get("n_images") and not _same(theirs["images"], ours["n_images"]):
        yield f"published on {theirs['images']:,} images, ours on {int(ours['n_images']):,}"
    elif "chosen" in theirs and ours.get("limit"):
        yield f"the published images are {theirs['chosen']}, ours the first {int(ours['limit']):,}"
    elif "images" not in theirs and ours.get("limit"):
        yield f"ours has the first {int(ours['limit']):,} images; the publication does not state how many"


def _remarks(publication: Publication, ours: dict[str, Any], base: str) -> Iterator[str]:
    """What may differ all the same."""
    if weights := publication.weights_of(base):
        yield f"weights: {weights}"
    theirs = publication.setting_of(base, ours["dataset"])
    if "remark" in theirs:
        yield str(theirs["remark"])
    needed = ("mode", "reset", "order", "batch_size", "images")
    matters = [name for name in needed if base != "source" or name not in _NO_MATTER_TO_SOURCE]
    if unknown := [_PROTOCOL.get(name, name) for name in matters if name not in theirs]:
        yield f"not stated there: {', '.join(unknown)}"


def _settings(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """The method's own settings: those published, and those that our label says are not the defaults."""
    config, label = stored_settings(ours.get("config")), _in_label(ours["method"])
    wanted = {key: value for key, value in theirs.items() if key not in _NOT_A_SETTING}
    for key, value in wanted.items():
        used = config.get(key) if config else label.get(key)
        if used is None and not config:
            yield f"published with {key}={_spelled(value)}, ours is not stored"
        elif used is not None and not _same(value, used):
            yield f"published with {key}={_spelled(value)}, ours has {_spelled(used)}"
    for key, text in label.items():
        if key not in wanted:
            yield f"ours has {key}={text}, {_UNSTATED}"


def _in_label(method: str) -> dict[str, str]:
    """``tent[norms=all,lr=1]`` → its settings."""
    return dict(re.findall(r"([A-Za-z_]\w*)=([^,\]]+)", method.partition("[")[2]))


def _nothing(ours: dict[str, Any], base: str) -> str:
    """The first thing of a result that no publication has."""
    numbers = pd.concat([accuracies(name) for name in catalog()])
    where = numbers[numbers["dataset"] == ours["dataset"]]
    if where.empty:
        return f"nothing is published on {ours['dataset']}"
    at = "" if {5, 0} & {ours["severity"]} else f" at severity {ours['severity']}"
    where = where[where["severity"].isin({ours["severity"], 0})]
    if where.empty:
        return f"nothing is published on {ours['dataset']}{at}"
    where = where[(where["method"].str.partition("[")[0] == base) | (where["method"] == ours["method"])]
    if where.empty:
        return f"nothing is published of {base} on {ours['dataset']}{at}"
    archs = sorted({(row.publication, row.arch) for row in where.itertuples()})
    names = [name for publication, arch in archs for name in catalog()[publication].names(arch)[:1]]
    if not any(ours["arch"] in catalog()[publication].names(arch) for publication, arch in archs):
        return f"published of {base} with {', '.join(dict.fromkeys(names))}, ours is {ours['arch']}"
    return f"only the mean is published of {base} with {ours['arch']} on {ours['dataset']}"


def _same(theirs: Any, ours: Any) -> bool:
    """Whether two values are one; numbers may be text, as in a label."""
    if isinstance(theirs, bool) or isinstance(ours, bool):
        return str(theirs).lower() == str(ours).lower()
    try:
        return math.isclose(float(theirs), float(ours), rel_tol=1e-9)
    except ValueError:
        return str(theirs) == str(ours)


def _spelled(value: Any) -> str:
    return str(value).replace("_", " ") if isinstance(value, str) else f"{value:g}"
