"""The JSON schema of sweep files, for editors: ``ttabench sweep --schema``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ttabench.sweep.option_table import OPTIONS
from ttabench.sweep.sweep_file import RULE_OPTIONS

MEANINGS = {
    "include": "Cells to add: a grid of its own. Options that it does not name are those of the sweep.",
    "exclude": "Cells to leave out of the grid and of what include adds: those that match all options named.",
    "per_method": "Other values for the methods of these names, in all settings.",
    "per_dataset": "Other values for these datasets. They give way to those of per_method and include.",
}
WHOLE_METHOD = r"^[^\s\[\]+]+$"
"""The name of a method without settings, and not two methods joined by +."""


def schema() -> dict[str, Any]:
    """JSON Schema, draft 7."""
    rules: dict[str, Any] = {}
    for name, allowed in RULE_OPTIONS.items():
        table = _table(allowed)
        if name in ("include", "exclude"):
            rule: dict[str, Any] = {"type": "array", "items": {**table, "minProperties": 1}}
        else:
            rule = {"type": "object", "additionalProperties": table}
        if name == "per_method":
            rule["propertyNames"] = {"pattern": WHOLE_METHOD}
        rules[name] = {"description": MEANINGS[name], **rule}
    whole = _table(OPTIONS)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A sweep of ttabench",
        **whole,
        "properties": {**whole["properties"], **rules},
    }


def _table(names: Iterable[str]) -> dict[str, Any]:
    properties = {}
    for name in names:
        option = OPTIONS[name]
        default = {"default": option.default} if option.scope != "axis" and name != "set" else {}
        properties[name] = {"description": option.help, **default, **option.kind.schema}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def text() -> str:
    """The schema as text."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
