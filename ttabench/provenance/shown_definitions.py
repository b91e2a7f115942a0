"""Definitions by the name that messages and stored results show: ``ttabench/nn/updates.py: minimise``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from ttabench.provenance.modules import OWN, module_file

__all__ = ["functions_of", "node_of"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


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
    """The syntax of a function, of a class without its functions, or of a field; None for anything else."""
    place, _, qualified = shown.partition(": ")
    file, (name, _, member) = _file(place), qualified.partition(".")
    top = ast.parse(file.read_bytes()).body if file is not None else []
    named = (each for each in top if isinstance(each, Function | ast.ClassDef) and each.name == name)
    node = next(named, None)
    if not isinstance(node, ast.ClassDef):
        return node
    if member:
        return next((each for each in node.body if member == _name_of(each)), None)
    node.body = [each for each in node.body if not isinstance(each, Function)] or [ast.Pass()]
    return node


def _name_of(statement: ast.stmt) -> str:
    """The name of a method or of a field with a type; "" of other statements of a class."""
    if isinstance(statement, Function):
        return statement.name
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return ""


def _file(place: str) -> Path | None:
    """The file of a shown place such as ``ttabench/nn/updates.py``; None for code that is not of ttabench."""
    if place.partition("/")[0] not in OWN:
        return None
    return module_file(place.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
