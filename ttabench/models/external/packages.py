"""Packages that networks of others need: imported, or one sentence that says what is wrong and the cure."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from typing import Any

from ttabench.errors import UserError

BOTH_ANEW = "install both from one index: pip install --force-reinstall torch torchvision"
OF_ANOTHER_TORCH = f"torchvision was made for another torch; {BOTH_ANEW}"


def imported(package: str, wanted_by: str, get: str = "") -> Any:
    """The package, imported; `wanted_by` is the network that needs it, `get` how to get it.

    Raises UserError where it is missing or cannot be imported.
    """
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError) as problem:  # RuntimeError: torchvision was made for another torch
        raise UserError(
            f"{wanted_by} needs {package} {missing_or_broken(problem, get or f'pip install {package}')}."
        ) from None


def missing_or_broken(problem: BaseException, get: str) -> str:
    """What an import said, in brackets, and the cure: `get`, or torch and torchvision anew.

    It is the first sentence of the error that led to the others, which may name only what was asked for.
    """
    while problem.__cause__ is not None:
        problem = problem.__cause__
    said = str(problem).strip().partition("\n")[0].partition(". ")[0]
    missing = isinstance(problem, ModuleNotFoundError) or said.startswith("No module named")
    broken = "torchvision" in said and not missing
    return f"({said}): {OF_ANOTHER_TORCH if broken else get}"


def made_for_another_torch() -> str:
    """What is wrong with the torchvision installed, "" if nothing can be told; imports neither package.

    torchvision asks for one version of torch, and its binary needs the same build, such as +cpu or +cu130.
    """
    try:
        torch, torchvision = metadata.version("torch"), _version_with_build()
        asked = [text for text in metadata.requires("torchvision") or () if re.match(r"torch\W", text)]
    except (metadata.PackageNotFoundError, OSError):
        return ""
    version, _, build = torch.partition("+")
    builds = {build, torchvision.partition("+")[2]}
    other_build = len(builds) == 2 and all(map(_is_build, builds))
    if all(version in text for text in asked) and not other_build:
        return ""
    return f"torchvision {torchvision} does not fit torch {torch}: {BOTH_ANEW}"


def _version_with_build() -> str:
    """torchvision's version as its own file states it; its metadata may lack the build."""
    for file in metadata.files("torchvision") or ():
        is_it = file.as_posix() == "torchvision/version.py"
        if is_it and (found := re.search(r"__version__ = ['\"]([^'\"]+)", file.read_text())):
            return found[1]
    return metadata.version("torchvision")


def _is_build(label: str) -> bool:
    return bool(re.fullmatch(r"cpu|xpu|cu\d+|rocm[\d.]+", label))
