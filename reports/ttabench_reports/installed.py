"""Class data of an installed method, read from its file: nothing is imported, so torch stays out."""

from __future__ import annotations

import ast
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

GROUP = "ttabench.methods"


@cache
def class_text(method: str, name: str) -> str:
    """The text that the class of `method` (a registered name) or one of its bases gives `name`; or ""."""
    for point in metadata.entry_points(group=GROUP, name=method):
        module, _, cls = point.value.partition(":")
        return _text(module, cls, name, depth=4)
    return ""


def _text(module: str, cls: str, name: str, depth: int) -> str:
    tree = _tree(module)
    if tree is None or not depth:
        return ""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.level < 2:
            origin = f"{module}.{node.module}" if node.level else node.module  # relative: within a package
            for alias in node.names:
                if (alias.asname or alias.name) == cls:
                    return _text(origin, alias.name, name, depth - 1)
        if isinstance(node, ast.ClassDef) and node.name == cls:
            for statement in node.body:
                targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
                value = getattr(statement, "value", None)
                if named and isinstance(value, ast.Constant):
                    return str(value.value)
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            texts = (_text(module, b.id, name, depth - 1) for b in bases if isinstance(b, ast.Name))
            return next(filter(None, texts), "")
    return ""


@cache
def _tree(module: str) -> ast.Module | None:
    """The syntax tree of a module's file; None where there is none."""
    top, *parts = module.split(".")
    try:
        spec = find_spec(top)  # of a package at the top, this imports nothing
        folders = list(spec.submodule_search_locations or []) if spec else []
        for folder in folders:
            path = Path(folder, *parts)
            for file in (path / "__init__.py", path.with_suffix(".py")):
                if file.is_file():
                    return ast.parse(file.read_text(encoding="utf-8"))
        if spec and not parts and spec.origin:
            return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    except (ImportError, OSError, ValueError, SyntaxError):
        return None
    return None
