"""``ttabench sweep``: run every cell of a grid, or go on where the last run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

if TYPE_CHECKING:
    from ttabench.sweep.grid import Grid

DEFAULTS: dict[str, Any] = {
    "methods": "quantile,tent",
    "archs": "resnet18,cct",
    "datasets": "digits-c",
    "corruptions": "all",
    "severities": "5",
    "seeds": "0",
    "mode": "native",
    "reset": "per_corruption",
    "order": "iid",
    "contamination": "",
    "held_out": "0",
    "batch_size": "0",
    "epochs": "0",
    "limit": "0",
    "precision": "float32",
    "checkpoint": "",
    "normalize": "",
    "out": "results",
    "workers": "auto",
    "device": "auto",
    "overwrite": "stale",
    "set": [],
}


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def sweep(
    methods: Annotated[
        str | None, Option(help="Names, or all; with settings as in tent\\[norms=all]. [quantile,tent]")
    ] = None,
    archs: Annotated[
        str | None,
        Option(help="Architectures, or official/, robustbench/, timm/NAME, module:callable. [resnet18,cct]"),
    ] = None,
    datasets: Annotated[str | None, Option(help="Datasets. [digits-c]")] = None,
    corruptions: Annotated[
        str | None,
        Option(
            help="all (the 15), extra (the 4), every (the 19), mixed (the 15 in one stream), or names. [all]"
        ),
    ] = None,
    severities: Annotated[str | None, Option(help="1 to 5. [5]")] = None,
    seeds: Annotated[str | None, Option(help="Whole numbers. [0]")] = None,
    mode: Annotated[
        str | None, Option(help="native (as each paper runs it), online or offline. [native]")
    ] = None,
    reset: Annotated[
        str | None, Option(help="per_corruption, continual or episodic. [per_corruption]")
    ] = None,
    order: Annotated[str | None, Option(help="iid or dirichlet(δ). [iid]")] = None,
    contamination: Annotated[
        str | None, Option(help="noise(ε) or DATASET(ε): unscored images in the stream. [none]")
    ] = None,
    held_out: Annotated[
        str | None, Option(help="Score only this share of the images, and adapt on the others. [0]")
    ] = None,
    batch_size: Annotated[str | None, Option(help="Images per batch. [each method's own]")] = None,
    epochs: Annotated[str | None, Option(help="Offline: passes over the images. [each method's own]")] = None,
    limit: Annotated[str | None, Option(help="Only the first N test images. [all]")] = None,
    precision: Annotated[str | None, Option(help="float32 or bfloat16. [float32]")] = None,
    checkpoint: Annotated[str | None, Option(help="A weights file for the architecture. [train one]")] = None,
    normalize: Annotated[
        str | None, Option(help="What it normalises with: none, half, imagenet, cifar10 … [its own]")
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", help="method.key=value[,value…]; several values cross. Repeatable.")
    ] = None,
    out: Annotated[str | None, Option(help="Results folder. [results]")] = None,
    workers: Annotated[
        str | None, Option(help="Processes; auto = one per core or GPU, 0 = this one. [auto]")
    ] = None,
    device: Annotated[str | None, Option(help="auto, cpu, cuda, cuda:1 … [auto]")] = None,
    config: Annotated[Path | None, Option(help="A TOML file with these options.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="List the cells and run nothing.")] = False,
    overwrite: Annotated[
        str | None,
        Option(help="Compute again: never, failed, stale (failed, or made with other code), always. [stale]"),
    ] = None,
    extend: Annotated[bool, Option("--extend", help="Add to a results folder of another sweep.")] = False,
    fail_fast: Annotated[bool, Option("--fail-fast", help="Stop at the first failed cell.")] = False,
) -> None:
    """Cross methods × architectures × datasets × corruptions, and print the table.

    Results appear in the folder as they come; the same command run again goes on where it stopped.
    Source is always run, for comparison. Exit code 1 if a cell failed, 2 for a mistake in the command.
    """
    given = {k: v for k, v in locals().items() if k in DEFAULTS and v is not None}
    if set_:
        given["set"] = set_
    if config is not None:
        from ttabench.cli._options import read_config

        given = {**read_config(config, tuple(DEFAULTS)), **given}
    options = {**DEFAULTS, **given}
    from ttabench.cli import _sweep

    grid = make_grid(options)
    if dry_run:
        _sweep.show_plan(grid, Path(options["out"]), options["device"], options["overwrite"])
        return
    failed = _sweep.run_sweep(grid, options, extend=extend, fail_fast=fail_fast)
    if failed:
        raise typer.Exit(1)


def make_grid(options: dict[str, Any]) -> Grid:
    """A :class:`Grid` from option texts. Raises UserError."""
    from ttabench.cli._options import corruption_names, share, whole_numbers
    from ttabench.errors import UserError
    from ttabench.method_settings import split_list
    from ttabench.registry import methods
    from ttabench.sweep.grid import Grid

    numbers = {}
    for name in ("batch_size", "epochs", "limit"):
        values = whole_numbers(str(options[name]), f"--{name.replace('_', '-')}")
        if len(values) != 1 or values[0] < 0:
            raise UserError(
                f"--{name.replace('_', '-')} {options[name]}: expected one whole number, 0 or larger."
            )
        numbers[name] = values[0]
    text = str(options["methods"])
    return Grid(
        methods=tuple(methods()) if text == "all" else split_list(text),
        archs=split_list(str(options["archs"])),
        datasets=split_list(str(options["datasets"])),
        corruptions=corruption_names(str(options["corruptions"])),
        severities=whole_numbers(str(options["severities"]), "--severities"),
        seeds=whole_numbers(str(options["seeds"]), "--seeds"),
        settings=tuple(options["set"]),
        mode=options["mode"],
        reset=options["reset"],
        order=options["order"],
        contamination=options["contamination"],
        held_out=share(str(options["held_out"]), "--held-out"),
        precision=options["precision"],
        checkpoint=options["checkpoint"],
        normalize=options["normalize"],
        **numbers,
    )
