"""Facts that need an import of all methods, kept in the cache until code changes. Imports no torch.

A fact is kept under a hash of every Python file of ttabench and of the packages that register methods or
figures, and of the versions of the libraries. If one of them changes, it is computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ttabench import registry
from ttabench.system.environment import cache_dir, versions
from ttabench.system.files import replace_file


def remembered(question: str, answer: Callable[[], Any], keep: Callable[[Any], bool] = bool) -> Any:
    """The result of `answer()` (JSON), from the cache if the same code has answered this question before.

    keep   whether an answer may be kept; one with a broken package must not be.
    """
    key = hashlib.sha256(f"{_code()}\0{question}".encode()).hexdigest()[:24]
    file = cache_dir() / "facts" / f"{key}.json"
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        pass
    fact = answer()
    if keep(fact):
        try:
            replace_file(file, json.dumps(fact).encode())
        except OSError:
            return fact  # a cache that cannot be written costs time only; `doctor` reports it
    return fact


def _code() -> str:
    """SHA-256 (hex) of the code and the versions that facts depend on."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    packages = {"ttabench"}
    for group in (registry.METHODS, registry.FIGURES):
        for name, point in sorted(registry.entry_points(group).items()):
            owner = getattr(point, "dist", None)
            target = str(getattr(point, "value", point))
            digest.update(f"{name} {target} {owner.version if owner else ''}\n".encode())
            packages.add(target.partition(":")[0].partition(".")[0])
    for package in sorted(packages):
        for file in _files(package):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _files(package: str) -> list[Path]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    folders = spec.submodule_search_locations
    if folders is None:
        return [Path(spec.origin)] if spec.origin else []
    return sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
