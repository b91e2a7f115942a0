"""``ttabench sweep``: run every cell of a grid, or go on where the last run stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from ttabench.cli._given import is_given
from ttabench.errors import UserError
from ttabench.sweep.option_kinds import Count, Number
from ttabench.sweep.option_table import OPTIONS
from ttabench.sweep.option_table import Option as TableOption
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.presets import preset_file
from ttabench.sweep.schema import text as schema_text
from ttabench.sweep.sweep_file import overridden, read_sweep_file, with_flags
from ttabench.system.garbage_collection import paused

GRID, RUN = "What is measured", "How it runs"


def _with_table(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of the table in its signature, where typer finds them."""
    context, config, protocol, dry_run, *others, _ = signature(command, eval_str=True).parameters.values()
    table = [_parameter(option) for option in OPTIONS.values()]
    at = list(OPTIONS).index("scores")
    ordered = (context, *table[:at], config, protocol, dry_run, *table[at:], *others)
    command.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
    return command


def _parameter(option: TableOption) -> Parameter:
    """An option of the table, as typer declares it."""
    kind, least = option.kind, None
    if isinstance(kind, Count) and not kind.word:
        least = kind.least
    elif isinstance(kind, Number) and not kind.below:
        least = 0
    declared = Option(
        option.flag,
        metavar=option.metavar,
        rich_help_panel=RUN if option.scope == "run" else GRID,
        help=option.help.replace("[", "\\["),  # rich reads brackets as markup
        min=least,
    )
    value: Any = list[str] if option.name == "set" else type(option.default)
    return Parameter(
        option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[value, declared]
    )


@_with_table
def sweep(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            rich_help_panel=RUN,
            help="A TOML file with these options and rules. Options given here replace its own.",
        ),
    ] = None,
    protocol: Annotated[
        str,
        Option(
            metavar="NAME",
            rich_help_panel=GRID,
            help="A usual protocol, such as wild:mixed or ttab; see `ttabench list protocols`. Options given "
            "here replace its own.",
        ),
    ] = "",
    dry_run: Annotated[
        bool, Option("--dry-run", rich_help_panel=RUN, help="List the cells, and run nothing.")
    ] = False,
    extend: Annotated[
        bool, Option("--extend", rich_help_panel=RUN, help="Add this sweep to a folder that has another.")
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
    **_of_table: Any,
) -> None:
    """Run all combinations of methods, architectures, datasets and corruptions, and print a table.

    Each result is stored at once. If the sweep stops, the same command goes on where it stopped. Source is
    always run, for comparison. Exit code 1 if a cell failed, or was measured with other code because the code
    changed meanwhile; 2 for a mistake in the command.
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
        from ttabench.sweep.conduct import run_cells
        from ttabench.sweep.hand_over import read_begun

    if dry_run:
        _sweep.show_plan(grid, options, extend=extend)
        return
    if begun:  # another process has handed this sweep over: compute its cells until none is free
        run_cells(grid, options, extend=True, begun=read_begun(begun))
        return
    if _sweep.run_sweep(grid, options, extend=extend, fail_fast=fail_fast):
        raise typer.Exit(1)


def _in_file(config: Path | None, protocol: str) -> dict[str, Any]:
    """The options of a sweep file or of a protocol by name; {} without. Raises UserError for both."""
    if config and protocol:
        raise UserError(
            f"--protocol and --config are both sweep files; keep one, or copy {preset_file(protocol)} and "
            "change the copy."
        )
    file = preset_file(protocol) if protocol else config
    return read_sweep_file(file) if file else {}


def _given(context: typer.Context) -> dict[str, object]:
    """The options that the user gave, as opposed to those at their defaults."""
    return {name: context.params[name] for name in OPTIONS if is_given(context, name)}
