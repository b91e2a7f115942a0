"""Errors meant for people: one clear sentence, the nearest valid name, how to fix it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake of the caller. The command line prints it without a traceback and exits with 2."""


class UnusableModel(Exception):
    """A model or method produced something that cannot be scored (NaN logits, wrong shape)."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name nobody knows, with the nearest valid one.

    >>> str(unknown("method", "tnet", ["tent", "source"]))
    "unknown method 'tnet'; did you mean 'tent'? Valid: source, tent."
    """
    choices = sorted(valid)
    near = get_close_matches(name.lower(), choices, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return UserError(f"unknown {kind} '{name}'{hint} Valid: {', '.join(choices) or 'none'}.")
