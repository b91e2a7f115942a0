"""Imports that a method must not make: datasets, labels, scoring. Found in its files and while it runs."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from ttabench.errors import UnusableModel
from ttabench.provenance import imported_modules, module_file
from ttabench.public_names import HOMES

FORBIDDEN = (
    "ttabench.data",
    "ttabench.measure",
    "ttabench.api",
    "ttabench.store",
    "ttabench.run.cell_images",
    "ttabench.run.cell_result",
    "ttabench.run.worker",
)


def forbidden_imports(module: str) -> list[str]:
    """Which of :data:`FORBIDDEN` the method's own files import, as ``file imports name``.

    ``ttabench.get_dataset`` counts, since it is from there, and a text that is such a name, as
    ``importlib.import_module`` takes it.
    """
    top = module.partition(".")[0]
    return sorted(
        f"{name} imports {target}"
        for name, targets in imported_modules(module).items()
        if name.partition(".")[0] == top
        for target in targets | public_names(module_file(name)) | spelled_names(module_file(name))
        if is_forbidden(target)
    )


def is_forbidden(name: str) -> bool:
    """Whether a module or public name is one of :data:`FORBIDDEN` or from there."""
    package, _, leaf = name.partition(".")
    if package == "ttabench":
        name = f"ttabench.{HOMES.get(leaf, leaf)}"
    return any(name == each or name.startswith(f"{each}.") for each in FORBIDDEN)


@cache
def public_names(file: Path | None) -> frozenset[str]:
    """``ttabench.NAME`` for each attribute of the package ttabench that a file uses, under any alias."""
    if file is None:
        return frozenset()
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    aliases = {
        alias.asname or "ttabench"
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "ttabench" or (alias.name.startswith("ttabench.") and not alias.asname)
    }
    return frozenset(
        f"ttabench.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
    )


@cache
def spelled_names(file: Path | None) -> frozenset[str]:
    """The texts in a file that are the dotted name of something in ttabench, and nothing else."""
    if file is None:
        return frozenset()
    texts = (node.value for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Constant))
    return frozenset(t for t in texts if isinstance(t, str) and re.fullmatch(r"ttabench(\.\w+)+", t))


# What imports these modules by itself: the harness, and the pickling of its progress in a worker process.
OWN = ("ttabench", "multiprocessing", "pickle", "_pickle")


@contextmanager
def watched_imports() -> Iterator[Sequence[str]]:
    """Record which of :data:`FORBIDDEN` code outside of ttabench imports inside the block, in order.

    This also detects imports inside functions, and imports through importlib.
    """
    noted: list[str] = []

    def note(name: str) -> None:
        if name not in noted:
            noted.append(name)

    with _forbidden_import(note):
        yield noted


@contextmanager
def refused_imports(methods: Collection[str]) -> Iterator[None]:
    """Refuse that these methods import one of :data:`FORBIDDEN` inside the block.

    methods   the modules of the methods.

    What a method calls counts as the method, but for the harness. Such an import raises UnusableModel; also
    where the method catches it, the datasets stay out of its reach.
    """
    inner = frozenset(name for module in methods for name in imported_modules(module))

    def refuse(name: str) -> None:
        if by := _on_the_stack(inner):
            raise UnusableModel(f"{by} imports {name}; a method may not read datasets or scores")

    with _forbidden_import(refuse):
        yield


@contextmanager
def _forbidden_import(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` with the name before code outside of ttabench imports one of :data:`FORBIDDEN`."""
    original, by_function = builtins.__import__, importlib.import_module

    def check(name: str, caller: str) -> None:
        if is_forbidden(name) and caller.partition(".")[0] not in OWN:
            tell(name)

    def watched(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if not level:
            caller = str((globals or {}).get("__name__", ""))
            for full in (name, *(f"{name}.{leaf}" for leaf in fromlist or ())):
                check(full, caller)
        return original(name, globals, locals, fromlist, level)

    def function(name: str, package: str | None = None) -> Any:
        check(name, package or "")
        return by_function(name, package)

    builtins.__import__ = watched
    importlib.import_module = function
    try:
        yield
    finally:
        builtins.__import__ = original
        importlib.import_module = by_function


def _on_the_stack(modules: Collection[str]) -> str:
    """The innermost of these modules whose code is running; "" if none is."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if (name := str(frame.f_globals.get("__name__", ""))) in modules:
            return name
        frame = frame.f_back
    return ""
