"""The normal form of code: the same for programs that differ only in words, in each version of Python.

Words are comments, layout, docstrings, annotations, names of local variables, raised errors, and what a
method declares only for readers: none of them changes a number. Imports no torch.
"""

from __future__ import annotations

import ast
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

# Attributes of a method that say in words what it does, see `ttabench.method.Method`.
DESCRIPTIONS = frozenset({"deviations", "restores", "scores", "scores_frozen"})
# The same, added when results were stored already: without it, a class is what it was.
ADDED = frozenset({"per_class"})
PAPERS = frozenset({"paper", "papers"})
# A field of `ttabench.method.Needs`: lists and the check of a method read it, and no number depends on it.
DECLARATION, NEEDS = "source_statistics", "Needs"
DECLARING = (NEEDS, "replace")  # calls that make a declaration
# Functions that see the names of local variables.
READ_NAMES = frozenset({"dir", "eval", "exec", "locals", "vars"})
# Fields of a syntax tree that say nothing of the program, or only what the node's place says.
WITHOUT_MEANING = frozenset({"ctx", "kind", "type_comment"})

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def code_hash(source: bytes) -> str:
    """16 hex digits of the SHA-256 of a whole module's code.

    Raises SyntaxError where `source` is not Python.
    """
    tree = without_words(ast.parse(source))
    _Renaming().visit(tree)
    return digest(text_of(tree))


def digest(text: str) -> str:
    """16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_words(tree: ast.Module) -> ast.Module:
    """The syntax tree of a module without words. Changes `tree`."""
    made: ast.Module = _WithoutWords().visit(tree)
    return made


def mark(node: ast.AST) -> None:
    """Give local variables of a definition numbers for names, and mark the names that are global in it.

    A global name has the attribute `is_global`. Changes `node`.
    """
    _Marking().visit(node)


def text_of(node: object, reference: Callable[[ast.AST], str | None] = lambda node: None) -> str:
    """A syntax tree as text. `reference` gives the text of a node that is a reference, None for others."""
    pieces: list[str] = []
    _write(node, pieces, reference)
    return "".join(pieces)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one. Without `Load()` and its kind, which make `ast.iter_child_nodes` slow."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and name != "ctx":
            found.append(value)
    return found


def walk(node: ast.AST, *, expressions: bool = True) -> Iterator[ast.AST]:
    """The nodes of a tree, in the order of `ast.walk`; those inside of expressions if they are asked for."""
    queue = deque([node])
    while queue:
        node = queue.popleft()
        if expressions or not isinstance(node, ast.expr):
            queue += children(node)
        yield node


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c`` and of ``c``; "" where an expression is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _write(node: object, pieces: list[str], reference: Callable[[ast.AST], str | None]) -> None:
    """Appends a syntax tree as text. `ast.dump` writes empty fields in some versions of Python only."""
    if isinstance(node, ast.AST):
        if (text := reference(node)) is not None:
            pieces.append(text)
            return
        pieces.append(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            if name not in WITHOUT_MEANING and value is not None and value != []:
                pieces.append(f"{name}=")
                _write(value, pieces, reference)
        pieces.append(")")
    elif isinstance(node, list):
        pieces.append("[")
        for each in node:
            _write(each, pieces, reference)
        pieces.append("]")
    else:
        pieces.append(f"{node!r},")


class _WithoutWords(ast.NodeTransformer):
    """Removes docstrings, annotations, what is raised but for its class, and what only describes a method."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """An error ends a cell without a number: only its class matters, which other code may catch."""
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = ast.unparse(raised).rpartition(".")[2] if raised is not None else ""
        return ast.Raise(exc=ast.Constant(name), cause=None)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def _visit_function(self, node: Any) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        text = ast.unparse(node.annotation)
        kinds = [kind for kind in ("ClassVar", "InitVar", "Final") if kind in text]
        node.annotation = ast.Constant(" ".join(kinds))  # a dataclass makes fields of the others
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        # Python 3.12.1 puts an empty text behind a width such as `{name:<{width}}`.
        node.values = [x for x in node.values if not (isinstance(x, ast.Constant) and x.value == "")]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if last_name(node.func) in DECLARING:
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != DECLARATION]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.name == NEEDS:
            node.body = [each for each in node.body if not _declares(each)]
        node.body = [each for each in node.body if not _is_added(each)]
        for statement in node.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and _describes(statement):
                statement.value = ast.Constant("")
            if isinstance(statement, ast.Assign) and _targets(statement) <= PAPERS:
                statement.value = ast.Constant("")
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node


def _describes(statement: ast.Assign | ast.AnnAssign) -> bool:
    """Whether a statement of a class sets texts that describe a method, and nothing else."""
    return _targets(statement) <= DESCRIPTIONS and _is_sentence(statement.value)


def _is_added(statement: ast.stmt) -> bool:
    """Whether a statement of a class sets one of :data:`ADDED` to a text, and nothing else."""
    if not (isinstance(statement, ast.Assign | ast.AnnAssign) and _targets(statement) <= ADDED):
        return False
    return isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def _targets(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    """The names that a statement sets; "" for what is no name."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {each.id if isinstance(each, ast.Name) else "" for each in targets}


def _declares(statement: ast.stmt) -> bool:
    """Whether a statement of a class is the field `DECLARATION` with its default."""
    return (
        isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id == DECLARATION
    )


