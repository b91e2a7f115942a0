"""Commands that a page or a workflow has, held against the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ttabench.cli import command


def options_exist(commands: Iterable[Sequence[str]]) -> None:
    """Fail where a command (verb and arguments) or one of its options does not exist."""
    verbs = command().commands
    for verb, *arguments in commands:
        options = {name for parameter in verbs[verb].params for name in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= options, (verb, arguments)
