"""Public names with their signatures and docstrings, as Markdown, for docs/api.md."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import ttabench
from ttabench_reports.words.markdown_text import escape

WIDTH = 100  # of a signature on one line
# ``name   what it is``, perhaps indented, and its further lines, which start under "what".
ROW = re.compile(r"^(?P<margin> *)(?P<names>[\w()%.:/]+(?:, [\w.]+)*) {2,}(?P<text>\S.*)$")
CODE = re.compile(r"``(?P<code>.+?)``|:\w+:`~?(?P<name>.+?)`|`(?P<plain>.+?)`")
ALSO = ("__call__", "__iter__", "__len__")  # methods with such names that a reader calls


def entries(names: Iterable[str]) -> str:
    """A section for each dotted name; for a module, one for each name in its `__all__`."""
    return "\n\n".join(section for name in names for section in _sections(name))


def _sections(name: str) -> Iterator[str]:
    thing = found(name)
    if inspect.ismodule(thing):
        yield prose(inspect.getdoc(thing) or "")
        for each in thing.__all__:
            if getattr(ttabench, each, None) is not getattr(thing, each):  # shown once, at the top
                yield from _sections(f"{name}.{each}")
        return
    yield f"### {escape(name)}"
    if not inspect.isclass(thing) and not inspect.isfunction(thing):  # a constant, or a name of a type
        shown = _quoted(repr(thing).replace("typing.", ""))
        yield f"```python\n{name.rpartition('.')[2]} = {shown}\n```"
        return
    yield from _described(name.rpartition(".")[2], thing)
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if (not member.startswith("_") or member in ALSO) and _is_code(value) and value.__doc__:
                yield f"#### {escape(name.rpartition('.')[2])}.{escape(member)}"
                yield from _described(member, value)


def _is_code(value: object) -> bool:
    return isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)


def _described(name: str, thing: Any) -> Iterator[str]:
    yield f"```python\n{signature(name, thing)}\n```"
    if text := inspect.getdoc(thing):
        yield prose(text)


def found(name: str) -> Any:
    """The module or the object of a dotted name. Raises AttributeError."""
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(found(module), attribute)


# ---- signatures


class Bare:
    """An annotation that prints without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(name: str, thing: Any) -> str:
    """``name(a: int, b: str = "") -> bool``, in several lines where it is long."""
    if isinstance(thing, property):
        return f"{name}: {_bare(inspect.signature(thing.fget).return_annotation)!r}"  # type: ignore[arg-type]
    kind = "@classmethod\n" if isinstance(thing, classmethod) else ""
    if inspect.isgeneratorfunction(getattr(thing, "__wrapped__", None)):
        kind = "@contextmanager\n"
    try:
        given = inspect.signature(getattr(thing, "__func__", thing))
    except ValueError:  # an exception, or a class without a constructor of its own
        return f"{kind}class {name}"
    parameters = [p.replace(annotation=_bare(p.annotation)) for p in given.parameters.values()]
    parameters = [p for p in parameters if p.name not in ("self", "cls")]
    is_class = inspect.isclass(thing)
    returns = inspect.Signature.empty if is_class else _bare(given.return_annotation)
    shown = _text(given.replace(parameters=parameters, return_annotation=returns))
    if is_class and (not parameters or getattr(thing, "_is_protocol", False)):  # nobody makes a protocol
        shown = ""
    head = f"{kind}{'class ' if is_class else ''}{name}"
    if len(head) + len(shown) <= WIDTH:
        return head + shown
    alone = given.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    end = str(inspect.Signature(return_annotation=returns)).removeprefix("()")
    return f"{head}(\n{_lines(alone)}\n){end}"


def _bare(annotation: Any) -> Any:
    return Bare(annotation) if isinstance(annotation, str) else annotation


def _text(part: inspect.Signature | inspect.Parameter) -> str:
    return _quoted(str(part).replace("<factory>", "..."))  # a default that is made anew for each object


def _quoted(code: str) -> str:
    return code if '"' in code else code.replace("'", '"')


def _lines(given: inspect.Signature) -> str:
    """The parameters, a line each."""
    lines, named = [], False
    for parameter in given.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            lines.append("    *,")
        named = named or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        lines.append(f"    {_text(parameter)},")
    return "\n".join(lines)


# ---- docstrings


def prose(docstring: str) -> str:
    """A docstring as Markdown: columns of names and meanings become lists, examples blocks of code."""
    return "\n\n".join(_paragraph(part.splitlines()) for part in re.split(r"\n\s*\n", docstring.strip("\n")))


def _paragraph(lines: list[str]) -> str:
    if lines[0].lstrip().startswith(">>>"):
        shown = (line.partition("#")[0].rstrip() for line in lines)
        return "\n".join(["```pycon", *shown, "```"])
    if not any(ROW.match(line) for line in lines):
        return inline(" ".join(line.strip() for line in lines))
    made: list[str] = []
    under = 0  # where the text of the rows starts
    for line in lines:
        if row := ROW.match(line):
            under = row.start("text")
            made.append(f"- `{row['names']}`: {row['text']}")
        elif (
            under and line[under - 1 : under] == " " and line[: under - 1].isidentifier()
        ):  # the longest name
            made.append(f"- `{line[: under - 1]}`: {line[under:]}")
        elif made and line.startswith(" "):
            made[-1] += f" {line.strip()}"
        else:
            made.append(line)
    return "\n".join(inline(line) for line in made)


def inline(text: str) -> str:
    """Names between backticks or in a role as code; nothing else is read as Markdown."""
    bullet = "- " if text.startswith("- ") else ""
    pieces, at = [bullet], len(bullet)
    for code in CODE.finditer(text, at):
        pieces += [_kept(text[at : code.start()]), f"`{code['code'] or code['name'] or code['plain']}`"]
        at = code.end()
    return "".join([*pieces, _kept(text[at:])])


def _kept(text: str) -> str:
    """Escaped, with its spaces at both ends."""
    inner = text.strip()
    if not inner:
        return text
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before}{escape(inner)}{after}"
