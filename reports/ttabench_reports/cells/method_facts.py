"""What a result says of its method beside the number, see `ttabench.method.facts_for_reports`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class MethodFacts:
    """Facts of a method, as its class had them when the result was measured.

    stored         whether there are any.
    deviations     from the paper or the official code; "" for none.
    provenance     "official code", or "".
    settings_from  where its settings are from, or "".
    source_data    the source data that it declares, "" for none; None where not known.
    defaults       of its settings.
    parts          the same of the methods that its settings name.
    """

    stored: bool = False
    deviations: str = ""
    provenance: str = ""
    settings_from: str = ""
    source_data: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, MethodFacts] = field(default_factory=dict)


@lru_cache(maxsize=4096)
def method_facts(text: str) -> MethodFacts:
    """The facts in a cell of the column `about_method`; none in a text that is something else."""
    try:
        return _facts(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return MethodFacts()


def _facts(stored: Any) -> MethodFacts:
    if not stored or not isinstance(stored, dict):
        return MethodFacts()
    texts = {name: str(stored.get(name, "")) for name in ("deviations", "provenance", "settings_from")}
    source_data = stored.get("source_data")
    return MethodFacts(
        stored=True,
        **texts,
        source_data=None if source_data is None else str(source_data),
        defaults=_table(stored.get("defaults")),
        parts={name: _facts(part) for name, part in _table(stored.get("parts")).items()},
    )


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
