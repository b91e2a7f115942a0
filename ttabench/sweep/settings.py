"""The values that a user sets for methods: ``--set tent.lr=1e-3,1e-4``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ttabench.errors import UserError
from ttabench.registry import method


def parse_settings(settings: Sequence[str], chosen: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """``tent.lr=1e-3,1e-4`` → ``{"tent": {"lr": ["1e-3", "1e-4"]}}``. Raises UserError."""
    parsed: dict[str, dict[str, list[str]]] = {}
    for text in settings:
        match = re.fullmatch(r"([^.=]+)\.([^.=]+)=(.*)", text)
        if not match or not match[3]:
            raise UserError(f"--set {text} is not of the form method.key=value[,value…].")
        name, key, values = match[1].strip(), match[2].strip(), match[3].split(",")
        if name not in chosen:
            method(name)  # raises for an unknown method
            raise UserError(f"--set {text} is about '{name}', which is not among the methods of this sweep.")
        if key in parsed.get(name, {}):
            raise UserError(f"--set {name}.{key} is given twice; put all values into one: {name}.{key}=A,B.")
        parsed.setdefault(name, {})[key] = [v.strip() for v in values]
    return parsed
