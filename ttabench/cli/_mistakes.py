"""A mistake in the command line itself, such as an unknown option, as one sentence."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ttabench.errors import UserError, shortened

HELP = ["-h", "--help"]
MEANS_OUT = ("--to", "--results", "--output", "--out-dir", "--output-dir", "--dir", "--folder")
"""Other names for the output folder, of other programs and of older versions."""
IN_STREAM = {
    "--rounds": "cdc(1,rounds=5)", "--accuracy": "ccc(40)", "--length": "ccc(40,length=1000000)",
    "--speed": "ccc(40,speed=2000)", "--baseline": "ccc(40,baseline=resnet18)",
}  # fmt: skip
"""Values inside --stream that are taken for options of their own, each with an example."""
FOLDERS = {"--out": "results", "--root": "data"}
"""Options that name a folder, each with an example."""
FILES = ("--checkpoint",)
"""Options that name a file, and would be ignored without one."""
LISTS = ("NAMES", "NUMBERS", "SCORES", "METHOD=RATIO", "KEY=VALUE,…")
"""What the help calls values that may be several, separated by commas."""
NUMBERS = {int: "a whole number", float: "a number"}


def sentence(problem: Any) -> str:
    """What the parser of the command line complains about, and what it expected."""
    option = getattr(problem, "option_name", "")
    near = list(getattr(problem, "possibilities", None) or ())
    has = {name for param in problem.ctx.command.params for name in param.opts} if option else set()
    if option in MEANS_OUT and "--out" in has:
        near = ["--out"]
    if option in IN_STREAM and "--stream" in has:
        return f"no such option: {option}. It is a part of --stream, as in --stream '{IN_STREAM[option]}'."
    if option and near:
        return f"no such option: {option}. Did you mean {near[0]}?"  # the nearest comes first
    param: Any = getattr(problem, "param", None)
    expected = "" if param is None else _expected(param)
    if expected and type(problem).__name__ == "BadParameter":
        given = _given(param)
        return f"{param.opts[0]}{f' {given}' if given else ''}: expected {expected}."
    text = str(problem.format_message())
    text = text[:1].lower() + text[1:]
    text = text if text.endswith((".", "?")) else f"{text}."
    if extra := text.startswith("got unexpected extra argument"):
        text = text.replace("argument(s)", "argument" if text.count(" ") == 4 else "arguments")
    missing = type(problem).__name__ == "MissingParameter"
    if missing and (about := getattr(param, "help", "")):
        about = about.replace("\\[", "[").removesuffix(".")  # rich reads brackets as markup
        text = f"{text.removesuffix('.')}: {about[:1].lower()}{about[1:]}."
    usage = _usage(problem) if extra or missing else ""
    if usage and extra and any(param.metavar in LISTS for param in problem.ctx.command.params):
        usage += ". Values of one option have commas between them, and no spaces."
    return f"{text} {usage}".rstrip()


def refuse_empty_path(arguments: Sequence[str]) -> None:
    """Raises UserError for ``--out ""`` or ``--root ""``, which would otherwise be the current folder.

    And for ``--checkpoint ""``, which would be as if it were not there.
    """
    for argument, value in zip(arguments, [*arguments[1:], None], strict=True):
        option, equals, given = argument.partition("=")
        if (given if equals else value) != "":
            continue
        if option in FOLDERS:
            raise UserError(
                f"{option} '' names no folder; name one, e.g. {option} {FOLDERS[option]}, or . for this one."
            )
        if option in FILES:
            raise UserError(f"{option} '' names no file; name one, or leave {option} out.")


def refuse_misread(root: Any, arguments: Sequence[str]) -> None:
    """Raises UserError for options that the parser would read in another way than they are meant.

    Of an option that is given twice, it would take the last value alone. In ``--out --dry-run``, it would
    take the second for a folder's name.
    """
    command, rest = root, list(arguments[1:])
    while rest and rest[0] in (inner := getattr(command, "commands", {})):
        command = inner[rest.pop(0)]
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {*HELP}
    options = [param for param in command.params if param.param_type_name == "option" and not param.is_flag]
    by_name = {name: param for param in options for name in param.opts}
    given: set[str] = set()
    while rest and (argument := rest.pop(0)) != "--":
        name, equals, _ = argument.partition("=")
        if name not in by_name:
            continue
        value = rest.pop(0) if rest and not equals else ""
        if value.partition("=")[0] in names or re.match(r"--[a-z]", value):
            raise UserError(
                f"{name} has no value: {shortened(value)} looks like an option. Give {name} a value, or "
                f"write {name}={shortened(value)} if this is the value."
            )
        if name in given and not by_name[name].multiple:
            lists = by_name[name].metavar in LISTS
            raise UserError(
                f"{name} is given twice; give it once{', several values with commas' if lists else ''}."
            )
        given.add(name)


def _usage(problem: Any) -> str:
    """``Expected: ttabench compare BASELINE CANDIDATE``: the command with its arguments."""
    context = problem.ctx
    if context is None:
        return ""
    arguments = [p for p in context.command.params if p.param_type_name == "argument"]
    named = [(p.metavar or p.name.upper(), p.required) for p in arguments]
    names = [name if required else f"[{name}]" for name, required in named]
    return f"Expected: {' '.join((context.command_path, *names))}"


def _expected(param: Any) -> str:
    """``a whole number, 0 or larger``; "" for what is no number."""
    described: Any = getattr(param, "type_descriptor", None)
    kind = getattr(described, "annotation", None)
    if kind not in NUMBERS:
        return ""
    info = described.parameter_info
    if info.min is not None and info.max is not None:
        return f"{NUMBERS[kind]} from {info.min:g} to {info.max:g}"
    return NUMBERS[kind] + ("" if info.min is None else f", {info.min:g} or larger")


def _given(param: Any) -> str:
    """The last value that the command line has for an option."""
    typed = ""
    for i, text in enumerate(sys.argv):
        name, equals, value = text.partition("=")
        if name in param.opts:
            typed = value if equals else "".join(sys.argv[i + 1 : i + 2])
    return typed


def tidy_help(command: Any) -> None:
    """Leave out the types that the help shows beside switches, and beside arguments that have a name.

    Paragraphs become one line each, so that the terminal wraps them at its own width.
    """
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for param in command.params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.param_type_name == "argument":
            param.display_type_rich = _nothing
    helping = command.get_help_option(command.context_class(command, help_option_names=HELP))
    if helping is not None:
        helping.metavar = ""
    inner: Mapping[str, Any] = getattr(command, "commands", {})
    for each in inner.values():
        tidy_help(each)


def _nothing(ctx: Any) -> None:
    """No type: what an argument is called says what it is."""
