"""``ttabench cite``: BibTeX for exactly what was used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def register(app: typer.Typer) -> None:
    app.command()(cite)


def cite(
    results: Annotated[
        Path | None, Argument(metavar="[DIR]", help="Cite what a results folder used.")
    ] = None,
    methods: Annotated[str, Option(help="Method names, separated by commas.")] = "",
) -> None:
    """Print the BibTeX entries of methods, or of everything a results folder holds."""
    from ttabench.errors import UserError
    from ttabench.grid import parse_method, split_list
    from ttabench.registry import method

    names = [parse_method(text)[0] for text in split_list(methods)]
    if results is not None:
        from ttabench.store import load_frame

        names += list(load_frame(results)["base"])
    if not names:
        raise UserError("nothing to cite: name methods with --methods, or a results folder.")
    papers = [method(name).paper for name in dict.fromkeys(names)]
    for paper in dict.fromkeys(p for p in papers if p is not None):
        print(paper.bibtex())
