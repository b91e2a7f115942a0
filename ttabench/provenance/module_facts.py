"""What provenance needs of a module: a hash, its imports, its definitions. Imports no torch.

To parse all modules of a result takes seconds. These facts depend only on the text of a module, so they are
kept in the cache under the SHA-256 of that text.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from ttabench.provenance import definitions, normal_form
from ttabench.provenance.definitions import Definition, definitions_of, is_lazy, is_run
from ttabench.system.checked_lines import Damaged, decode, encode
from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file

__all__ = ["Facts", "absolute", "facts_of", "keep"]

MOST = 4096
"""Modules in the cache. With more, only those that this process used are kept."""


class Facts(NamedTuple):
    """Of the text of one module.

    hash         16 hex digits, see :func:`ttabench.provenance.normal_form.code_hash`.
    imports      names of modules and of what is imported from them, sorted; relative ones begin with dots.
    definitions  by name, see :mod:`ttabench.provenance.definitions`.
    meanings     names that it imports → ``module`` or ``module:attribute``; relative ones begin with dots.
    """

    hash: str
    imports: tuple[str, ...]
    definitions: dict[str, Definition]
    meanings: dict[str, str]

    def imported(self, package: str) -> frozenset[str]:
        """Absolute names of the modules that a module in `package` imports."""
        return frozenset(absolute(name, package) for name in self.imports)


def absolute(name: str, package: str) -> str:
    """A module as an import names it, without the dots of relative imports."""
    return resolve_name(name, package) if name[:1] == "." else name


def facts_of(source: bytes) -> Facts:
    """The facts of a module's text, from the cache if it has them.

    What cannot be parsed has the hash of its bytes and no imports: a compiled module, or a file in the middle
    of a change.
    """
    text = hashlib.sha256(source).hexdigest()
    facts = _KNOWN.used.get(text) or _KNOWN.stored.get(text)
    if facts is None:
        try:
            found = definitions_of(source)
            facts = Facts(
                normal_form.code_hash(source), _imports(source), dict(found.by_name), dict(found.imports)
            )
        except (SyntaxError, ValueError):
            facts = Facts(text[:16], (), {}, {})
        _KNOWN.new = True
    _KNOWN.used[text] = facts
    return facts


def keep() -> None:
    """Write new facts to the cache. One that cannot be written costs time only; `doctor` reports it."""
    if not _KNOWN.new:
        return
    _KNOWN.new = False
    kept = {**_read(_file()), **_KNOWN.used}
    kept = kept if len(kept) <= MOST else _KNOWN.used
    line = encode({"modules": {text: _packed(facts) for text, facts in kept.items()}})
    try:
        replace_file(_file(), line)
    except OSError:
        return


class _Known:
    """The facts that this process has: those of the cache, and those that it used; whether some are new."""

    def __init__(self) -> None:
        self.used: dict[str, Facts] = {}
        self.new = False

    @property
    def stored(self) -> dict[str, Facts]:
        return _read_once(_file())


_KNOWN = _Known()


def _file() -> Path:
    return cache_dir() / "facts" / f"modules-{_version()}.json"


@cache
def _version() -> str:
    """16 hex digits for the code that finds the facts: another code may find others."""
    files = (__file__, normal_form.__file__, definitions.__file__)
    code = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.sha256(code).hexdigest()[:16]


def _read(file: Path) -> dict[str, Facts]:
    """The facts in a file; none where it is missing or damaged: a damaged fact is a wrong provenance."""
    try:
        stored = decode(file.read_bytes().removesuffix(b"\n"))["modules"]
    except (OSError, Damaged):
        return {}
    return {text: _unpacked(facts) for text, facts in stored.items()}


def _packed(facts: Facts) -> list[Any]:
    made = {name: each.to_json() for name, each in facts.definitions.items()}
    return [facts.hash, list(facts.imports), made, facts.meanings]


def _unpacked(packed: list[Any]) -> Facts:
    digest, imports, made, meanings = packed
    return Facts(
        digest, tuple(imports), {name: Definition.from_json(each) for name, each in made.items()}, meanings
    )


_read_once = cache(_read)


def _imports(source: bytes) -> tuple[str, ...]:
    """What a text imports, also in functions, but not only for types."""
    imported: set[str] = set()
    tree = ast.parse(source)
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
        else:
            queue += ast.iter_child_nodes(node)
    return tuple(sorted(imported))
