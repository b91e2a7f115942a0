"""Commands that a page or a workflow has, held against the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import dedent

from ttabench.cli import command


def options_exist(commands: Iterable[Sequence[str]]) -> None:
    """Fail where a command (verb and arguments) or one of its options does not exist."""
    verbs = command().commands
    for verb, *arguments in commands:
        options = {name for parameter in verbs[verb].params for name in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= options, (verb, arguments)


def step(workflow: Path, name: str) -> str:
    """The shell of a step of a workflow."""
    return dedent(workflow.read_text().split(f"- name: {name}\n")[1].split("run: |\n")[1].split("\n\n")[0])
