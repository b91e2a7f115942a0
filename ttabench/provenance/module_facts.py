"""What provenance needs of a module: its imports, its definitions, a hash. Imports no torch.

To parse all modules of a result takes seconds. These facts depend only on the text of a module, so they are
kept in the cache under the SHA-256 of that text.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ttabench.provenance import definitions, normal_form
from ttabench.provenance.definitions import Definition, definitions_of, is_lazy, is_run
from ttabench.system.checked_lines import Damaged, decode, encode
from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file

MOST = 4096
"""Modules in the cache. With more, only those that this process used are kept."""
LOADERS = ("import_module", "__import__")
"""Functions that import a module by its name."""


class ModuleFacts(NamedTuple):
    """Of the text of one module.

    imports      names of modules and of what is imported from them, sorted; relative ones begin with dots.
    definitions  by name, see :mod:`ttabench.provenance.definitions`.
    meanings     names that it imports → ``module`` or ``module:attribute``; relative ones begin with dots.
    """

    imports: tuple[str, ...]
    definitions: dict[str, Definition]
    meanings: dict[str, str]

    def imported(self, package: str) -> frozenset[str]:
        """Absolute names of the modules that a module in `package` imports."""
        return frozenset(absolute(name, package) for name in self.imports)


def absolute(name: str, package: str) -> str:
    """A module as an import names it, without the dots of relative imports."""
    return resolve_name(name, package) if name[:1] == "." else name


def facts_of(source: bytes) -> ModuleFacts:
    """The facts of a module's text, from the cache if it has them.

    What cannot be parsed has no imports: a compiled module, or a file in the middle of a change.
    """
    text = hashlib.sha256(source).hexdigest()
    if (facts := _KNOWN.facts.get(text)) is None:
        packed = _KNOWN.packed("modules", text, lambda: msgspec.to_builtins(_found(source)))
        facts = _KNOWN.facts[text] = msgspec.convert(packed, ModuleFacts)
    return facts


def hash_of(source: bytes) -> str:
    """The hash of all of a module's code, see :func:`ttabench.provenance.normal_form.code_hash`.

    It is from the cache if that has it. What cannot be parsed has the hash of its bytes.
    """
    text = hashlib.sha256(source).hexdigest()
    hashed: str = _KNOWN.packed("hashes", text, lambda: _hash(source, text))
    return hashed


def keep() -> None:
    """Write what is new to the cache. One that cannot be written costs time only; `doctor` reports it."""
    if not _KNOWN.new:
        return
    _KNOWN.new = False
    stored = _read(_file())
    tables = {kind: {**stored.get(kind, {}), **used} for kind, used in _KNOWN.used.items()}
    if any(len(table) > MOST for table in tables.values()):
        tables = _KNOWN.used
    try:
        replace_file(_file(), encode(tables))
    except OSError:
        return


class _Known:
    """What this process knows of texts.

    used    kind → SHA-256 of a text → what was found, as the file has it.
    facts   the same of modules, unpacked.
    new     whether some of it is not in the file.
    """

    def __init__(self) -> None:
        self.used: dict[str, dict[str, Any]] = {"modules": {}, "hashes": {}}
        self.facts: dict[str, ModuleFacts] = {}
        self.new = False
        self._stored: dict[str, dict[str, Any]] = {}
        self._state: object = None

    def packed(self, kind: str, text: str, make: Callable[[], Any]) -> Any:
        """What was found of a text, by this process or by another one, or else what `make` finds."""
        found = self.used[kind].get(text) or self._read_again().get(kind, {}).get(text)
        if found is None:
            found, self.new = make(), True
        self.used[kind][text] = found
        return found

    def _read_again(self) -> dict[str, dict[str, Any]]:
        """The file as it is now: other processes of a sweep find the same facts, and may have been faster."""
        state = _state(_file())
        if state != self._state:
            self._stored, self._state = _read(_file()), state
        return self._stored


_KNOWN = _Known()


def _found(source: bytes) -> ModuleFacts:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ModuleFacts((), {}, {})
    imports = _imports(tree)
    if any(name.encode() in source for name in LOADERS):
        imports = tuple(sorted({*imports, *_loaded(tree)}))
    found = definitions_of(tree)
    return ModuleFacts(imports, dict(found.by_name), dict(found.imports))


def _hash(source: bytes, text: str) -> str:
    try:
        return normal_form.code_hash(source)
    except (SyntaxError, ValueError):
        return text[:16]


def _file() -> Path:
    return cache_dir() / "facts" / f"modules-{_version()}.json"


@cache
def _version() -> str:
    """16 hex digits for the code that finds the facts: another code may find others."""
    files = (__file__, normal_form.__file__, definitions.__file__)
    code = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.sha256(code).hexdigest()[:16]


def _state(file: Path) -> object:
    """What differs once a file was replaced; None where there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return file, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """What a file has; nothing where it is missing or damaged: a damaged fact is a wrong provenance."""
    try:
        stored: dict[str, dict[str, Any]] = decode(file.read_bytes().removesuffix(b"\n"))
    except (OSError, Damaged):
        return {}
    return stored


def _loaded(tree: ast.Module) -> Iterator[str]:
    """The modules that a text imports by a call with their whole name: ``import_module("a.b")``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
        given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
        name = getattr(given[0], "value", None) if given else None
        if called in LOADERS and isinstance(name, str) and name.strip("."):
            yield from () if name.startswith(".") else (name,)


def _imports(tree: ast.Module) -> tuple[str, ...]:
    """What a text imports, also in functions, but not only for types."""
    imported: set[str] = set()
    lazy = is_lazy(tree.body)
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and (runs := is_run(node.test)) is not None:
            queue += node.body if runs or lazy else node.orelse
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            joined = base if base.endswith(".") else f"{base}."
            imported |= {base} | {f"{joined}{alias.name}" for alias in node.names}
        elif not isinstance(node, ast.expr):
            queue += normal_form.children(node)
    return tuple(sorted(imported))
