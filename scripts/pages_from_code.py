"""What docs/commands.md, docs/methods.md and docs/api.md take from the code: commands, methods, public names.

It stands between two lines:

    <!-- from the code: commands -->
    <!-- end of what is from the code -->

The first names what is shown: `commands`, `methods`, or `api` and the names of functions, classes or modules.

Methods of other packages that are installed here are left out.

    python scripts/pages_from_code.py            # write
    python scripts/pages_from_code.py --check    # exit code 1 where a file would change
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import api_from_code
from bench_suite import bring_up_to_date

from ttabench import registry
from ttabench.cli import command
from ttabench.cli._facts import about, methods
from ttabench_reports.words.markdown_text import table_row

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("commands", "methods", "api")
OURS = "ttabench_methods."
BLOCK = re.compile(
    r"(?P<start><!-- from the code: (?P<what>\w+)(?P<names>[^>]*) -->\n).*?"
    r"(?P<end><!-- end of what is from the code -->)",
    re.DOTALL,
)


def fill(text: str) -> str:
    """`text` with what is between its markers made new."""
    return BLOCK.sub(lambda block: f"{block['start']}\n{_made(**block.groupdict())}\n\n{block['end']}", text)


def _made(what: str, names: str, **_: str) -> str:
    return api_from_code.entries(re.split(r",\s*", names.strip())) if what == "api" else LISTS[what]()


# ---- commands


def all_commands() -> str:
    """What each command does in a line, and then a section per command."""
    root = command()
    rows = [(_link(f"{root.name} {verb}"), _line(each.help)) for verb, each in root.commands.items()]
    sections = (_section((root.name, verb), each) for verb, each in root.commands.items())
    return "\n\n".join([_table(("command", "what it does"), rows), *sections])


def _section(words: tuple[str, ...], command: Any) -> str:
    """A command, or a group and the commands in it, as Markdown."""
    title = f"{'#' * len(words)} {' '.join(words)}"
    text = "\n\n".join(filter(None, (title, _plain(command.help))))
    if inner := getattr(command, "commands", {}):
        return "\n\n".join([text, *(_section((*words, verb), each) for verb, each in inner.items())])
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    rows = [(f"`{str(p.metavar or p.name).upper()}`", _plain(p.help), "") for p in arguments]
    rows += [
        (_names_of(p), _plain(p.help), _default_of(p))
        for p in command.params
        if p not in arguments and not p.hidden
    ]
    usage = " ".join([*words, *(["[OPTIONS]"] if len(rows) > len(arguments) else []), *map(_used, arguments)])
    shown = f"{text}\n\n```sh\n{usage}\n```"
    return f"{shown}\n\n{_table(('option', 'what', 'default'), rows)}" if rows else shown


def _used(argument: Any) -> str:
    """``DIR``, or ``[DIR]`` if it may be left out."""
    name = str(argument.metavar or argument.name).upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _names_of(option: Any) -> str:
    """``--limit COUNT``, or ``--json`` for a switch."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return f"`{names}`" if option.is_flag else f"`{names} {str(option.metavar or option.type.name).upper()}`"


def _default_of(option: Any) -> str:
    """The default as `--help` shows it; "" where an option has none."""
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag or option.default in (None, "", [], ()):
        return ""
    return f"`{option.default}`"


def _plain(text: str | None) -> str:
    """A help text without the marks that keep the terminal from reading brackets as colours."""
    return (text or "").replace("\\[", "[")


# ---- methods


def all_methods() -> str:
    """What each method is in a line, and then a section per method."""
    ours = [fact for fact in methods() if registry.method(fact["name"]).__module__.startswith(OURS)]
    heads = ("method", "what it does", "family", "mode", "source data")
    rows = [
        (_link(fact["name"]), *(fact[key] for key in ("what", "family", "mode")), _given(fact))
        for fact in ours
    ]
    return "\n\n".join([_table(heads, rows), *map(_described, ours)])


def _given(fact: dict[str, Any]) -> str:
    """The kinds of source data that a method sees, without what each holds."""
    return str(fact["source_data"]).partition(":")[0]


def _described(fact: dict[str, Any]) -> str:
    keys = ("name", "default", "range", "meaning")
    settings = [tuple(f"`{s[k]}`" if k == "name" else str(s[k]) for k in keys) for s in fact["settings"]]
    parts = [f"## {fact['name']}", api_from_code.inline(fact["what"]), _table(("", ""), about(fact))]
    if settings:
        parts.append(_table(("setting", "default", "range", "meaning"), settings))
    return "\n\n".join(parts)


# ---- Markdown

LINK = re.compile(r"\[`[^`]+`\]\(#[\w-]+\)")


def _link(heading: str) -> str:
    """A link to the section of this heading on the same page."""
    return f"[`{heading}`](#{heading.replace(' ', '-')})"


def _line(text: str | None) -> str:
    """The first paragraph of a help text."""
    return _plain(text).partition("\n\n")[0]


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; cells may hold any text."""
    lines = [tuple(heads), *rows]
    shown = [table_row(map(_cell, line)) for line in lines]
    return "\n".join([shown[0], "|" + " --- |" * len(lines[0]), *shown[1:]])


def _cell(value: object) -> str:
    """Text of a table cell; links and code, between backticks, stay as they are."""
    text = "; ".join(str(value or "").splitlines())
    kept = text.startswith("`") or LINK.fullmatch(text)
    return text.replace("|", "\\|") if kept else api_from_code.inline(text)


LISTS = {"commands": all_commands, "methods": all_methods}


def main() -> int:
    files = (DOCS / f"{name}.md" for name in PAGES)
    return bring_up_to_date(
        __doc__, ((file, fill(file.read_text(encoding="utf-8")).encode()) for file in files)
    )


if __name__ == "__main__":
    sys.exit(main())
