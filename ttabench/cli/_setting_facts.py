"""What the listings show of the settings of a method: default, range and meaning."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import MISSING, fields
from typing import Any

from ttabench.cell import spell

ROW = re.compile(r"^(\w+(?:, \w+)*)(?:\s{2,}|:\s+)(\S.*)$")
ROLE = re.compile(r":\w+:`~?(?:ttabench\.)?([^`]+)`")  # of Sphinx, as in :func:`name`
FIELD = re.compile(r"^    (\w+): [^#]*?(?:  # (?!type:|noqa)(.*))?$")


def settings_of(config: Any) -> list[dict[str, str]]:
    """The settings of a method's Config, and their values in this one."""
    from ttabench.method.ranges import ranges

    kind = type(config)
    allowed, hints = ranges(kind), typing.get_type_hints(kind)
    meanings = _meanings(kind)
    return [
        {
            "name": field.name,
            "default": spell(None if field.default is MISSING else field.default),
            "value": spell(getattr(config, field.name)),
            "range": _range(hints[field.name], allowed.get(field.name)),
            "meaning": ROLE.sub(r"\1", meanings.get(field.name, "")),
        }
        for field in fields(kind)
    ]


def _range(hint: Any, allowed: Any) -> str:
    """``a whole number of at least 1``, ``batch or median``, ``true or false``."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, options))
    kinds = set(options) or {hint}
    kind = "a whole number" if int in kinds else "a number" if float in kinds else "text"
    text = "true or false" if bool in kinds else allowed.describe(kind) if allowed else kind
    return f"{text}, or none" if type(None) in kinds else text


def _meanings(config: type[Any]) -> dict[str, str]:
    """The meaning of each setting, from the method's table of symbols, in a comment, in the docstring."""
    from ttabench.method.facts_for_reports import own_docstring

    meanings: dict[str, str] = {}
    for cls in reversed(config.__mro__):
        if cls is not object:
            meanings |= _symbols(inspect.getdoc(inspect.getmodule(cls)) or "")
            meanings |= _comments(cls)
            meanings |= _rows(own_docstring(cls))
    return meanings


def _symbols(text: str) -> dict[str, str]:
    """Rows ``| symbol | name | meaning |`` of a method file's table; a row with a meaning alone goes on."""
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")] if line.startswith("|") else []
        if cells[:-1] == [""] * (len(cells) - 1) and cells and names:
            meanings |= {name: f"{meanings[name]} {cells[-1]}" for name in names}
        elif len(cells) == 3 and cells[1] and cells[2]:
            symbol = f"{cells[0]}: " if cells[0] not in ("", "–") else ""
            names = [name.strip("` ") for name in cells[1].split(",")]
            meanings |= dict.fromkeys(names, symbol + cells[2])
        else:
            names = []
    return meanings


def _rows(text: str) -> dict[str, str]:
    """``name  what it is`` lines; lines that are indented further go on."""
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if match := ROW.match(line):
            names = match[1].split(", ")
            meanings |= dict.fromkeys(names, match[2].strip())
        elif line.startswith(" ") and names:
            meanings |= {name: f"{meanings[name]} {line.strip()}" for name in names}
        else:
            names = []
    return meanings


def _comments(cls: type[Any]) -> dict[str, str]:
    """Comments behind the fields of a class, and above those that have none behind them.

    ``lr: Positive = 0.1  # the paper's``, perhaps going on in the line below.
    """
    try:
        lines = inspect.getsource(cls).splitlines()
    except (OSError, TypeError):
        return {}
    meanings: dict[str, str] = {}
    above, last = "", ""
    for line in lines:
        text = line.strip()
        if text.startswith("# "):
            if last:
                meanings[last] += f" {text[2:]}"
            else:
                above = f"{above} {text[2:]}".strip()
        elif match := FIELD.match(line):
            behind = match[2] or ""
            meanings[match[1]] = behind or above
            above, last = "", match[1] if behind else ""
        else:
            above, last = "", ""
    return {name: text for name, text in meanings.items() if text}
