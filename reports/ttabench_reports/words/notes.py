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
    """Texts by letter, a letter for each :func:`kind`; when the letters run out, one for all the rest."""

    kinds: list[str] = field(default_factory=list)
    numbers: list[list[list[str]]] = field(default_factory=list)

    def letter(self, text: str) -> str:
        """The letter of a text, which from now on is among those that the letter stands for."""
        text = text.replace("\0", "")
        general, numbers = kind(text), _NUMBER.findall(text)
        if general not in self.kinds:
            if len(self.kinds) >= len(string.ascii_lowercase) - 1:
                general, numbers = OTHER, []
            if general not in self.kinds:
                self.kinds.append(general)
                self.numbers.append([[] for _ in numbers])
        at = self.kinds.index(general)
        for seen, number in zip(self.numbers[at], numbers, strict=True):
            if number not in seen:
                seen.append(number)
        return string.ascii_lowercase[at]

    @property
    def texts(self) -> dict[str, str]:
        """What each letter stands for."""
        return {letter: self.text(letter) for letter in string.ascii_lowercase[: len(self.kinds)]}

    def text(self, letter: str) -> str:
        """What a letter stands for, e.g. ``uses 2.3 to 4.1 of 10 classes``."""
        at = string.ascii_lowercase.index(letter)
        ranges = iter([_range(seen) for seen in self.numbers[at]])
        text = re.sub("\0", lambda match: next(ranges), self.kinds[at])
        return text if len(text) <= LONGEST else text[: LONGEST - 2].rsplit(" ", 1)[0] + " …"


def _range(numbers: list[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if float(low) == float(high) else f"{low} to {high}"
