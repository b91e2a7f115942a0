"""Parse lists and methods that users write: ``tent[norms=all],sar``. Imports no torch."""

from __future__ import annotations

import re

from ttabench.errors import UserError

STACK = "stack"  # the method that joins two others


def split_list(text: str) -> tuple[str, ...]:
    """Split at commas outside brackets: ``a,b[x=1,y=2]`` → ``("a", "b[x=1,y=2]")``."""
    return tuple(part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip())


def distinct_list(text: str, what: str) -> tuple[str, ...]:
    """As :func:`split_list`. Raises UserError where nothing is named, or one name twice."""
    names = split_list(text)
    if not names:
        raise UserError(f"{what} '{text}' names nothing; name at least one.")
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UserError(f"{what} names '{twice}' twice; name it once.")
    return names


def joined(text: str) -> str:
    """``quantile+cotta``, the second method on the images of the first, is ``stack`` with these two.

    Raises UserError where one of them has settings.
    """
    first, plus, second = text.partition("+")
    if "]+" in text.replace(" ", "") or (plus and "[" not in first and "[" in second):
        plain = re.sub(r"\[[^\[\]]*\]", "", text)
        raise UserError(f"{text}: methods joined by + have their default settings; write {plain}.")
    return f"{STACK}[first={first.strip()},second={second.strip()}]" if plus and "[" not in first else text


def parse_method(text: str) -> tuple[str, dict[str, str]]:
    """``tent[norms=all]`` → ``("tent", {"norms": "all"})``. Raises UserError."""
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", joined(text))
    if not match:
        raise UserError(f"method '{text}' is not of the form name or name[key=value,…].")
    settings: dict[str, str] = {}
    for part in filter(None, (match[2] or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"'{part}' in '{text}' is not of the form key=value.")
        if key.strip() in settings:
            raise UserError(f"'{key.strip()}' is in '{text}' twice; give it once.")
        settings[key.strip()] = value.strip()
    return match[1].strip(), settings
