"""Directives whose content is made from the code, so that it cannot drift from it.

``commands``   every command of the command line with its options and defaults.
``methods``    every installed method with its paper, needs and settings.

It also reads the docstrings of this project: columns of names and meanings become lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx


class FromCode(Directive):
    """Content that is parsed as Markdown."""

    def markdown(self) -> str:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        container = nodes.Element()
        lines = StringList(self.markdown().splitlines(), source=f"<{self.name}>")
        self.state.nested_parse(lines, self.content_offset, container, match_titles=True)
        return container.children


class Commands(FromCode):
    """A section per command."""

    def markdown(self) -> str:
        from ttabench.cli import command

        root = command()
        return "\n\n".join(section((root.name, verb), command) for verb, command in root.commands.items())


def section(words: tuple[str, ...], command: Any) -> str:
    """A command, or a group and the commands in it, as Markdown."""
    title = f"{'#' * len(words)} {' '.join(words)}"
    text = "\n\n".join(filter(None, (title, command.help or "")))
    if inner := getattr(command, "commands", {}):
        return "\n\n".join([text, *(section((*words, verb), each) for verb, each in inner.items())])
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([*words, "[OPTIONS]", *(str(p.metavar or p.name).upper() for p in arguments)])
    rows = [(f"`{str(p.metavar or p.name).upper()}`", p.help, "") for p in arguments]
    rows += [
        (names_of(p), p.help, default_of(p)) for p in command.params if p not in arguments and not p.hidden
    ]
    return f"{text}\n\n```sh\n{usage}\n```\n\n{table(('option', 'what', 'default'), rows)}"


def names_of(option: Any) -> str:
    """``--limit COUNT``, or ``--json`` for a switch."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return f"`{names}`" if option.is_flag else f"`{names} {str(option.metavar or option.type.name).upper()}`"


def default_of(option: Any) -> str:
    """The default as `--help` shows it; "" where an option has none."""
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag or option.default in (None, "", [], ()):
        return ""
    return f"`{option.default}`"


class Methods(FromCode):
    """A section per method."""

    def markdown(self) -> str:
        from ttabench.cli._facts import methods

        return "\n\n".join(map(described, methods()))


def described(fact: dict[str, Any]) -> str:
    from ttabench.cli._facts import about

    keys = ("name", "default", "range", "meaning")
    settings = [tuple(f"`{s[k]}`" if k == "name" else str(s[k]) for k in keys) for s in fact["settings"]]
    parts = [f"## {fact['name']}", fact["what"], table(("", ""), about(fact))]
    if settings:
        parts.append(table(("setting", "default", "range", "meaning"), settings))
    return "\n\n".join(parts)


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; cells may hold any text."""
    from ttabench_reports.markdown_text import table_row

    lines = [tuple(heads), *rows]
    shown = [table_row(map(cell, line)) for line in lines]
    return "\n".join([shown[0], "|" + " --- |" * len(lines[0]), *shown[1:]])


def cell(value: object) -> str:
    """Text of a table cell; code, between backticks, stays as it is."""
    from ttabench_reports.markdown_text import escape

    text = "; ".join(str(value or "").splitlines())
    return text.replace("|", "\\|") if text.startswith("`") else escape(text)


# ``name   what it is``, perhaps indented, and its further lines, which start under "what".
COLUMNS = re.compile(r"^(?P<margin> *)(?P<names>[\w()%.:/]+(?:, [\w.]+)*)(?P<gap> {2,})(?P<text>\S.*)$")


def as_lists(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Turn columns of names and meanings in a docstring into a list, in place."""
    made: list[str] = []
    under = -1  # where the text of the current row starts; -1 outside of columns
    for line in lines:
        row = COLUMNS.match(line)
        if row:
            if under < 0:
                made.append("")
            under = row.start("text")
            made.append(f"* **{row['names']}**: {row['text']}")
        elif under >= 0 and line.startswith(" ") and line.strip():
            made.append(f"  {line.strip()}")
        else:
            if under >= 0 and line.strip():
                made.append("")
            under = -1
            made.append(line)
    lines[:] = made


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", as_lists)
    app.add_directive("commands", Commands)
    app.add_directive("methods", Methods)
    return {"parallel_read_safe": True}
