"""``ttabench cite``: BibTeX for exactly what was used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

if TYPE_CHECKING:
    from ttabench.method import Method


def register(app: typer.Typer) -> None:
    app.command()(cite)


def cite(
    results: Annotated[
        Path | None, Argument(metavar="[DIR]", help="Cite what a results folder used.")
    ] = None,
    methods: Annotated[
        str, Option(help="Methods, separated by commas, with the settings used: sar,tent[statistics=median].")
    ] = "",
) -> None:
    """Print the BibTeX entries of methods, or of every method that a results folder has a number of."""
    from ttabench.errors import UserError

    used = [*_named(methods), *(_stored(results) if results else ())]
    if not used:
        raise UserError("nothing to cite: name methods with --methods, or a results folder.")
    papers = [(cls.name, cls.papers_of(config)) for cls, config in used]
    for paper in dict.fromkeys(paper for _, found in papers for paper in found):
        print(paper.bibtex())
    if without := dict.fromkeys(name for name, found in papers if not found):
        print(f"without a paper: {', '.join(without)}", file=sys.stderr)


def _named(methods: str) -> Iterator[tuple[type[Method[Any]], Any]]:
    """Methods and configurations of a user's text. Raises UserError."""
    from ttabench.method_settings import make_config
    from ttabench.method_texts import parse_method, split_list
    from ttabench.registry import method

    for text in split_list(methods):
        name, settings = parse_method(text)
        cls = method(name)
        yield cls, make_config(cls, settings, {})


def _stored(results: Path) -> Iterator[tuple[type[Method[Any]], Any]]:
    """Methods and configurations of the cells that have a number."""
    from dataclasses import fields

    from ttabench.registry import method
    from ttabench.store import load_frame

    cells = load_frame(results)
    cells = cells[cells["status"] == "ok"].drop_duplicates(["base", "config"])
    for name, config in zip(cells["base"], cells["config"], strict=True):
        cls = method(name)
        known = {field.name for field in fields(cls.Config)}  # an older version may have had others
        yield cls, cls.Config(**{k: v for k, v in json.loads(config).items() if k in known})
