"""``ttabench paper``: the tables and figures of the quantile-matching paper, beside its own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option


def paper(
    context: typer.Context,
    only: Annotated[
        str, Option(metavar="NAMES", help="Only these tables and figures, see --list.", show_default="all")
    ] = "",
    scale: Annotated[
        float,
        Option(
            metavar="SHARE",
            help="Below 1: a small trial, with this share of images, corruptions, epochs; small networks.",
        ),
    ] = 1.0,
    datasets: Annotated[
        str,
        Option(
            metavar="NAMES", help="Replace the paper's datasets, by name or path.", show_default="the paper's"
        ),
    ] = "",
    archs: Annotated[
        str, Option(metavar="NAMES", help="Replace the paper's networks.", show_default="the paper's")
    ] = "",
    recipe: Annotated[
        str,
        Option(
            metavar="NAME",
            help="How networks are trained, as in ttabench train.",
            show_default="cross-entropy, as in the paper; fast where there is none",
        ),
    ] = "",
    seeds: Annotated[
        str,
        Option(metavar="NUMBERS", help="Seeds of the tables.", show_default="0,1,2; with a scale below 1: 0"),
    ] = "",
    precision: Annotated[str, Option(metavar="TYPE", help="float32, bfloat16 or tf32 (GPU).")] = "float32",
    out: Annotated[Path, Option(metavar="DIR", help="The folder to write to.")] = Path("paper"),
    workers: Annotated[
        str,
        Option(metavar="COUNT", help="As in ttabench sweep.", show_default="auto; 0 where scale is below 1"),
    ] = "",
    device: Annotated[str, Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1 …")] = "auto",
    per_gpu: Annotated[int, Option(metavar="COUNT", help="Workers per GPU.", min=1)] = 1,
    page: Annotated[
        bool,
        Option("--page", help="Measure nothing, and make the page from what is stored. Only with --out."),
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="List what would be trained, downloaded, measured; run nothing.")
    ] = False,
    list_: Annotated[bool, Option("--list", help="List the tables and figures.")] = False,
) -> None:
    """Measure the tables and figures of the quantile-matching paper, and compare them with its numbers.

    Trains missing networks, measures, draws, and writes paper.html and tables/paper.tex: our numbers, the
    paper's, the difference, and which settings differ. If it stops, the same command goes on where it
    stopped. Exit code 1 if a cell failed or a table could not be measured.
    """
    from ttabench.cli._given import is_given
    from ttabench.errors import UserError
    from ttabench.method.spelling import distinct_list
    from ttabench.paper import experiments
    from ttabench.sweep.options_to_grid import whole_numbers

    if page:
        _only_page(context, out)
        return
    names, of_data, of_nets = (
        distinct_list(text, flag) if is_given(context, flag.strip("-")) else []
        for text, flag in ((only, "--only"), (datasets, "--datasets"), (archs, "--archs"))
    )
    chosen, figures = experiments.asked(names)
    if list_:
        from ttabench.cli._facts import figures as facts
        from ttabench.cli._table import table

        shows = {fact["name"]: fact["shows"] for fact in facts()}
        rows = [(name, experiments.title(name)) for name in chosen]
        table(["name", "what it is"], [*rows, *((name, shows[name]) for name in figures)])
        return
    if not 0 < scale <= 1:
        raise UserError(f"--scale {scale:g}: expected a share above 0, at most 1.")
    from ttabench.cli import _paper, _paper_plan
    from ttabench.figure import takes_bench
    from ttabench.paper.asked import Asked
    from ttabench.registry import figure

    asked = Asked(
        chosen, figures, of_data, of_nets, scale, recipe, precision, out,
        workers or ("0" if scale < 1 else "auto"), device, per_gpu, whole_numbers(seeds, "--seeds"),
        [name for name in figures if takes_bench(figure(name))],
    )  # fmt: skip
    failed = _paper_plan.show(asked) if dry_run else _paper.run(asked)
    if failed:
        raise typer.Exit(1)


def _only_page(context: typer.Context, out: Path) -> None:
    """Make the page. Raises UserError for options that it has no use for."""
    from ttabench.cli import _paper
    from ttabench.cli._given import flags_given
    from ttabench.errors import UserError

    if idle := [flag for flag in flags_given(context) if flag not in ("--page", "--out")]:
        raise UserError(f"--page makes the page of all that {out} has; leave out {', '.join(idle)}.")
    _paper.make_page(out)
