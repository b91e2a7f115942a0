"""Names of one's own in tables and plots: ``anchor_tent=Ours`` shows the method `anchor_tent` as "Ours"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pandas as pd

from ttabench.errors import UserError, printable, unknown
from ttabench_reports.words import naming

_PAIR = re.compile(r"(?P<identifier>[^=\[]+(?:\[[^\]]*\])?)=(?P<name>.*)")


def rename(texts: Sequence[str], cells: pd.DataFrame) -> AbstractContextManager[None]:
    """A block in which methods, architectures and datasets of `cells` are shown by other names.

    texts  ``identifier=name``; the identifier is that of cells.csv, for a method with or without settings.

    CSV files keep the identifiers. Raises UserError on a text without "=", an identifier that the results do
    not have, and a name that two rows or tables would share.
    """
    kinds = {
        "method": {*cells["base"].unique(), *cells["method"].unique()},
        "architecture": {*cells["arch"].unique()},
        "dataset": {*cells["dataset"].unique()},
    }
    known = set().union(*kinds.values())
    names: dict[str, str] = {}
    for text in texts:
        pair = _PAIR.fullmatch(text)
        name = pair["name"].strip() if pair else ""
        if pair is None or not name or printable(name) != name:
            raise UserError(
                f"--rename is {text!r}; expected IDENTIFIER=NAME, e.g. quantile='Quantile (ours)'."
            )
        if (further := re.search(r", *([^=,]+)=", name)) and further[1] in known:
            raise UserError(f"--rename is {text!r}; give {further[1]} a --rename of its own.")
        identifier = pair["identifier"].strip()
        if identifier not in known:
            raise unknown("method, architecture or dataset of these results", identifier, sorted(known))
        if names.setdefault(identifier, name) != name:
            raise UserError(
                f"--rename gives {identifier} two names, {names[identifier]!r} and {name!r}; keep one."
            )
    with naming.chosen(names):
        shown: dict[str, Callable[[str], str]] = {
            "method": naming.method, "architecture": naming.arch, "dataset": naming.dataset,
        }  # fmt: skip
        for kind, identifiers in kinds.items():
            first: dict[str, str] = {}
            for identifier in sorted(identifiers & names.keys()) + sorted(identifiers - names.keys()):
                other = first.setdefault(shown[kind](identifier), identifier)
                if other in names and other != identifier:
                    raise UserError(
                        f"--rename shows two of the {kind}s as {names[other]!r}: {other} and {identifier}; "
                        "choose another name."
                    )
    return naming.chosen(names)
