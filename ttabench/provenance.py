"""The code that a result depends on: its modules, and a hash of each. Imports no torch.

The hash covers the syntax tree without docstrings: comments, layout and documentation do not change it. The
modules of a result are found by following imports from the modules listed below.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

from ttabench.registry import METHODS, entry_points

__all__ = ["changes", "combined", "current_modules", "imported_modules"]

# Modules that every result depends on. The imports of `ttabench.worker` are not followed: it also stores
# results, resolves names and loads weights, which are in the identity of the cell.
SCORING = (
    "ttabench.classifier",
    "ttabench.scoring",
    "ttabench.method",
    "ttabench.nn",
    "ttabench.source",
    "ttabench.stream",
)
ALONE = ("ttabench.worker",)
# Modules that change no accuracy: messages, file names, progress, paths, papers, ranges of settings, costs,
# label-free scores, opening data by name (the data have a fingerprint; the modules that read them are in
# `READERS`), and opening networks by name (their weights are in the identity of the cell).
NEUTRAL = (
    "ttabench.calibration",
    "ttabench.cell",
    "ttabench.collapse",
    "ttabench.cores",
    "ttabench.cost",
    "ttabench.data.catalog",
    "ttabench.data.fetch",
    "ttabench.data.files.fingerprint",
    "ttabench.data.verify",
    "ttabench.env",
    "ttabench.errors",
    "ttabench.events",
    "ttabench.figure",
    "ttabench.files",
    "ttabench.models.resolve",
    "ttabench.progress",
    "ttabench.provenance",
    "ttabench.ranges",
    "ttabench.registry",
    "ttabench.unit",
    "ttabench.unlabelled",
)
READERS = {  # by the first words of a name; the first that fits counts
    "digits-c": ("ttabench.data.digits", "ttabench.corruptions.engine"),  # corrupted here, on first use
    "cifar10-c-bar": ("ttabench.data.published.cifar_bar", "ttabench.corruptions.engine"),
    "cifar10.1": ("ttabench.data.published.natural_shifts",),
    "cifar": ("ttabench.data.published.cifar",),
    "own": ("ttabench.data.own.own_dataset",),
    "imagenet-c": ("ttabench.data.published.imagenet",),
    "imagenet-": ("ttabench.data.published.natural_shifts",),
    "folders": ("ttabench.data.published.imagenet",),
}
NETWORKS = "ttabench.models.architectures.build"
STREAMS = {  # further modules of cells that are more than one corruption, by what stands in its place
    "mixed": ("ttabench.data.mixed",),
    "recurring": ("ttabench.streams.cell",),
    "gradual": ("ttabench.streams.cell",),
    "ccc": ("ttabench.streams.cell",),
}


def current_modules(method: str, dataset: str, corruption: str = "") -> Mapping[str, str]:
    """Module → hash of its code, for a method on a dataset; {} if the method is not installed.

    corruption   of the cell; it matters where it is one of :data:`STREAMS`.
    """
    return _current_modules(method, dataset, STREAMS.get(corruption, ()))


@cache
def _current_modules(method: str, dataset: str, further: tuple[str, ...]) -> Mapping[str, str]:
    points = entry_points(METHODS)
    if method not in points:
        return {}
    method_module = points[method].module
    roots = [method_module, *SCORING, *_readers(dataset), NETWORKS, *further]
    followed = _follow(roots, (method_module.partition(".")[0], "ttabench"))
    return {name: module_hash(name) for name in sorted({*followed, *ALONE})}


@cache
def shared_code(dataset: str) -> str:
    """SHA-256 (hex) of all code that a number on a dataset depends on, except that of its method."""
    followed = _follow([*SCORING, *_readers(dataset), NETWORKS], ("ttabench",))
    return combined({name: module_hash(name) for name in followed})


def combined(modules: Mapping[str, str]) -> str:
    """SHA-256 (hex) over names and hashes; "" without modules."""
    if not modules:
        return ""
    text = "".join(f"{name}\0{modules[name]}\n" for name in sorted(modules))
    return hashlib.sha256(text.encode()).hexdigest()


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Differences between stored and current modules, such as ``ttabench/nn/updates.py changed``."""
    texts = []
    for name in sorted({*then, *now}):
        if name not in now:
            texts.append(f"{_path(name)} is gone")
        elif name not in then:
            texts.append(f"{_path(name)} is new")
        elif then[name] != now[name]:
            texts.append(f"{_path(name)} changed")
    return texts


def _readers(dataset: str) -> tuple[str, ...]:
    """The modules that read or generate the images of a dataset."""
    if dataset.endswith("-local"):
        return READERS["own"]
    family = next((name for name in READERS if dataset.startswith(name)), "folders")
    return READERS[family]


@cache
def module_hash(name: str) -> str:
    """16 hex digits of the SHA-256 of a module's code, see `code_hash`; "" where there is no file."""
    file = _file(name)
    return "" if file is None else code_hash(file.read_bytes())


def code_hash(source: bytes) -> str:
    """16 hex digits of the SHA-256 of a syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def imported_modules(module: str) -> dict[str, frozenset[str]]:
    """`module` and what it imports from its distribution, directly or not → what each imports."""
    top = module.partition(".")[0]
    return {name: _imports(file, name) for name in _follow([module], (top,)) if (file := _file(name))}


def _follow(roots: Iterable[str], tops: tuple[str, ...]) -> set[str]:
    """The roots and all modules of the packages `tops` that they import, directly or not; no neutral ones."""
    seen: set[str] = set()
    queue = list(roots)
    while queue:
        name = queue.pop()
        if name in seen or _is_neutral(name) or (file := _file(name)) is None:
            continue
        seen.add(name)
        queue += [module for module in _imports(file, name) if module.partition(".")[0] in tops]
    return seen


def _is_neutral(name: str) -> bool:
    top, dot, _ = name.partition(".")
    if not dot:  # the top package of a distribution contains no code that changes results
        return top == "ttabench"
    if top != "ttabench":
        return name.endswith(".references")
    return any(name == neutral or name.startswith(f"{neutral}.") for neutral in NEUTRAL)


@cache
def _imports(file: Path, module: str) -> frozenset[str]:
    """Absolute names of all modules that `file` imports, also in functions, but not only for types."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    imported: set[str] = set()
    queue: list[ast.AST] = [ast.parse(file.read_bytes())]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            queue += node.orelse
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = resolve_name("." * node.level + base, package)
            imported |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        else:
            queue += ast.iter_child_nodes(node)
    return frozenset(imported)


@cache
def _file(name: str) -> Path | None:
    """The Python file of a module. Only its top package is imported."""
    top, *rest = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    if not rest:
        return Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        path = Path(folder).joinpath(*rest)
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if file.is_file():
                return file
    return None


def _path(name: str) -> str:
    file = _file(name)
    suffix = "/__init__.py" if file is not None and file.name == "__init__.py" else ".py"
    return name.replace(".", "/") + suffix
