"""The definitions of one module: their text in normal form, and what they refer to. Imports no torch.

A definition is a function, a class, a member of a class, or a value that a statement gives to a name. Its own
name is not part of its text, and a name that the module defines or imports stands in it as a number.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from ttabench.provenance.normal_form import children, digest, last_name, mark, text_of, walk, without_words

BODY = ""
"""The name of the definition that holds the other statements of a module, which run when it is imported."""
ANY = "*"
"""Stands among the attributes that a definition uses for one whose name is put together when it runs."""
READS_NAMES = frozenset({"getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHING = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.comprehension,
)  # fmt: skip


class Definition(Struct, frozen=True, array_like=True):
    """One definition.

    text     16 hex digits of its text, in which references are numbers.
    refers   the references in the order of their numbers: dotted names such as ``tta.entropy``.
    uses     names of attributes that it reads, sets or calls; `ANY` where it puts such a name together.
    imports  names that it imports itself → what they mean, see :class:`Definitions`.
    bases    of a class: its base classes, dotted names.
    members  of a class: its functions by name.
    free     of a member: whether it is a static method or a class method.
    branches  how often it decides what runs, see `_branches`.
    """

    text: str
    refers: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    imports: Mapping[str, str] = {}
    bases: tuple[str, ...] | None = None
    members: Mapping[str, Definition] = {}
    free: bool = False
    branches: int = 0


@dataclass(frozen=True)
class Definitions:
    """The definitions of a module by name, and the names that it imports.

    imports   name → ``package.module`` or ``package.module:attribute``; relative ones begin with dots. What
              ``from module import *`` brings stands as ``*module``.
    """

    by_name: Mapping[str, Definition]
    imports: Mapping[str, str]


def definitions_of(tree: ast.Module) -> Definitions:
    """The definitions of a module by its syntax tree. Changes `tree`."""
    body = without_words(tree).body
    statements = list(_run(body, lazy=is_lazy(body)))
    imports: dict[str, str] = {}
    groups: dict[str, list[ast.stmt]] = {}
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports |= _imported(statement)
            continue
        names = [name for name in _names_of(statement) if name not in imports]
        for name in names:
            groups.setdefault(name, []).append(statement)
        if not names or _has_effects(statement):
            groups.setdefault(BODY, []).append(statement)
        if not isinstance(statement, Function | ast.ClassDef):
            imports |= _imports_in(statement)  # in `try` and `if`
    groups.pop("__all__", None)
    return Definitions({name: _definition(name, group) for name, group in groups.items()}, imports)


def is_lazy(statements: Iterable[ast.stmt]) -> bool:
    """Whether a module imports names when they are first used: those that it imports for type checkers."""
    return any(isinstance(each, ast.FunctionDef) and each.name == "__getattr__" for each in statements)


def _run(statements: Iterable[ast.stmt], *, lazy: bool = False) -> Iterator[ast.stmt]:
    """Top statements, without those that only type checkers read."""
    for statement in statements:
        if isinstance(statement, ast.If) and (runs := is_run(statement.test)) is not None:
            yield from _run(statement.body if runs or lazy else statement.orelse, lazy=lazy)
        elif not isinstance(statement, ast.Pass):
            yield statement


def is_run(test: ast.expr) -> bool | None:
    """Whether the body under ``TYPE_CHECKING`` or ``not TYPE_CHECKING`` is run; None for other conditions."""
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    name = ast.unparse(test.operand if isinstance(test, ast.UnaryOp) else test)
    return negated if name.rpartition(".")[2] == "TYPE_CHECKING" else None


def _names_of(statement: ast.stmt) -> list[str]:
    """The names that a top statement gives a meaning to, also inside of `if`, `try`, `with` and loops."""
    if isinstance(statement, Function | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Expr):
        return []
    names: dict[str, None] = {}
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop(0)
        if isinstance(node, Function | ast.ClassDef):
            names[node.name] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            root: ast.AST = node
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name):
                names[root.id] = None
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            queue += children(node)
    return list(names)


def _has_effects(statement: ast.stmt) -> bool:
    """Whether `if`, `try`, `with` or a loop calls something for what it does."""
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Expr):
            return True
        if not isinstance(node, Function | ast.ClassDef):
            queue += children(node)
    return False


def _definition(name: str, group: list[ast.stmt]) -> Definition:
    """The definition of a name by all statements that give it a meaning; usually one."""
    group = [  # the same statement may define other names too, and what follows changes it
        each if isinstance(each, Function | ast.ClassDef) else copy.deepcopy(each) for each in group
    ]
    places = [_names_of(each) for each in group]
    made = _of_statements(group)
    if all(len(names) <= 1 for names in places) or name == BODY:
        return made
    # Several names have this text: which of them is this one?
    at = [names.index(name) for names in places]
    return replace(made, text=digest(f"{made.text} {at}"))


def _of_statements(group: list[ast.stmt]) -> Definition:
    if len(group) > 1:
        return _plain(ast.Module(body=group, type_ignores=[]))
    (statement,) = group
    if isinstance(statement, ast.ClassDef):
        return _class(statement)
    if isinstance(statement, Function):
        return _function(statement)
    return _plain(statement)


def _class(node: ast.ClassDef) -> Definition:
    """A class: its header with its values, and each function apart."""
    members: dict[str, list[ast.stmt]] = {}
    header: list[ast.stmt] = []
    for statement in _run(node.body):
        if isinstance(statement, Function):
            members.setdefault(statement.name, []).append(statement)  # a property has several
        else:
            header.append(statement)
    bases = tuple(ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases)
    node.name, node.body = "", header or [ast.Pass()]
    whole = _plain(node)
    made = {
        name: _function(*each) if len(each) == 1 else _plain(ast.Module(body=each, type_ignores=[]))
        for name, each in members.items()
    }
    made = {name: _using(each, members) for name, each in made.items()}
    whole = _using(whole, members)
    return replace(whole, bases=bases, members=made)


def _using(made: Definition, members: Iterable[str]) -> Definition:
    """With the members of its class that it names without a dot, as `visit_A = visit_B` does."""
    named = {dotted.partition(".")[0] for dotted in made.refers} & {*members}
    return replace(made, uses=tuple(sorted({*made.uses, *named}))) if named else made


def _function(node: ast.stmt) -> Definition:
    assert isinstance(node, Function)
    kinds = {ast.unparse(each) for each in node.decorator_list}
    node.name = ""
    return replace(_plain(node), free=bool(kinds & {"staticmethod", "classmethod"}))


def _plain(node: ast.AST) -> Definition:
    """What a node refers to and uses, and its text."""
    imports = _imports_in(node)
    mark(node)
    refers: dict[str, int] = {}
    uses: set[str] = set()
    reads_names = False
    words: set[str] = set()

    def reference(each: ast.AST) -> str | None:
        nonlocal reads_names
        if isinstance(each, ast.Attribute):
            uses.add(each.attr)
        if isinstance(each, ast.Call) and _makes_a_name(each):
            uses.add(ANY)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.isidentifier():
            words.add(each.value)
        if isinstance(each, ast.Import | ast.ImportFrom):
            return "Import()"  # what is imported counts where it is used
        if (dotted := _dotted(each, imports)) is None:
            return None
        parts = dotted.split(".")
        reads_names |= parts[-1] in READS_NAMES
        uses.update(parts[1:])
        return f"Reference({refers.setdefault(dotted, len(refers))})"

    text = text_of(node, reference)
    if reads_names:
        uses |= words
    return Definition(digest(text), tuple(refers), tuple(sorted(uses)), imports, branches=_branches(node))


def _branches(node: ast.AST) -> int:
    """How often a text decides what runs. What only raises an error gives no number, and is left out."""
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise) and not node.orelse:
        return 0
    here = int(isinstance(node, BRANCHING))
    here += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
    here += len(node.ifs) if isinstance(node, ast.comprehension) else 0
    return here + sum(map(_branches, children(node)))


def _makes_a_name(call: ast.Call) -> bool:
    """Whether an attribute is read or set by a name that the call puts together."""
    called = last_name(call.func)
    at = 0 if called in ("attrgetter", "methodcaller") else 1
    name = call.args[at] if called in READS_NAMES and len(call.args) > at else ast.Constant("")
    return isinstance(name, ast.JoinedStr | ast.BinOp)


def _dotted(node: ast.AST, imports: Mapping[str, str]) -> str | None:
    """A global name, or one with attributes, as dotted text; None for other nodes."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and (getattr(node, "is_global", False) or node.id in imports):
        return ".".join([node.id, *reversed(names)])
    return None


def _imports_in(node: ast.AST) -> dict[str, str]:
    """What all import statements inside of a node give names to."""
    found: dict[str, str] = {}
    for each in walk(node, expressions=False):
        if isinstance(each, ast.Import | ast.ImportFrom):
            found |= _imported(each)
    return found


def _imported(statement: ast.Import | ast.ImportFrom) -> dict[str, str]:
    if isinstance(statement, ast.Import):
        renamed = {alias.asname: alias.name for alias in statement.names if alias.asname}
        tops = [alias.name.partition(".")[0] for alias in statement.names if not alias.asname]
        return {**renamed, **{top: top for top in tops}}
    module = "." * statement.level + (statement.module or "")
    return {
        f"*{module}" if alias.name == "*" else alias.asname or alias.name: f"{module}:{alias.name}"
        for alias in statement.names
    }
