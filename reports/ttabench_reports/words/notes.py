"""Footnotes: one letter for one kind of remark, with the range of the numbers in it."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)")
OTHER = "other reasons; cells.csv has them all"
LONGEST = 160


def kind(text: str) -> str:
    """`text` without its numbers: ``uses 2.3 of 10 classes`` and ``uses 4.1 of 10 classes`` are one kind."""
    return _NUMBER.sub("\0", text)


@dataclass
class Notes:
    """Texts by letter, a letter for each :func:`kind`; when the letters run out, one for all the rest.

    seen  the kinds in the order of their letters, and of each of their numbers what was seen there.
    """

    seen: dict[str, list[list[str]]] = field(default_factory=dict)

    def letter(self, text: str) -> str:
        """The letter of a text, which from now on is among those that the letter stands for."""
        text = text.replace("\0", "")
        general, numbers = kind(text), _NUMBER.findall(text)
        if general not in self.seen and len(self.seen) >= len(string.ascii_lowercase) - 1:
            general, numbers = OTHER, []
        for seen, number in zip(self.seen.setdefault(general, [[] for _ in numbers]), numbers, strict=True):
            if number not in seen:
                seen.append(number)
        return string.ascii_lowercase[list(self.seen).index(general)]

    @property
    def texts(self) -> dict[str, str]:
        """What each letter stands for."""
        return {letter: self.text(letter) for letter in string.ascii_lowercase[: len(self.seen)]}

    def text(self, letter: str) -> str:
        """What a letter stands for, e.g. ``uses 2.3 to 4.1 of 10 classes``."""
        general = list(self.seen)[string.ascii_lowercase.index(letter)]
        ranges = map(_range, self.seen[general])
        text = re.sub("\0", lambda match: next(ranges), general)
        return text if len(text) <= LONGEST else text[: LONGEST - 2].rsplit(" ", 1)[0] + " …"


def _range(numbers: list[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if float(low) == float(high) else f"{low} to {high}"