def _is_sentence(node: ast.AST | None) -> bool:
    """Whether a node is a text of several words; a single word may be a value that code compares."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()


@dataclass
class _Scope:
    """The names that a function, a class or a comprehension binds.

    variables   the local variables, which get numbers, in the order in which they appear in the module.
    fixed       names that stay: parameters, which callers may use, functions, classes, and imports.
    outer       of those, the ones that are not bound here: this scope or one inside of it says that they are
                of another scope, or a class inside of it has a member of that name.
    """

    variables: set[str]
    fixed: set[str]
    is_class: bool = False
    outer: frozenset[str] = frozenset()
    numbers: dict[str, str] = field(default_factory=dict)


class _Renaming(ast.NodeVisitor):
    """Gives local variables numbers for names, in place."""

    def __init__(self) -> None:
        self.scopes: list[_Scope] = []
        self.count = 0

    def generic_visit(self, node: ast.AST) -> None:
        for each in children(node):
            self.visit(each)

    def visit_Name(self, node: ast.Name) -> None:
        node.id = self._renamed(node.id)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            node.name = self._renamed(node.name)
        self.generic_visit(node)

    def _renamed(self, name: str) -> str:
        """The name, or its number where the innermost scope that binds it has it as a variable."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if scope.is_class and depth:  # functions do not see the names of the class that they stand in
                continue
            if name in scope.variables:
                if name not in scope.numbers:
                    self.count += 1
                    scope.numbers[name] = f"{self.count}"
                return scope.numbers[name]
            if name in scope.fixed:
                break
        return name

    def _visit(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _inside(self, scope: _Scope, nodes: Iterable[ast.AST | None]) -> None:
        self.scopes.append(scope)
        self._visit(nodes)
        self.scopes.pop()

    def _visit_function(self, node: Any) -> None:
        """Decorators, defaults and annotations stand outside of the function's scope."""
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        arguments = node.args
        parameters = [
            *arguments.posonlyargs, *arguments.args, *filter(None, [arguments.vararg]),
            *arguments.kwonlyargs, *filter(None, [arguments.kwarg]),
        ]  # fmt: skip
        self._visit([
            *getattr(node, "decorator_list", []), *arguments.defaults, *arguments.kw_defaults,
            *(each.annotation for each in parameters), getattr(node, "returns", None),
        ])  # fmt: skip
        variables, fixed = _bound(body)
        used, all_used = _used_by_name(node)
        here = (variables | fixed | {each.arg for each in parameters}) - _declared(body)
        fixed |= used | {each.arg for each in parameters}
        names = variables | fixed
        scope = _Scope(set() if all_used else variables - fixed, names, outer=frozenset(names - here))
        self._inside(scope, body)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit([*node.decorator_list, *node.bases, *node.keywords])
        self._inside(_Scope(set(), set().union(*_bound(node.body)), is_class=True), node.body)

    def _visit_comprehension(self, node: Any) -> None:
        """What the first loop goes over stands outside of the comprehension's scope."""
        first, *others = node.generators
        self._visit([first.iter])
        variables, _ = _bound(each.target for each in node.generators)
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._inside(_Scope(variables, set()), [*values, first.target, *first.ifs, *others])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension


class _Marking(_Renaming):
    """The same, and marks the names that no scope inside of the visited definition binds."""

    def visit_Name(self, node: ast.Name) -> None:
        member = bool(self.scopes) and self.scopes[-1].is_class and not isinstance(node.ctx, ast.Load)
        node.is_global = not member and self._is_global(node.id)  # type: ignore[attr-defined]
        super().visit_Name(node)

    def _is_global(self, name: str) -> bool:
        """A class may read a global name before it binds the same one, so its own names count too."""
        scopes = (scope for scope in self.scopes if not scope.is_class)
        return not any(
            (name in scope.variables or name in scope.fixed) and name not in scope.outer for scope in scopes
        )


def _bound(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Names that statements bind in their scope: variables; functions, classes, imports and the like."""
    variables: set[str] = set()
    fixed: set[str] = set()
    queue = list(nodes)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name):
            variables |= set() if isinstance(node.ctx, ast.Load) else {node.id}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            fixed.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            fixed |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Global | ast.Nonlocal):
            fixed |= {*node.names}
        elif isinstance(node, COMPREHENSIONS):  # `:=` binds in the scope around a comprehension
            variables |= {each.target.id for each in walk(node) if isinstance(each, ast.NamedExpr)}
        elif not isinstance(node, ast.Lambda):
            if isinstance(node, ast.ExceptHandler) and node.name is not None:
                variables.add(node.name)
            elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name is not None:
                fixed.add(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest is not None:
                fixed.add(node.rest)
            queue += children(node)
    return variables - fixed, fixed


def _declared(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements declare as those of another scope."""
    names: set[str] = set()
    queue = list(nodes)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            names |= {*node.names}
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            queue += children(node)
    return names


def _used_by_name(function: ast.AST) -> tuple[set[str], bool]:
    """Names that inner functions declare as not theirs or inner classes bind; whether all may be read."""
    names: set[str] = set()
    read = False
    for node in walk(function):
        if isinstance(node, ast.Name):
            read |= node.id in READ_NAMES
        elif isinstance(node, ast.Global | ast.Nonlocal):
            names |= {*node.names}
        elif isinstance(node, ast.ClassDef):
            names |= set().union(*_bound(node.body))
    return names, read
