"""Errors and warnings meant for people: one clear sentence, the nearest valid name, how to fix it."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches


class UserError(Exception):
    """A mistake of the caller. The command line prints it without a traceback and exits with 2.

    Control characters in the text, such as those of a file's name, are replaced: a terminal would obey them.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(printable(text))


class UnknownName(UserError):
    """A name nobody knows; see :func:`unknown`."""


class NothingToReport(UserError):
    """A report format can make nothing of these results; told only to who asked for it by name."""


class UnusableModel(Exception):
    """A model or method produced something that cannot be scored (NaN logits, wrong shape)."""


class Alarm(UserWarning):
    """A method cannot work as it is set, or on what it was given; its numbers stand."""


def warn_of_setting(method: str, alarm: str) -> str:
    """Warn that a method cannot work with a setting; returns `alarm`, for `Method.alarms`."""
    warnings.warn(f"{method}: {alarm}", Alarm, stacklevel=3)
    return alarm


def tell_warnings(tell: Callable[[UserWarning], None]) -> None:
    """Hand every warning meant for people, a UserWarning, to `tell`, once; drop all others.

    Alarms that differ in their numbers only are one: each cell of a sweep has its own, and keeps it with
    the result. `warnings.catch_warnings` undoes this.
    """
    told: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_where: object, **_more: object) -> None:
        if not issubclass(category, UserWarning):
            return
        kind = Alarm if issubclass(category, Alarm) else UserWarning
        text = str(message)
        same = re.sub(r"(?<![\w.])\d[\d.]*(e[-+]?\d+)?", "", text) if kind is Alarm else text
        if same not in told:
            told.add(same)
            tell(kind(text))

    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = show


def printable(text: str) -> str:
    r"""`text` with every control character but tab and newline shown as its code.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(
        c if c in "\t\n" or unicodedata.category(c) != "Cc" else c.encode("unicode_escape").decode()
        for c in text
    )


def shortened(text: str, length: int = 80) -> str:
    """`text`, or its beginning and its length where it is longer than `length` characters."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


SHOWN = 25  # valid names that an error lists in full


def unknown(kind: str, name: str, valid: Iterable[str], see: str = "") -> UnknownName:
    """The error for a name nobody knows, with the nearest valid ones.

    All valid names are listed where they are few; `see` says where a long list can be read.

    >>> str(unknown("method", "tnet", ["tent", "source"]))
    "unknown method 'tnet'; did you mean 'tent'? Valid: source, tent."
    >>> str(unknown("model", "resnet19", ["resnet18", *(f"x{i}" for i in range(30))], "`list`"))
    "unknown model 'resnet19'; did you mean 'resnet18'? See `list`."
    """
    choices = sorted(valid)
    few = len(choices) <= SHOWN
    spelt = {choice.lower(): choice for choice in choices}
    near = [spelt[n] for n in get_close_matches(name.lower(), spelt, n=1 if few else 3, cutoff=0.5)]
    hint = f"; did you mean {_either(near)}?" if near else "."
    if few:
        rest = f"Valid: {', '.join(choices) or 'none'}."
    else:
        rest = f"See {see}." if see else f"There are {len(choices):,}."
    return UnknownName(f"unknown {kind} '{shortened(name)}'{hint} {rest}")


def _either(names: Sequence[str]) -> str:
    """'a', 'b' or 'c'"""
    *most, last = (f"'{name}'" for name in names)
    return f"{', '.join(most)} or {last}" if most else last
