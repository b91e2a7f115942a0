"""How the protocol cards of two results differ: settings, versions, sources, data, weights.

A card is whatever a record holds besides its outcome (see :mod:`sides`), so that what a later version records
is compared too; of the details of a result, those that are known to say how it was measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ttabench.errors import first_of
from ttabench_reports.compare.sides import INSTALLED, STATUS, Card

ABSENT = "not recorded"
_WORDS = {
    "source": "source of the method",
    "fingerprint": "data",
    "foreign": "data that contaminate the stream",
    "checkpoint": "weights",
    "clean_accuracy": "clean accuracy of the source classifier",
    "n_images": "number of images",
}
RowKey = tuple[str, str, str]  # method, architecture, data set


@dataclass(frozen=True)
class Difference:
    """One key of the cards, with a value on either side.

    key     dotted, e.g. ``config.lr``, ``versions.torch``, ``checkpoint``.
    cells   how many of the compared cells differ so.
    of      how many cells were compared.
    places  the (method, architecture, data set) of those cells, where not all compared ones differ so.
    """

    key: str
    before: str
    after: str
    cells: int
    of: int
    places: tuple[RowKey, ...] = ()

    @property
    def name(self) -> str:
        """The key in words."""
        return _WORDS.get(self.key, self.key)

    def __str__(self) -> str:
        where = f" ({_where(self.places)})" if self.places else ""
        return f"{self.name}: {_brief(self.before)} → {_brief(self.after)}{where}"


def differences(pairs: Iterable[tuple[RowKey, Card, Card]], *, whole: bool = True) -> list[Difference]:
    """How the cards (before, after) of matched cells differ, the most widespread first, and code last.

    Code is no difference where both sides are fresh or attested: its text differs, and its numbers do not.
    Without `whole`, a key that only one side has is left out: that side never recorded it. So it is where one
    of the two cells has no number: much of its card was never found out.
    """
    counted: dict[tuple[str, str, str], dict[RowKey, int]] = {}
    every: dict[RowKey, int] = {}
    for place, before, after in pairs:
        every[place] = every.get(place, 0) + 1
        hidden = _not_compared(before, after)
        before, after = ({k: v for k, v in card.items() if k not in hidden} for card in (before, after))
        both = all(card.get(STATUS, "ok") == "ok" for card in (before, after))
        for difference in _unequal(before, after, whole and both):
            places = counted.setdefault(difference, {})
            places[place] = places.get(place, 0) + 1
    of = sum(every.values())
    listed = [
        Difference(*key, sum(places.values()), of, () if places == every else tuple(sorted(places)))
        for key, places in counted.items()
    ]
    return sorted(listed, key=lambda one: (_is_code(one.key), -one.cells, one.key, one.before, one.after))


def _is_code(key: str) -> bool:
    return key == "source" or key.startswith("code.")


def _not_compared(before: Card, after: Card) -> set[str]:
    """The keys of code that are no difference. `source` is the hash of all: one of both is enough."""
    if before.get(INSTALLED) and after.get(INSTALLED):
        return {INSTALLED, "source", "code"}
    return {INSTALLED, "source" if "code" in before and "code" in after else "code"}


def _unequal(before: Card, after: Card, whole: bool, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    if before == after:
        return
    for key in before.keys() | after.keys():
        one, other = before.get(key), after.get(key)
        if one == other:
            continue
        if not whole and (key not in before or key not in after or str(one) == str(other)):
            continue
        parts = [{} if part is None else part for part in (one, other)]
        if all(isinstance(part, dict) for part in parts):
            yield from _unequal(parts[0], parts[1], whole, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(before, key), _text(after, key)


def _text(card: Card, key: str) -> str:
    if key not in card:
        return ABSENT
    value: Any = card[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _brief(value: str) -> str:
    """A hash by its first eight digits."""
    return value[:8] if re.fullmatch(r"[0-9a-f]{40,128}", value) else value or "none"


def _where(places: tuple[RowKey, ...]) -> str:
    """``tent, sar; on cct``: what the places have in common is left to the reader to know."""
    methods, archs, datasets = (list(dict.fromkeys(column)) for column in zip(*places, strict=True))
    if len(methods) * len(archs) * len(datasets) == len(places):
        return "; ".join(first_of(names) for names in (methods, archs, datasets))
    return first_of([" · ".join(place) for place in places])
