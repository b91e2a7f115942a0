"""What a method was given: source data, sight of the test images, settings. Shown in every table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ttabench.cell import spell
from ttabench_reports.cells.method_facts import MethodFacts, method_facts
from ttabench_reports.cells.stored_settings import stored_settings
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words.unset_settings import settings_of

_COUNTS = ("source_images", "source_features", "fisher_images")
"""Settings that say how much of the source data a method takes; 0 = all there is."""
_TOLD_BY = ("base", "mode", "batch_size", "epochs", "method", "config", "dataset", "measured", "source_data",
            "source_used", "about_method")  # fmt: skip
"""The parts of a row's `about` that say what its method was given."""
_KINDS = {"features": "F", "images": "I", "statistics": "S"}
LEGEND = (
    "Given: what a method sees of the source data: features (F), images (I) or statistics (S), with the "
    "number of images. ep.: passes over the test images before they are scored. T: some settings were "
    "chosen on the extra corruptions. –: no source data, one pass, no T"
)
UNKNOWN = "n/a"
# What the docstring of a method's Config says where settings were tuned, as docs/your-method.md asks for;
# with up to three words before "extra". A denial at most two words before it takes it back.
_TUNED = re.compile(r"(?:chosen|tuned) on (?:\S+ ){0,3}extra corruptions?\b", re.IGNORECASE)
_DENIED = re.compile(
    r"(?:\b(?:no|not|none|nor|neither|never|nothing|cannot)\b|n't\b)(?: \w+){0,2} $", re.IGNORECASE
)


@dataclass(frozen=True)
class Given:
    """What one method had.

    kind        ``features``, ``images``, ``statistics`` or ""; ``n/a`` where it is not known.
    source      ``nothing``, or e.g. ``features of 2000 source images``.
    short       ``–``, or e.g. ``F 2000``; offline, with the epochs: ``F 2000, 10 ep.``; T where tuned;
                the words of `code`.
    mode        online | offline.
    batch_size  images per batch.
    epochs      passes over the test images before they are scored; 0 online.
    settings    ``defaults``, or those that are not: of the label, and of the stored settings.
    in_label    whether some are in the label: what the user set, or a network needs.
    chosen      how the defaults were chosen, as the docstring of its Config says.
    tuned       whether some were chosen on the extra corruptions.
    deviations  where the code differs from the paper or the official code.
    code        "official code" of a method that is a `ttabench.method.foreign.Foreign`, otherwise "".
    """

    kind: str
    source: str
    short: str
    mode: str
    batch_size: int
    epochs: int
    settings: str
    in_label: bool
    chosen: str
    tuned: bool
    deviations: str
    code: str

    def columns(self) -> dict[str, Any]:
        """The columns of CSV files that say it."""
        return {
            "source_data": self.source, "epochs_seen": self.epochs, "settings": self.settings,
            "settings_chosen": self.chosen,
        }  # fmt: skip


def rows_given(tables: Iterable[Table]) -> Iterator[Row]:
    """The rows that say what methods were given. Cells that did not run say less than those that did."""
    rows = [row for table in tables for row in table.measured_rows]
    ran = {row.about["base"] for row in rows if row.about["measured"]}
    return (row for row in rows if row.about["measured"] or row.about["base"] not in ran)


def given(about: Mapping[str, Any]) -> Given:
    """What the method of a row was given, from the row's `about` (see :class:`table.Row`)."""
    return _given(tuple([(name, about[name]) for name in _TOLD_BY if name in about]))


