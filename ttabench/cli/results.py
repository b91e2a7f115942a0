"""``ttabench results``: published results folders in the cache, to stand beside your own."""

from __future__ import annotations

import time
from shlex import quote
from typing import Annotated

import typer
from typer import Argument, Option

from ttabench.errors import printable

results = typer.Typer(no_args_is_help=True, help="Fetch and list published results.")


@results.command()
def fetch(
    source: Annotated[
        str,
        Argument(metavar="SOURCE", help="Address or path of an archive or a git repository, or a folder."),
    ],
    name: Annotated[
        str,
        Option(metavar="NAME", help="The name of these results on this machine.", show_default="from SOURCE"),
    ] = "",
    sha256: Annotated[str, Option(metavar="HEX", help="The SHA-256 that an archive must have.")] = "",
    replace: Annotated[bool, Option("--replace", help="Replace the results of this name.")] = False,
) -> None:
    """Copy the results folders of a source into the cache, and check every record.

    Only files of results folders are taken. A record without its checksum, or with an accuracy that is not
    that of its images, refuses the source. Their numbers are still claims, and so is the code that made them,
    on which fresh and attested depend: `ttabench verify` measures them.
    """
    from ttabench.cli._fetch_results import fetch_results
    from ttabench.sweep.progress.display import Meter

    with Meter("bytes") as meter:
        found = fetch_results(source, name, sha256, replace=replace, on_progress=meter)
    stores = " ".join(printable(quote(str(path))) for path in found.stores)
    print(f"{found.name}: {found.version or 'a folder'}")
    print(f"In a table beside yours: ttabench report MINE {stores} --out both")


@results.command("list")
def list_() -> None:
    """List the fetched results: where they are from, and whether their files are as they were fetched."""
    from ttabench.cli._fetch_results import fetched
    from ttabench.cli._table import table

    rows: list[tuple[object, ...]] = []
    for each in fetched():
        day = time.strftime("%Y-%m-%d", time.gmtime(each.when))
        changed = each.changed()
        state = f"changed: {changed}" if changed else "as fetched"
        folders = each.stores or [each.folder]
        rows += [(each.name, day, each.version[:12], state, each.source, folder) for folder in folders]
    if not rows:
        print("No results were fetched yet; see ttabench results fetch --help.")
        return
    table(["name", "fetched", "version", "state", "source", "folder"], rows)
