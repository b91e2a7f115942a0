"""Ranges of numeric settings: declared in a Config, checked before anything runs.

A Config says ``momentum: Momentum = 0.9`` or ``rate: Annotated[float, Range(above=0, most=2)] = 1.0``. Method
files import these names from `ttabench.method`.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, fields
from math import inf
from typing import Annotated, Any

__all__ = [
    "Count",
    "Momentum",
    "Natural",
    "NonNegative",
    "Positive",
    "Range",
    "UnitInterval",
    "check_ranges",
    "ranges",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Finite numbers between bounds: ``0.5 in Range(least=0, below=1)``.

    least, most    inclusive bounds.
    above, below   exclusive bounds.
    also           an additional allowed value, such as 0 for an automatic choice.
    """

    least: float = -inf
    above: float = -inf
    most: float = inf
    below: float = inf
    also: float | None = None

    def __contains__(self, value: float) -> bool:
        within = self.least <= value <= self.most and self.above < value < self.below
        return within or value == self.also

    def describe(self, number: str = "a number") -> str:
        """``a number of at least 1``, ``a number from 0 to below 1``, ``0 or a number above 2``."""
        low = f"above {self.above:g}" if self.above > -inf else f"{self.least:g}"
        high = f"below {self.below:g}" if self.below < inf else f"{self.most:g}"
        if high == "inf":
            bounds = low if self.above > -inf else f"of at least {low}"
        elif low == "-inf":
            bounds = high if self.below < inf else f"of at most {high}"
        else:
            bounds = f"from {low} to {high}"
        return f"{'' if self.also is None else f'{self.also:g} or '}{number} {bounds}"


Count = Annotated[int, Range(least=1)]
Natural = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(least=0)]
UnitInterval = Annotated[float, Range(least=0, most=1)]
Momentum = Annotated[float, Range(least=0, below=1)]


def ranges(config: type[Any]) -> dict[str, Range]:
    """Field name → range, for the fields of a dataclass that have a range."""
    hints = typing.get_type_hints(config, include_extras=True)
    stated = {field.name: _stated(hints[field.name]) for field in fields(config)}
    return {name: allowed for name, allowed in stated.items() if allowed is not None}


def _stated(hint: Any) -> Range | None:
    """The range in an annotation, also inside a union such as ``Count | None``; None without a range."""
    if isinstance(hint, Range):
        return hint
    return next(filter(None, map(_stated, typing.get_args(hint))), None)


def check_ranges(config: Any) -> None:
    """Raises ValueError if a value is outside the range of its field. None is always allowed."""
    kinds = typing.get_type_hints(type(config))
    for name, allowed in ranges(type(config)).items():
        value = getattr(config, name)
        if value is not None and value not in allowed:
            whole = int in (kinds[name], *typing.get_args(kinds[name]))
            expected = allowed.describe("a whole number" if whole else "a number")
            raise ValueError(f"{name} is {value}; expected {expected}")
