"""The options of two sweeps in one results folder: how they differ, and both joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import ValidationError, convert, defstruct

Texts: Any = str | list[str]
"""Names: a list in ``sweep.json``, a text with commas in a sweep file."""
_NAMES: list[Any] = [
    *((name, Texts, "") for name in ("methods", "archs", "datasets", "corruptions", "settings")),
    ("set", Texts | dict[str, Any], ""),
]
_RULE: Any = defstruct("Rule", _NAMES, kw_only=True)
_RULES: list[Any] = [
    *((name, list[_RULE], None) for name in ("include", "exclude")),
    *((name, dict[str, _RULE], None) for name in ("per_method", "per_dataset")),
]
_OPTIONS = defstruct("Options", [*_NAMES, *_RULES], kw_only=True)


def are_options(options: Mapping[str, Any]) -> bool:
    """Whether names and rules have the types that the options of a sweep have. Others are only shown."""
    known = {name: options[name] for name in _OPTIONS.__struct_fields__ if name in options}
    try:
        convert(known, _OPTIONS)
    except (ValidationError, UnicodeEncodeError):  # the latter for a rule with a name that is no text
        return False
    return True


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Options that two sweeps do not share: ``--limit was 50 and is now 200; --set was not given and …``"""
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    return "; ".join(
        f"{_flag(key)} was {_brief(before.get(key))} and is now {_brief(now.get(key))}" for key in differ
    )


def _flag(name: str) -> str:
    """How an option of a sweep is given: a flag, or a rule of a sweep file."""
    if name in ("include", "exclude", "per_method", "per_dataset"):
        return f"[{name}]"
    return "--set" if name == "settings" else f"--{name.replace('_', '-')}"


def _brief(value: Any) -> str:
    """An option's value, shortened. 0 and empty values have the meaning of an option that is not given."""
    if not value:
        return "not given"
    text = ",".join(map(_one, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _one(value: Any) -> str:
    """An entry of a list; a compute ratio, ``["tent", 2.0]``, as it is given: ``tent=2``."""
    match value:
        case [str(method), float(ratio)]:
            return ratio_text(method, ratio)
    return str(value)


def ratio_text(method: str, ratio: float) -> str:
    """A method's compute ratio as it is given, with every digit: ``tent=2``."""
    return f"{method}={repr(ratio).removesuffix('.0')}"


def union(before: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """The options of two sweeps in one folder: lists are joined, other values are those of the later one."""
    joined = dict(before)
    for key, value in added.items():
        old = before.get(key)
        joined[key] = [*old, *(v for v in value if v not in old)] if isinstance(old, list) else value
    return joined
