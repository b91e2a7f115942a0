"""A README in a results folder: what ran, how, where and when, and what one can do with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from ttabench.errors import UserError, printable
from ttabench.store.contents import Contents, facts
from ttabench.store.results_folder import Store
from ttabench.system.files import read_plain, replace_file

NAME = "README.md"
MARK = "<!-- ttabench writes this file anew after each sweep; a file without this line is left alone -->"
COMMANDS = """\
```sh
ttabench status {0}    # what is done, what failed and why, what is stale
ttabench report {0}    # tables, plots and a page, in {0}/report
ttabench verify {0}    # measure some cells again: the same numbers?
ttabench cite {0}      # BibTeX of what was used
ttabench sweep --config {0}/sweep.toml --out {0}    # go on where it stopped
```"""


def write_readme(store: Store) -> Path | None:
    """Write it; its path, or None where the folder was moved away, has a README of somebody else or cannot be
    written.
    """
    path = store.root / NAME
    try:
        if not store.manifest.is_file():
            return None
        if path.exists() and MARK.encode() not in read_plain(path):
            return None
        text = readme(Contents.of(store.latest_as(facts, quick=True).values()), store.root.resolve().name)
        replace_file(path, text.encode())
    except (OSError, UserError):  # the results are stored; a README is not worth an error
        return None
    return path


def readme(contents: Contents, name: str) -> str:
    """The text. `name`: of the folder."""
    heads = ("method", "network", "dataset", "protocol", "cells", "measured (UTC)")
    parts = [
        "# Results of ttabench", MARK,
        "Every cell is stored in `cells/`, with its protocol, code, environment and which images were right. "
        "`plan.jsonl` has the planned cells, and `sweep*.toml` the options of the sweeps.",
        "\n".join([_row(heads), _row(["---"] * len(heads)), *map(_row, contents.rows())]),
        f"**Code:** {_counted(contents.code)}.", f"**Machine:** {_counted(contents.machines)}.",
        "**Data:** " + " ".join(map(_origin, contents.datasets())),
        COMMANDS.format(printable(quote(name))),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(printable(text).replace('|', '&#124;') for text in texts)} |"


def _counted(found: Counter[str]) -> str:
    """``ttabench 1.0 (30 cells); ttabench 1.1 (2 cells)``; without counts where there is one."""
    if len(found) < 2:
        return printable(next(iter(found), "not recorded"))
    return "; ".join(f"{printable(what)} ({count} cells)" for what, count in found.most_common())


def _origin(dataset: str) -> str:
    """Where the images come from, as a sentence. They are not in the folder."""
    dataset = dataset.partition("[")[0]
    if dataset == "digits-c":
        return "`digits-c` is made by ttabench, the same everywhere."
    if dataset.endswith("-local"):
        return f"`{printable(dataset)}` is made from somebody's own images, which are not in this folder."
    return f"`{printable(dataset)}` is published: `ttabench data fetch {printable(dataset)}`."
