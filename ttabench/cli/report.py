"""``ttabench report``: tables, LaTeX, plots and a page of results."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ttabench.cli._given import flags_given, is_given
from ttabench.system.garbage_collection import frozen, paused

if TYPE_CHECKING:
    import pandas as pd

FORMATS = "csv,latex,markdown,plots,html,ablation"
MAY_BE_NONE = "ablation"  # the format that not all results have
MANY = 10  # files that a terminal lists by name; more are counted by kind
DOCUMENTS = {
    "all.tex": "the main tables",
    "appendix.tex": "all other tables",
    "ablations.tex": "the ablations",
    "plots.tex": "the plots",
}
"""Documents that compile as they stand → what is in them."""


@paused()
def report(
    context: typer.Context,
    results: Annotated[
        list[Path] | None,
        Argument(metavar="DIR|CSV…", help="Results folders, and cells.csv files of reports."),
    ] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            metavar="NAMES",
            help=f"Some of {FORMATS.replace(',', ', ')}, published.",
            show_default="all that the results allow, except published",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="The folder to write to.",
            show_default="DIR/report; of several, or of a CSV file, ./report",
        ),
    ] = None,
    methods: Annotated[
        str,
        Option(
            metavar="NAMES",
            help="Only these methods and Source, in all settings; alignment: the methods of this family.",
        ),
    ] = "all",
    rename: Annotated[
        list[str] | None,
        Option(
            metavar="IDENTIFIER=NAME",
            help="Show a method, architecture or dataset under this name, e.g. my_method=Ours. Repeatable.",
        ),
    ] = None,
    no_increase: Annotated[
        bool, Option("--no-increase", help="Leave out the Increase rows of tables by corruption.")
    ] = False,
    published: Annotated[
        bool, Option("--published", help="Show published numbers of the same setting beside ours.")
    ] = False,
    select: Annotated[
        str,
        Option(
            metavar="SCORES",
            help="Print the settings that label-free scores choose, and the best: infomax, extra … or all.",
        ),
    ] = "",
    cost: Annotated[
        bool, Option("--cost", help="Print what each method costs: time, passes, memory.")
    ] = False,
    costs: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Take times and memory from this folder: a short sweep of the same cells with --workers 1, "
            "on a machine that does nothing else.",
        ),
    ] = None,
    audit_published: Annotated[
        bool, Option("--audit-published", help="List the misprints of the published numbers; needs no DIR.")
    ] = False,
) -> None:
    """Write cells.csv, tables and plots of results. Several folders and files can be given.

    Intervals and tests need results folders: a CSV file does not store which images were right. Warns if the
    clean accuracy of a source classifier is close to chance, or far from what its authors state.
    """
    from ttabench.cli._folders import check_folder
    from ttabench.cli._table import screen
    from ttabench.errors import UserError
    from ttabench.method.spelling import distinct_list, split_list
    from ttabench.registry import report as find
    from ttabench.registry import view
    from ttabench.system.files import writing

    audit = "--audit-published"
    if audit_published and not results and (others := [f for f in flags_given(context) if f != audit]):
        raise UserError(f"{others[0]} is for a report; name a results folder too, or give {audit} alone.")
    if audit_published:
        from rich.console import Console

        Console(emoji=False, highlight=False, soft_wrap=True).print(view("audit")())
        if not results:
            return
    if not results:
        raise UserError("which results? Name a results folder: ttabench report DIR.")
    formats = split_list(FORMATS) if format_ is None else distinct_list(format_, "--format")
    scores = distinct_list(select, "--select") if is_given(context, "select") else ()
    names = [*formats, *(["published"] if published and "published" not in formats else [])]
    writers = {name: find(name) for name in names}
    apart = [str(path) for path in results if str(path) in {*split_list(FORMATS), "published"}]
    if format_ is not None and apart and not Path(apart[0]).exists():
        raise UserError(f"{apart[0]} is a format; use commas: --format {','.join([*formats, *apart])}.")
    alone = len(results) == 1 and results[0].is_dir()
    folder = out or (results[0] / "report" if alone else Path("report"))
    check_folder(folder)
    cells = _only(methods, view("load")(results))
    if costs is not None:
        cells = view("costs-apart")(cells, view("load")([costs]))
    for text in (*_of_source_classifiers(cells), *_stale(cells)):
        warnings.warn(text, stacklevel=1)
    with view("rename")(rename or [], cells):
        known = view("published").load() if published else None
        options = {"report": view("report")(cells, known), "increase": not no_increase}
        with writing(folder, "choose another with --out"), _made(folder):
            written: list[Path] = []
            printed = []
            # What was asked for and is not there is said before any file is written.
            if scores:
                paths, shown = view("select")(options["report"], scores, folder)
                written += paths
                printed.append(shown)
            if format_ is not None and MAY_BE_NONE in writers:
                written += _files_of(writers.pop(MAY_BE_NONE), cells, folder, options, asked=True)
            if cost:
                printed.append(view("cost")(options["report"]))
            written.insert(0, view("cells")(cells, folder / "cells.csv"))
            for writer in writers.values():
                written += _files_of(writer, cells, folder, options, asked=format_ is not None)
    _list(list(dict.fromkeys(written)), folder)
    for shown in printed:
        screen().print(shown)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """In the block, the folder is there. A new one is removed if the block refuses to write anything."""
    from ttabench.errors import UserError

    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except UserError:
        with suppress(OSError):
            for place in new:
                place.rmdir()
        raise


def _files_of(
    write: Callable[..., list[Path]],
    cells: pd.DataFrame,
    folder: Path,
    options: Mapping[str, Any],
    *,
    asked: bool,
) -> list[Path]:
    """The files of a format, which takes some of `options`. Raises NothingToReport if it was asked for."""
    import inspect

    from ttabench.errors import NothingToReport

    takes = inspect.signature(write).parameters
    try:
        with frozen():
            return write(cells, folder, **{name: of for name, of in options.items() if name in takes})
    except NothingToReport:
        if asked:
            raise
    return []


def _list(files: Sequence[Path], folder: Path) -> None:
    """Print the files, and how to look at them."""
    from shlex import quote

    from ttabench.errors import printable

    if sys.stdout.isatty() and len(files) > MANY:
        kinds = Counter(file.suffix.removeprefix(".") for file in files)  # in their order
        by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        print(f"{len(files)} files in {printable(str(folder))}: {by_kind}")
    else:
        for path in files:
            print(printable(str(path)))
    if folder / "results.html" in files:
        print(f"Open in a browser: {printable(str(folder / 'results.html'))}", file=sys.stderr)
    # A document reads its parts from the folder that LaTeX runs in.
    go = f"cd {quote(printable(str(folder)))}"
    for document, what in DOCUMENTS.items():
        if folder / document in files:
            print(f"PDF of {what}: {go} && pdflatex {document}", file=sys.stderr)


def _of_source_classifiers(cells: pd.DataFrame) -> Iterator[str]:
    """What is wrong with the accuracy of source classifiers on clean images, in sentences."""
    if "warning" in cells:
        warned = cells.loc[cells["warning"] != "", ["arch", "dataset", "warning"]].drop_duplicates()
        for arch, dataset, text in warned.itertuples(index=False):
            yield f"{arch} on {dataset}: {text}"


def _stale(cells: pd.DataFrame) -> Iterator[str]:
    """Which cells were made with other code than is installed, and what changed, in sentences."""
    from ttabench.provenance.staleness import attested_note, stale_cells

    if "stale" not in cells or "stale_because" not in cells:
        return
    stale = cells[cells["stale"].astype(str).str.lower() == "true"]
    counts = Counter(zip(stale["base"], stale["stale_because"], strict=True))
    for (method, because), count in sorted(counts.items()):
        yield f"{stale_cells(count, method, because.split('; '))}."
    if note := attested_note(cells.get("attested", ())):
        yield note


def _only(methods: str, cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of some methods, by name without settings, and of Source. Raises UserError."""
    from ttabench.errors import UserError, unknown
    from ttabench.method.spelling import distinct_list, parse_method
    from ttabench.registry import families, in_groups
    from ttabench.store.columns import ASKED, MISSING

    given = distinct_list(methods, "--methods")
    names = [parse_method(text)[0] if "+" in text else text for text in given]
    if names == ["all"]:
        return cells
    stored = set(cells["base"])
    for text, name in zip(given, names, strict=True):
        members = in_groups([name])
        if (whole := name.partition("[")[0]) != name and whole in stored:
            raise UserError(f"--methods takes methods in all their settings; name {whole}, not {name}.")
        if name not in stored and members == [name]:
            raise unknown("method of these results", text, sorted({*stored, *families()}))
        if name not in stored and not stored & (set(members) - {"source"}):
            raise UserError(
                f"these results have no method of {name}; they have {', '.join(sorted(stored))}. Name some "
                f"of these, or measure others: ttabench sweep --methods {name}."
            )
    chosen = {"source", *in_groups([n for n in names if n not in stored]), *names}
    kept = cells[cells["base"].isin(chosen)]
    kept.attrs[ASKED] = [  # methods that were left out here are not missing
        {**sweep, "methods": [m for m in sweep.get("methods", ()) if parse_method(m)[0] in chosen]}
        for sweep in cells.attrs.get(ASKED, ())
    ]
    kept.attrs[MISSING] = tuple(one for one in cells.attrs.get(MISSING, ()) if one.base in chosen)
    return kept
