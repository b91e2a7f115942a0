"""Options that several verbs share, and how their texts become values."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ttabench.errors import UserError, unknown

GROUPS = {"all": "CORRUPTIONS", "extra": "EXTRA_CORRUPTIONS", "every": "ALL_CORRUPTIONS"}


def whole_numbers(text: str, what: str) -> tuple[int, ...]:
    """``"1,3"`` → ``(1, 3)``. Raises UserError."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UserError(f"{what} {text}: expected whole numbers separated by commas.") from None


def share(text: str, what: str) -> float:
    """``"0.5"`` → 0.5. Raises UserError for what is not a number."""
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{what} {text}: expected a number, e.g. 0.5.") from None


def corruption_names(text: str) -> tuple[str, ...]:
    """``all`` (the 15), ``extra`` (the 4), ``every`` (the 19), ``mixed`` or names. Raises UserError."""
    from ttabench.corruptions import names

    found: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        if part in GROUPS:
            found += getattr(names, GROUPS[part])
        elif part in (*names.ALL_CORRUPTIONS, "mixed"):
            found.append(part)
        else:
            raise unknown("corruption", part, [*names.ALL_CORRUPTIONS, *GROUPS, "mixed"])
    return tuple(found)


def read_config(path: Path, known: Sequence[str]) -> dict[str, Any]:
    """A TOML file of options by their long names (lists allowed). Raises UserError."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as problem:
        raise UserError(f"--config {path} cannot be read ({problem.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"--config {path} is not valid TOML: {problem}.") from None
    values: dict[str, Any] = {}
    for key, value in data.items():
        name = key.replace("-", "_")
        if name not in known:
            raise unknown(f"option in {path.name}", key, known)
        if name == "set" and isinstance(value, Mapping):
            value = [f"{m}.{k}={_text(v)}" for m, keys in value.items() for k, v in keys.items()]
        values[name] = value if name == "set" else _text(value)
    return values


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
