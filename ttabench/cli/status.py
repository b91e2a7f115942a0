"""``ttabench status``: how far a results folder is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ttabench.system.garbage_collection import frozen, paused


@paused()
def status(
    results: Annotated[Path, Argument(metavar="DIR", help="A results folder.")],
    watch: Annotated[bool, Option("--watch", help="Show it again and again until nothing is left.")] = False,
) -> None:
    """Show how far a sweep is: what is done, what runs and where, what failed and why, what is stale."""
    from ttabench.cli._progress_of import Progress
    from ttabench.cli._status import print_status, watch_status
    from ttabench.store import Store

    progress = Progress(Store.at(results))
    if watch:
        with frozen():
            watch_status(progress)
    else:
        print_status(progress)