@lru_cache(maxsize=4096)
def _given(told: tuple[tuple[str, Any], ...]) -> Given:
    """:func:`given`, found once for the many rows and sheets that say the same."""
    about = dict(told)
    config = stored_settings(about.get("config", ""))
    offline = about["mode"] == "offline"
    known = method_facts(str(about.get("about_method", "")))
    epochs = _passes(int(about["epochs"]), config, known) if offline else 0
    kind = _kind(about, config, known)
    source, code = _source(about, config, kind)
    passes = f"{epochs} ep." if offline and about["base"] != "source" else ""
    in_label = settings_of(str(about["method"]))
    tuned = _is_tuned(known.settings_from, str(about.get("dataset", "")))
    return Given(
        kind=kind,
        source=source,
        short=", ".join(filter(None, (code, passes, "T" if tuned else "", known.provenance))) or "–",
        mode=str(about["mode"]),
        batch_size=int(about["batch_size"]),
        epochs=epochs,
        settings=", ".join([*in_label, *_unusual(in_label, config, known.defaults)]) or "defaults",
        in_label=bool(in_label),
        chosen=known.settings_from,
        tuned=tuned,
        deviations=known.deviations or ("none" if known.stored else "not stored"),
        code=known.provenance,
    )


def _unusual(in_label: Sequence[str], config: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    """What else differs from the defaults of the method's class: settings for a dataset or a network."""
    names = {setting.partition("=")[0].strip() for setting in in_label}
    return [
        f"{name}={spell(value)}"
        for name, value in config.items()
        if name not in names and name in usual and value != usual[name]
    ]


def _passes(epochs: int, config: Mapping[str, Any], known: MethodFacts) -> int:
    """Passes over the test images of an offline method; of a stack, those of both its methods."""
    if {"first", "second"} <= config.keys():
        parts = (known.parts.get(str(config[part]), MethodFacts()) for part in ("first", "second"))
        return sum(epochs or _count(part.defaults.get("epochs")) for part in parts)
    return epochs or _count(config.get("epochs"))


def _count(value: Any) -> int:
    """A number of epochs among settings; 1 for a method that means something else by this name."""
    return value if type(value) is int and value > 0 else 1


def _is_tuned(chosen: str, dataset: str) -> bool:
    """Whether a part of the text says so; one that begins ``On digits-c`` is about that dataset alone."""
    parts = [part.strip() for part in re.split(r"[;.] ", chosen) if _affirms(part)]
    named = [re.match(r"[Oo]n (\S+-c)\b", part) for part in parts]
    return any(match is None or match[1] == dataset.partition("[")[0] for match in named)


def _affirms(part: str) -> bool:
    said = _TUNED.search(part)
    return said is not None and not _DENIED.search(part[: said.start()])


def _kind(about: Mapping[str, Any], config: Mapping[str, Any], known: MethodFacts) -> str:
    """Which source data. A cell that did not run does not say it, so its class does."""
    kind = str(about.get("source_data", ""))
    if kind or about.get("measured", True):
        return kind
    declared = known.parts.get(str(config.get("host")), known).source_data
    return UNKNOWN if declared is None else declared


def _source(about: Mapping[str, Any], config: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """(in words, in short)"""
    if used := str(about.get("source_used", "")):  # e.g. features (10,000 images); channels (2,000 images)
        counts = [
            int(count.replace(",", "")) for count in re.findall(r"\(([0-9][0-9,]{0,20}) images\)", used)
        ]
        return used, f"{_KINDS.get(kind, kind)} {_brief(max(counts, default=0))}".strip()
    if kind == UNKNOWN:
        return UNKNOWN, UNKNOWN
    if not kind:
        return "nothing", ""
    set_to = [config[name] for name in _COUNTS if name in config]
    count = "" if not set_to else str(set_to[0]) if set_to[0] else "all"
    words = {"features": "features of {} source images", "statistics": "statistics of {} source images"}
    spelled = words.get(kind, "{} source images")
    text = spelled.format(count).replace("  ", " ").strip()
    brief = _brief(int(count)) if count.isdigit() else count
    return text, f"{_KINDS.get(kind, kind)} {brief}".strip()


def _brief(count: int) -> str:
    """``10k`` for 10,000; nothing for 0."""
    return f"{count // 1000}k" if count and count % 1000 == 0 else str(count or "")
