"""``ttabench cite``: BibTeX for exactly what was used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option


def cite(
    results: Annotated[
        Path | None, Argument(metavar="DIR", help="Cite what this results folder used.")
    ] = None,
    methods: Annotated[
        str, Option(metavar="NAMES", help="Methods, with the settings used: sar,tent\\[statistics=median].")
    ] = "",
) -> None:
    """Print the BibTeX entries of methods, or of ttabench and the methods in a results folder."""
    from ttabench.cli._facts import papers
    from ttabench.errors import UserError, printable
    from ttabench.method.spelling import parse_method, split_list
    from ttabench.registry import method_names

    if results is not None and not results.exists():
        raise UserError(
            f"{results} does not exist; expected a results folder. For methods: cite --methods NAMES."
        )
    named = [parse_method(text) for text in split_list(methods)]
    stored = list(_stored(results)) if results else []
    if not named and not stored:
        if results is not None:
            raise UserError(f"{results} has no cell with a number; name methods with --methods.")
        raise UserError("nothing to cite: name methods with --methods, or a results folder.")
    installed = method_names()
    entries_of = papers(named, [used for used in stored if used[0] in installed])
    if stored:
        print(_of_ttabench())
    for entry in dict.fromkeys(entry for _, entries in entries_of for entry in entries):
        print(entry)
    if without := dict.fromkeys(name for name, entries in entries_of if not entries):
        print(f"without a paper: {', '.join(without)}", file=sys.stderr)
    if absent := dict.fromkeys(name for name, _ in stored if name not in installed):
        print(printable(f"not installed here, so not cited: {', '.join(absent)}"), file=sys.stderr)


def _of_ttabench() -> str:
    """The entry of this program, as CITATION.cff has it."""
    from importlib.metadata import version

    rows = {
        "title": "ttabench, a benchmark harness for test-time adaptation",
        "author": "{The ttabench developers}",
        "version": version("ttabench"),
    }
    body = "".join(f"  {name:<7} = {{{value}}},\n" for name, value in rows.items())
    return f"@software{{ttabench,\n{body}}}\n"


def _stored(results: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Methods and configurations of the cells that have a number."""
    from ttabench.store import load_frame

    cells = load_frame(results)
    cells = cells[cells["status"] == "ok"].drop_duplicates(["base", "config"])
    for name, config in zip(cells["base"], cells["config"], strict=True):
        yield name, json.loads(config)
