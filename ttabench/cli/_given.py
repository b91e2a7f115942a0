"""Which options the user gave, as opposed to those at their defaults."""

from __future__ import annotations

import typer


def is_given(context: typer.Context, option: str) -> bool:
    """Whether the user gave an option; `option` is the name of the parameter."""
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def flags_given(context: typer.Context) -> list[str]:
    """The options that the user gave, as they are written: ``--per-gpu``."""
    return [each.opts[0] for each in context.command.params if is_given(context, str(each.name))]
