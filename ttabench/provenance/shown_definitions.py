"""Definitions by the name that messages and stored results show: ``ttabench/nn/updates.py: minimise``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from ttabench.provenance.definitions import Function
from ttabench.provenance.modules import OWN, module_file


def functions_of(shown: Iterable[str]) -> dict[str, tuple[Path, str]]:
    """The functions among definitions of ttabench: as they are shown → file and qualified name."""
    found = {}
    for name in shown:
        place, _, qualified = name.partition(": ")
        file = _file(place)
        if file is not None and isinstance(node_of(name), Function):
            found[name] = file, qualified
    return found


def node_of(shown: str) -> ast.stmt | None:
    """The syntax of a definition of ttabench, of a class without its functions; None for whole modules."""
    place, _, qualified = shown.partition(": ")
    file, (name, _, member) = _file(place), qualified.partition(".")
    top = ast.parse(file.read_bytes()).body if file is not None else []
    node = next((each for each in top if name in _names_of(each)), None)
    if not isinstance(node, ast.ClassDef):
        return node
    if member:
        return next((each for each in node.body if member in _names_of(each)), None)
    node.body = [each for each in node.body if not isinstance(each, Function)] or [ast.Pass()]
    return node


def _names_of(statement: ast.stmt) -> list[str]:
    if isinstance(statement, Function | ast.ClassDef):
        return [statement.name]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _file(place: str) -> Path | None:
    """The file of a shown place such as ``ttabench/nn/updates.py``; None for code that is not of ttabench."""
    if place.partition("/")[0] not in OWN:
        return None
    return module_file(place.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
