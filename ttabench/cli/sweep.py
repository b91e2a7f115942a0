"""``ttabench sweep``: run every cell of a grid, or go on where the last run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from ttabench.sweep.options import DEFAULTS, make_grid, read_config

GRID, RUN = "What is measured", "How it runs"


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def sweep(
    context: typer.Context,
    methods: Annotated[
        str,
        Option(
            metavar="NAMES",
            rich_help_panel=GRID,
            help="Also all, or alignment (these methods and Source); with settings as in tent\\[norms=all].",
        ),
    ] = DEFAULTS["methods"],
    archs: Annotated[
        str,
        Option(
            metavar="NAMES",
            rich_help_panel=GRID,
            help="Architectures; also timm/, torchvision/, hf/, robustbench/, official/NAME, mod:callable.",
        ),
    ] = DEFAULTS["archs"],
    datasets: Annotated[
        str, Option(metavar="NAMES", rich_help_panel=GRID, help="Datasets, by name or path.")
    ] = DEFAULTS["datasets"],
    corruptions: Annotated[
        str,
        Option(
            metavar="NAMES",
            rich_help_panel=GRID,
            help="all (the 15; of a dataset that has none of them, what it has), extra (the 4), "
            "every (the 19), bar (the 10 of cifar10-c-bar), natural, mixed (the 15 in one stream), or names.",
        ),
    ] = DEFAULTS["corruptions"],
    severities: Annotated[
        str, Option(metavar="NUMBERS", rich_help_panel=GRID, help="Out of 1 to 5; a natural shift has none.")
    ] = DEFAULTS["severities"],
    seeds: Annotated[str, Option(metavar="NUMBERS", rich_help_panel=GRID, help="Whole numbers.")] = DEFAULTS[
        "seeds"
    ],
    mode: Annotated[
        str,
        Option(
            metavar="MODE", rich_help_panel=GRID, help="native (as each paper runs it), online or offline."
        ),
    ] = DEFAULTS["mode"],
    reset: Annotated[
        str, Option(metavar="WHEN", rich_help_panel=GRID, help="per_corruption, continual or episodic.")
    ] = DEFAULTS["reset"],
    order: Annotated[
        str, Option(metavar="ORDER", rich_help_panel=GRID, help="Of the stream: iid or dirichlet(δ).")
    ] = DEFAULTS["order"],
    contamination: Annotated[
        str,
        Option(
            metavar="SOURCE",
            rich_help_panel=GRID,
            help="noise(ε) or DATASET(ε): a share ε of the stream is such images, which are not scored.",
        ),
    ] = DEFAULTS["contamination"],
    held_out: Annotated[
        float,
        Option(
            metavar="SHARE",
            rich_help_panel=GRID,
            help="Score this share of the images only, and adapt on the others.",
        ),
    ] = DEFAULTS["held_out"],
    batch_size: Annotated[
        int,
        Option(metavar="COUNT", rich_help_panel=GRID, help="Images per batch; 0 = each method's own.", min=0),
    ] = DEFAULTS["batch_size"],
    epochs: Annotated[
        int,
        Option(
            metavar="COUNT",
            rich_help_panel=GRID,
            help="Offline: passes over the images; 0 = each method's own.",
            min=0,
        ),
    ] = DEFAULTS["epochs"],
    limit: Annotated[
        int, Option(metavar="COUNT", rich_help_panel=GRID, help="Only the first test images; 0 = all.", min=0)
    ] = DEFAULTS["limit"],
    precision: Annotated[
        str, Option(metavar="TYPE", rich_help_panel=GRID, help="float32 or bfloat16.")
    ] = DEFAULTS["precision"],
    checkpoint: Annotated[
        str,
        Option(
            metavar="FILE", rich_help_panel=GRID, help="Weights for the architecture, in place of training."
        ),
    ] = DEFAULTS["checkpoint"],
    normalize: Annotated[
        str,
        Option(
            metavar="NAME",
            rich_help_panel=GRID,
            help="What these weights normalise with, if not the dataset's: none, half, imagenet, cifar10 …",
        ),
    ] = DEFAULTS["normalize"],
    set_: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="METHOD.KEY=VALUE",
            rich_help_panel=GRID,
            help="Settings; several values, separated by commas, and several settings cross. Repeatable.",
        ),
    ] = None,
    out: Annotated[str, Option(metavar="DIR", rich_help_panel=RUN, help="The results folder.")] = DEFAULTS[
        "out"
    ],
    workers: Annotated[
        str,
        Option(metavar="COUNT", rich_help_panel=RUN, help="auto = one per core or GPU; 0 = this process."),
    ] = DEFAULTS["workers"],
    device: Annotated[
        str, Option(metavar="DEVICE", rich_help_panel=RUN, help="auto, cpu, cuda, cuda:1 …")
    ] = DEFAULTS["device"],
    per_gpu: Annotated[
        int, Option(metavar="COUNT", rich_help_panel=RUN, help="Workers on each GPU, for small nets.", min=1)
    ] = DEFAULTS["per_gpu"],
    cell_timeout: Annotated[
        float,
        Option(
            metavar="SECONDS",
            rich_help_panel=RUN,
            help="A cell that runs longer is stopped and recorded as failed; 0 = unlimited.",
            min=0,
        ),
    ] = DEFAULTS["cell_timeout"],
    cell_memory: Annotated[
        float,
        Option(
            metavar="GB",
            rich_help_panel=RUN,
            help="A cell whose process needs more host memory is recorded as failed; 0 = unlimited.",
            min=0,
        ),
    ] = DEFAULTS["cell_memory"],
    config: Annotated[
        Path | None,
        Option(metavar="FILE", rich_help_panel=RUN, help="A TOML file with these options; flags come first."),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", rich_help_panel=RUN, help="List the cells and run nothing.")
    ] = False,
    overwrite: Annotated[
        str,
        Option(
            metavar="WHAT",
            rich_help_panel=RUN,
            help="Compute again: never, failed, stale (failed, or made with other code), always.",
        ),
    ] = DEFAULTS["overwrite"],
    shard: Annotated[
        str,
        Option(
            metavar="I/N",
            rich_help_panel=RUN,
            help="Run the i-th of n slices, from 1; auto asks Slurm's array or torchrun which one.",
        ),
    ] = DEFAULTS["shard"],
    extend: Annotated[
        bool, Option("--extend", rich_help_panel=RUN, help="Add to a results folder of another sweep.")
    ] = False,
    fail_fast: Annotated[
        bool, Option("--fail-fast", rich_help_panel=RUN, help="Stop at the first failed cell.")
    ] = False,
) -> None:
    """Cross methods × architectures × datasets × corruptions, and print the table.

    Results appear in the folder as they come; the same command run again goes on where it stopped.
    Source is always run, for comparison. Exit code 1 if a cell failed, 2 for a mistake in the command.
    """
    options = {**DEFAULTS, **(read_config(config, tuple(DEFAULTS)) if config else {}), **_given(context)}
    grid = make_grid(options)
    from ttabench.cli import _sweep

    if dry_run:
        _sweep.show_plan(grid, Path(options["out"]), options["device"], options["overwrite"])
        return
    failed = _sweep.run_sweep(grid, options, extend=extend, fail_fast=fail_fast)
    if failed:
        raise typer.Exit(1)


def _given(context: typer.Context) -> dict[str, object]:
    """The options that the user gave, as opposed to those at their defaults."""
    given = {
        name: value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }
    if "set_" in given:
        given["set"] = given.pop("set_")
    return {name: value for name, value in given.items() if name in DEFAULTS}
