"""``ttabench leaderboard``: a static site from results folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option


def leaderboard(
    results: Annotated[
        list[Path],
        Argument(
            metavar="DIR…",
            help="Results folders. If several have the same cell, the folder named first counts.",
        ),
    ],
    out: Annotated[Path, Option(metavar="DIR", help="The folder to write the site to.")] = Path("site"),
) -> None:
    """Rank the methods of several results folders, and write a site of plain HTML files.

    Methods are ranked within one protocol only. Each accuracy is recomputed from the stored correctness of
    the images; a record that does not agree with its images is refused, with its file and line.
    """
    from ttabench.cli._folders import check_folder
    from ttabench.errors import printable
    from ttabench.registry import view

    check_folder(out)
    written = view("leaderboard")(results, out)
    for path in written:
        print(printable(str(path)))
