"""``ttabench sweep``: run every cell of a grid, or go on where the last run stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from ttabench.sweep.option_kinds import Count, Number
from ttabench.sweep.option_table import DEFAULTS, OPTIONS
from ttabench.sweep.options import make_grid
from ttabench.sweep.schema import text as schema_text
from ttabench.sweep.sweep_file import overridden, read_sweep_file, with_flags
from ttabench.system.garbage_collection import paused

GRID, RUN = "What is measured", "How it runs"


def _option(name: str) -> Any:
    """An option of the table, as typer declares it."""
    option = OPTIONS[name]
    kind, least = option.kind, None
    if isinstance(kind, Count) and not kind.word:
        least = kind.least
    elif isinstance(kind, Number) and not kind.below:
        least = 0
    return Option(
        option.flag,
        metavar=option.metavar,
        rich_help_panel=RUN if option.scope == "run" else GRID,
        help=option.help.replace("[", "\\["),  # rich reads brackets as markup
        min=least,
    )


def sweep(
    context: typer.Context,
    methods: Annotated[str, _option("methods")] = DEFAULTS["methods"],
    archs: Annotated[str, _option("archs")] = DEFAULTS["archs"],
    datasets: Annotated[str, _option("datasets")] = DEFAULTS["datasets"],
    corruptions: Annotated[str, _option("corruptions")] = DEFAULTS["corruptions"],
    severities: Annotated[str, _option("severities")] = DEFAULTS["severities"],
    seeds: Annotated[str, _option("seeds")] = DEFAULTS["seeds"],
    mode: Annotated[str, _option("mode")] = DEFAULTS["mode"],
    reset: Annotated[str, _option("reset")] = DEFAULTS["reset"],
    order: Annotated[str, _option("order")] = DEFAULTS["order"],
    contamination: Annotated[str, _option("contamination")] = DEFAULTS["contamination"],
    held_out: Annotated[float, _option("held_out")] = DEFAULTS["held_out"],
    batch_size: Annotated[int, _option("batch_size")] = DEFAULTS["batch_size"],
    batch_rate: Annotated[str, _option("batch_rate")] = DEFAULTS["batch_rate"],
    epochs: Annotated[int, _option("epochs")] = DEFAULTS["epochs"],
    limit: Annotated[int, _option("limit")] = DEFAULTS["limit"],
    classes: Annotated[str, _option("classes")] = DEFAULTS["classes"],
    subset: Annotated[str, _option("subset")] = DEFAULTS["subset"],
    precision: Annotated[str, _option("precision")] = DEFAULTS["precision"],
    stream: Annotated[str, _option("stream")] = DEFAULTS["stream"],
    pace: Annotated[float, _option("pace")] = DEFAULTS["pace"],
    pace_ratio: Annotated[str, _option("pace_ratio")] = DEFAULTS["pace_ratio"],
    checkpoint: Annotated[str, _option("checkpoint")] = DEFAULTS["checkpoint"],
    normalize: Annotated[str, _option("normalize")] = DEFAULTS["normalize"],
    set_: Annotated[list[str] | None, _option("set")] = None,
    out: Annotated[str, _option("out")] = DEFAULTS["out"],
    executor: Annotated[str, _option("executor")] = DEFAULTS["executor"],
    executor_options: Annotated[str, _option("executor_options")] = DEFAULTS["executor_options"],
    workers: Annotated[str, _option("workers")] = DEFAULTS["workers"],
    device: Annotated[str, _option("device")] = DEFAULTS["device"],
    per_gpu: Annotated[int, _option("per_gpu")] = DEFAULTS["per_gpu"],
    cell_timeout: Annotated[float, _option("cell_timeout")] = DEFAULTS["cell_timeout"],
    cell_memory: Annotated[float, _option("cell_memory")] = DEFAULTS["cell_memory"],
    device_memory: Annotated[float, _option("device_memory")] = DEFAULTS["device_memory"],
    config: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            rich_help_panel=RUN,
            help="A TOML file with these options, and rules; flags win over it.",
        ),
    ] = None,
    protocol: Annotated[
        str,
        Option(
            metavar="NAME",
            rich_help_panel=GRID,
            help="A usual protocol, such as wild:mixed or ttab: see `ttabench list protocols`. Flags win.",
        ),
    ] = "",
    dry_run: Annotated[
        bool, Option("--dry-run", rich_help_panel=RUN, help="List the cells and run nothing.")
    ] = False,
    scores: Annotated[str, _option("scores")] = DEFAULTS["scores"],
    overwrite: Annotated[str, _option("overwrite")] = DEFAULTS["overwrite"],
    log: Annotated[str, _option("log")] = DEFAULTS["log"],
    shard: Annotated[str, _option("shard")] = DEFAULTS["shard"],
    extend: Annotated[
        bool, Option("--extend", rich_help_panel=RUN, help="Add to a results folder of another sweep.")
    ] = False,
    fail_fast: Annotated[
        bool, Option("--fail-fast", rich_help_panel=RUN, help="Stop at the first failed cell.")
    ] = False,
    begun: Annotated[
        Path | None,
        Option(hidden=True, help="Given by an executor: take part in the sweep that wrote this file."),
    ] = None,
    schema: Annotated[
        bool,
        Option("--schema", rich_help_panel=RUN, help="Print the JSON schema of sweep files, for editors."),
    ] = False,
) -> None:
    """Cross methods × architectures × datasets × corruptions, and print the table.

    Results appear in the folder as they come; the same command run again goes on where it stopped.
    Source is always run, for comparison. Exit code 1 if a cell failed, 2 for a mistake in the command.
    """
    if schema:
        print(schema_text(), end="")
        return
    in_file, flags = _in_file(config, protocol), _given(context)
    for sentence in overridden(in_file, flags):
        print(f"ttabench: {sentence}", file=sys.stderr)
    options = with_flags(in_file, flags)
    grid = make_grid(options)
    with paused():  # all that an import makes stays; torch has much of it
        from ttabench.cli import _sweep
        from ttabench.sweep import conduct

    if dry_run:
        _sweep.show_plan(grid, options, extend=extend)
        return
    if begun:
        conduct.take_part(grid, options, begun)
        return
    failed = _sweep.run_sweep(grid, options, extend=extend, fail_fast=fail_fast)
    if failed:
        raise typer.Exit(1)


def _in_file(config: Path | None, protocol: str) -> dict[str, Any]:
    """The options of a sweep file or of a protocol by name; {} without. Raises UserError for both."""
    if config and protocol:
        from ttabench.errors import UserError
        from ttabench.sweep.presets import preset_file

        raise UserError(
            f"--protocol and --config are both sweep files; keep one, or copy {preset_file(protocol)} and "
            "change the copy."
        )
    if protocol:
        from ttabench.sweep.presets import preset

        return preset(protocol)
    return read_sweep_file(config) if config else {}


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
