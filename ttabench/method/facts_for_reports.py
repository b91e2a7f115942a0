"""What reports say of a method beside its numbers: plain data, stored with the code of its results."""

from __future__ import annotations

import inspect
import math
from dataclasses import fields
from typing import Any

from ttabench.method.contract import Method


def facts_of(cls: type[Method[Any]]) -> dict[str, Any]:
    """Deviations from the paper, declared source data, settings with their defaults and where these are from.

    settings_from   see :func:`settings_from`.
    provenance      "official code" of a :class:`ttabench.method.foreign.Foreign`, otherwise "".
    defaults        those that are text, a finite number, a truth value or None.
    """
    written = {field.name: field.default for field in fields(cls.Config)}
    return {
        "deviations": str(cls.deviations),
        "provenance": str(getattr(cls, "provenance", "")),
        "settings_from": settings_from(cls.Config) if written else "",
        "source_data": str(cls.needs.source_data),
        "defaults": {name: value for name, value in written.items() if _is_plain(value)},
    }


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value))


def own_docstring(config: type[Any]) -> str:
    """The docstring that is written at the class; not the signature that dataclasses put there."""
    text = inspect.cleandoc(config.__dict__.get("__doc__") or "")
    return "" if text.startswith(f"{config.__name__}(") else text


def settings_from(config: type[Any]) -> str:
    """The first paragraph of a Config's docstring: where its values are from."""
    return " ".join(own_docstring(config).partition("\n\n")[0].split())
