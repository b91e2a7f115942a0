"""Class data of an installed method, read from its file: nothing is imported, so torch stays out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

GROUP = "ttabench.methods"
DEPTH = 12  # of base classes and imports that are followed


@cache
def class_text(method: str, name: str) -> str:
    """The text that the class of `method` (a registered name) or one of its bases gives `name`; or ""."""
    return _text(*_class_of(method), name)


@cache
def settings_from(method: str) -> str:
    """Where the settings of `method` are from: the first paragraph of the docstring of its Config; or ""."""
    for place, node in _with_bases(*_class_of(method), DEPTH):
        config = _assigned(node, "Config")
        if isinstance(config, ast.Name) and config.id != "NoConfig":
            docstrings = (ast.get_docstring(node) for _, node in _with_bases(place, config.id, DEPTH))
            text = next(filter(None, docstrings), "")
            return " ".join(text.partition("\n\n")[0].split())
    return ""


@cache
def defaults(method: str) -> Mapping[str, object]:
    """The defaults of the settings of `method`: those that its Config writes as constants."""
    known: dict[str, object] = {}
    for place, node in _with_bases(*_class_of(method), DEPTH):
        config = _assigned(node, "Config")
        if isinstance(config, ast.Name):
            for _, held in _with_bases(place, config.id, DEPTH):
                for setting, value in _constants(held):
                    known.setdefault(setting, value)
            return {setting: value for setting, value in known.items() if value is not _COMPUTED}
    return known


def default(method: str, setting: str) -> object:
    """The default of a setting of `method`, where its Config has a constant; otherwise None."""
    return defaults(method).get(setting)


@cache
def source_data(method: str) -> str | None:
    """The source data that `needs` of the class of `method` declares, "" for none; None where not known."""
    return _declared(*_class_of(method), DEPTH)


def module_of(method: str) -> str:
    """The module that `method` is registered from; "" where it is not installed."""
    return _class_of(method)[0]


def _class_of(method: str) -> tuple[str, str]:
    """(module, class) that are registered as `method`; ("", "") where there is none."""
    module, _, cls = _classes().get(method, "").partition(":")
    return module, cls


@cache
def _classes() -> Mapping[str, str]:
    """``module:class`` by registered name. To find them, a file of every installed package is read."""
    return {point.name: point.value for point in metadata.entry_points(group=GROUP)}


def _declared(module: str, cls: str, depth: int) -> str | None:
    place = ""
    for place, node in _with_bases(module, cls, depth):
        needs = _assigned(node, "needs")
        if isinstance(needs, ast.Call):
            given = {word.arg: word.value for word in needs.keywords}.get("source_data", ast.Constant(""))
            return str(given.value) if isinstance(given, ast.Constant) else None
        if isinstance(needs, ast.Attribute) and isinstance(needs.value, ast.Name):  # of another class
            return _declared(place, needs.value.id, depth - 1)
        if needs is not None:
            return None
    return "" if place else None


def _text(module: str, cls: str, name: str) -> str:
    values = (_assigned(node, name) for _, node in _with_bases(module, cls, DEPTH))
    return next((str(value.value) for value in values if isinstance(value, ast.Constant)), "")


def _assigned(cls: ast.ClassDef, name: str) -> ast.expr | None:
    """What the body of a class gives `name`."""
    for statement in cls.body:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value: ast.expr | None = getattr(statement, "value", None)
            return value
    return None


_COMPUTED = object()
"""In place of a default that is no constant."""


def _constants(cls: ast.ClassDef) -> Iterator[tuple[str, object]]:
    """(name, value) of what the body of a class gives a value."""
    for statement in cls.body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value
        ):
            try:
                yield statement.target.id, ast.literal_eval(statement.value)
            except ValueError:
                yield statement.target.id, _COMPUTED


def _with_bases(module: str, cls: str, depth: int) -> Iterator[tuple[str, ast.ClassDef]]:
    """(module, class) of a class and then its bases, also of imported ones."""
    tree = _tree(module)
    if tree is None or not depth:
        return
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.level < 2:
            origin = f"{_package(module)}.{node.module}" if node.level else node.module
            for alias in node.names:
                if (alias.asname or alias.name) == cls:
                    yield from _with_bases(origin, alias.name, depth - 1)
        if isinstance(node, ast.ClassDef) and node.name == cls:
            yield module, node
            for base in node.bases:
                named = base.value if isinstance(base, ast.Subscript) else base
                if isinstance(named, ast.Name):
                    yield from _with_bases(module, named.id, depth - 1)
                elif isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name):
                    yield from _with_bases(_imported(tree, named.value.id), named.attr, depth - 1)


def _imported(tree: ast.Module, name: str) -> str:
    """The module that a file imports as `name` from a package (``from ttabench import nn as tta``); or ""."""
    return next(
        (
            f"{node.module}.{alias.name}"
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and not node.level
            for alias in node.names
            if (alias.asname or alias.name) == name
        ),
        "",
    )


def _package(module: str) -> str:
    """The package that relative imports of a module start from."""
    return module if _is_package(module) else module.rpartition(".")[0]


def _is_package(module: str) -> bool:
    file = _file(module)
    return file is not None and file.name == "__init__.py"


@cache
def _tree(module: str) -> ast.Module | None:
    """The syntax tree of a module's file; None where there is none."""
    file = _file(module)
    try:
        return None if file is None else ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None


@cache
def _file(module: str) -> Path | None:
    top, *parts = module.split(".")
    try:
        spec = find_spec(top)  # of a package at the top, this imports nothing
    except (ImportError, ValueError):
        return None
    for folder in list(spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *parts)
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if file.is_file():
                return file
    return Path(spec.origin) if spec and not parts and spec.origin else None
