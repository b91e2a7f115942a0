"""The code that a result depends on: its modules, and a hash of each. Imports no torch.

`ttabench.code_hash` says what a hash covers. The modules of a result are found by following imports from the
modules listed below.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ttabench.code_hash import FIRST_NAMES
from ttabench.env import RECORDED
from ttabench.module_facts import Facts, facts_of, keep
from ttabench.registry import METHODS, entry_points

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = [
    "changes", "combined", "current_modules", "imported_modules", "libraries", "parts_of", "unused_modules",
]  # fmt: skip

OWN = ("ttabench", "ttabench_methods")
"""The packages of ttabench; methods of other distributions may build on them."""

# Modules that every result depends on. The imports of `ttabench.worker` are not followed: it also stores
# results, resolves names and loads weights, which are in the identity of the cell.
SCORING = (
    "ttabench.classifier",
    "ttabench.scoring",
    "ttabench.method",
    "ttabench.nn",
    "ttabench.source_access",
    "ttabench.stream",
)
ALONE = ("ttabench.worker", "ttabench.torch_defaults")
# Modules that change no accuracy: messages, file names, progress, paths, papers, ranges of settings, costs,
# label-free scores, opening data by name (the data have a fingerprint; the modules that read them are in
# `READERS`), and opening networks by name (their weights are in the identity of the cell).
NEUTRAL = (
    "ttabench.calibration",
    "ttabench.cell",
    "ttabench.code_hash",
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
    "ttabench.records",
    "ttabench.registry",
    "ttabench.unit",
    "ttabench.unlabelled",
    "ttabench_methods.references",
)
READERS = {  # by the first words of a name; the first that fits counts
    "digits-c": ("ttabench.data.digits", "ttabench.corruptions.engine"),
    "cifar10-c-bar": ("ttabench.data.published.cifar_bar", "ttabench.corruptions.engine"),
    "cifar10.1": ("ttabench.data.published.natural_shifts",),
    "cifar": ("ttabench.data.published.cifar",),
    "domains": ("ttabench.data.own.domain_folders",),
    "own": ("ttabench.data.own.own_arrays", "ttabench.data.own.own_image_folders"),
    "imagenet-c": ("ttabench.data.published.imagenet",),
    "imagenet-": ("ttabench.data.published.natural_shifts",),
    "folders": ("ttabench.data.published.imagenet",),
}
# It asks for the corrupted images of these datasets. Its imports are not followed: those are the readers.
GENERATED, GENERATED_HERE = "ttabench.data.generated_datasets", ("digits-c", "cifar10-c-bar")
NETWORKS = "ttabench.models.architectures.build"
EXTERNAL = {  # networks of other packages, by the prefix of their names: what makes them, distributions
    "hf": ("ttabench.models.external.huggingface", ("transformers",)),
    "official": ("ttabench.models.external.official", ()),
    "robustbench": ("ttabench.models.external.robustbench", ("robustbench", "timm")),
    "timm": ("ttabench.models.external.timm", ("timm",)),
    "torchvision": ("ttabench.models.external.torchvision", ("torchvision",)),
}
# Methods that are made of other methods, and their settings that name those. Of the methods that such a
# method imports, only the named ones count.
COMPOSED = {"come": ("host",), "stack": ("first", "second")}
STREAMS = {  # further modules of cells that are more than one corruption, by what stands in its place
    "mixed": ("ttabench.data.mixed",),
    "recurring": ("ttabench.streams.cell",),
    "gradual": ("ttabench.streams.cell",),
    "ccc": ("ttabench.streams.cell",),
}


def current_modules(
    method: str,
    dataset: str,
    corruption: str = "",
    arch: str = "",
    contamination: str = "",
    parts: Collection[str] = (),
) -> Mapping[str, str]:
    """Module → hash of its code, for a method on a dataset; {} if the method is not installed.

    A module that was renamed has its first name, see :data:`ttabench.code_hash.FIRST_NAMES`.

    corruption     of the cell; it matters where it is one of :data:`STREAMS`.
    arch           of the cell; it matters where it is a network of the user, ``package.module:callable``, or
                   of another package.
    contamination  of its protocol; it matters where it is a dataset.
    parts          names of the methods that the method is made of, see :func:`parts_of`; () for all.
    """
    foreign, _, _ = contamination.partition("(")
    further = STREAMS.get(corruption, ())
    return _current_modules(method, dataset, further, _module_of(arch), _prefix(arch), foreign, tuple(parts))


def parts_of(method: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the methods that a composed method is made of with these settings; () for other methods."""
    return tuple(str(config[setting]) for setting in COMPOSED.get(method, ()) if setting in config)


def unused_modules(method: str, parts: Collection[str]) -> frozenset[str]:
    """Modules of a composed method that only its other `parts` need, by their first names."""
    if not parts or method not in entry_points(METHODS):
        return frozenset()
    unused = _code_of(method, ()) - _code_of(method, tuple(parts))
    return frozenset(FIRST_NAMES.get(name, name) for name in unused)


@cache
def _current_modules(
    method: str,
    dataset: str,
    further: tuple[str, ...],
    network: str,
    prefix: str,
    foreign: str,
    parts: tuple[str, ...],
) -> Mapping[str, str]:
    if method not in entry_points(METHODS):
        return {}
    datasets = [dataset, *([foreign] if foreign not in ("", "noise") else [])]
    roots = [*SCORING, *(reader for name in datasets for reader in _readers(name)), NETWORKS, *further]
    followed = {*_follow(roots, OWN), *_code_of(method, parts), *(_network_code(network) if network else ())}
    alone = {*ALONE, *([EXTERNAL[prefix][0]] if prefix else ())}
    alone |= {GENERATED} if any(name.startswith(GENERATED_HERE) for name in datasets) else set()
    return _hashes({*followed, *alone})


@cache
def libraries(method: str, arch: str) -> tuple[str, ...]:
    """Names of the distributions that a result needs besides `env.RECORDED`, sorted.

    They are those of the networks of other packages (``timm/NAME``), and what the modules of another
    distribution's method and of a network of the user import.
    """
    prefix = _prefix(arch)
    names = set(EXTERNAL[prefix][1]) if prefix else set()
    modules: set[str] = set()
    if method in entry_points(METHODS):
        modules |= _code_of(method, ())
    if network := _module_of(arch):
        modules |= _network_code(network)
    strange = [name for name in modules if name.partition(".")[0] not in OWN]
    if not strange:
        return tuple(sorted(names))
    from importlib.metadata import packages_distributions

    imported = {each for name in strange for each in _imports(name)}
    tops = {each.partition(".")[0] for each in imported}
    known = packages_distributions()
    here = {name.partition(".")[0] for name in modules}
    for top in tops - here - {*OWN} - sys.stdlib_module_names:
        names |= set(known.get(top, ()))
    return tuple(sorted(names - {*RECORDED}))


def _module_of(arch: str) -> str:
    """The module of ``package.module:callable``; "" for every other name."""
    module, colon, _ = arch.partition(":")
    return module if colon and "/" not in module else ""


def _prefix(arch: str) -> str:
    """The prefix of a network of another package, such as ``timm``; "" for every other name."""
    prefix, slash, _ = arch.partition("/")
    return prefix if slash and prefix in EXTERNAL else ""


@cache
def _code_of(method: str, parts: tuple[str, ...]) -> set[str]:
    """The modules of a method, with those that they import from its distribution and from ttabench.

    parts   of the methods that a composed method imports, the names of those that count; () for all.
    """
    known = entry_points(METHODS)
    point = known[method]
    packages = _packages(getattr(point, "dist", None))
    top = point.module.partition(".")[0]
    tops, beside = (*OWN, top, *packages), "" if top in OWN else top
    used = {known[name].module for name in parts if name in known}
    others = {each.module for each in known.values()} - used if parts else set()
    return _follow([point.module], tops, beside, {point.module: others})


@cache
def _network_code(module: str) -> set[str]:
    """The modules of a network of the user; none where it cannot be found."""
    top = module.partition(".")[0]
    return _follow([module], (*OWN, top), beside=top)


def _packages(dist: Distribution | None) -> set[str]:
    """The top packages that a distribution installed; editable installs do not list theirs."""
    files = dist.files or () if dist is not None else ()
    return {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}


def network_code(arch: str) -> str:
    """SHA-256 (hex) of the code of a network of the user, ``package.module:callable``; "" for others."""
    module = _module_of(arch)
    return combined(_hashes(_network_code(module))) if module else ""


@cache
def shared_code(dataset: str) -> str:
    """SHA-256 (hex) of all code that a number on a dataset depends on, except that of its method."""
    followed = _follow([*SCORING, *_readers(dataset), NETWORKS], OWN)
    return combined(_hashes(followed))


@cache
def code_from(module: str) -> str:
    """SHA-256 (hex) of the code of a module of ttabench and of all that it imports from ttabench."""
    return combined(_hashes(_follow([module], OWN)))


def combined(modules: Mapping[str, str]) -> str:
    """SHA-256 (hex) over names and hashes; "" without modules."""
    if not modules:
        return ""
    text = "".join(f"{name}\0{modules[name]}\n" for name in sorted(modules))
    return hashlib.sha256(text.encode()).hexdigest()


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Differences between stored and current modules, such as ``ttabench/nn/updates.py changed``.

    Nothing imports a further module of ttabench unless another one changed. One that is new by itself is
    one that earlier versions did not record, and no difference. So changed modules come first: readers of a
    list often see only its beginning.
    """
    new = now.keys() - then.keys()
    if all(name.partition(".")[0] in OWN for name in new) and then.items() <= now.items():
        return []
    changed = sorted(name for name in then.keys() & now.keys() if then[name] != now[name])
    return [
        *(f"{_path(name)} changed" for name in changed),
        *(f"{_path(name)} is gone" for name in sorted(then.keys() - now.keys())),
        *(f"{_path(name)} is new" for name in sorted(new)),
    ]


def _readers(dataset: str) -> tuple[str, ...]:
    """The modules that read or generate the images of a dataset."""
    if dataset.endswith("-domains-local"):
        return READERS["domains"]
    if dataset.endswith("-local"):
        return READERS["own"]
    family = next((name for name in READERS if dataset.startswith(name)), "folders")
    return READERS[family]


def module_hash(name: str) -> str:
    """16 hex digits of the SHA-256 of a module's code, see `code_hash`; "" where there is no file."""
    facts = _facts(name)
    return "" if facts is None else facts.hash


def imported_modules(module: str) -> dict[str, frozenset[str]]:
    """`module` and what it imports from its distribution, directly or not → what each imports."""
    top = module.partition(".")[0]
    return {name: _imports(name) for name in _follow([module], (top,))}


def _follow(
    roots: Iterable[str],
    tops: Collection[str],
    beside: str = "",
    unused: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> set[str]:
    """The roots and all modules of the packages `tops` that they import, directly or not; no neutral ones.

    beside   a top package: what stands in one project folder with it counts like `tops`.
    unused   by module, which of its imports do not count.
    """
    seen: set[str] = set()
    queue = list(roots)
    while queue:
        name = queue.pop()
        if name in seen or _is_neutral(name) or module_file(name) is None:
            continue
        seen.add(name)
        parent = name.rpartition(".")[0]
        if parent and name.partition(".")[0] not in OWN:  # its `__init__` runs too; those of OWN do nothing
            queue.append(parent)
        for module in _imports(name).difference(unused.get(name, ())):
            top = module.partition(".")[0]
            if top in tops or (beside and _in_one_project(top, beside)):
                queue.append(module)
    return seen


@cache
def _in_one_project(one: str, other: str) -> bool:
    """Whether two top packages stand in one folder, and it is none that packages are installed into."""
    folder = _folder(one)
    return folder is not None and folder == _folder(other) and not any(folder.glob("*.dist-info"))


def _folder(top: str) -> Path | None:
    """Where a top package or module stands."""
    if top in sys.stdlib_module_names or (spec := _spec(top)) is None:
        return None
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    if not places and spec.origin is not None:
        places = [Path(spec.origin)]
    return places[0].resolve().parent if places else None


@cache
def _is_neutral(name: str) -> bool:
    top, dot, _ = name.partition(".")
    if not dot:  # the top package contains no code that changes results
        return top == "ttabench"
    return any(name == neutral or name.startswith(f"{neutral}.") for neutral in NEUTRAL)


def _hashes(names: Iterable[str]) -> dict[str, str]:
    hashes = {FIRST_NAMES.get(name, name): module_hash(name) for name in sorted(names)}
    keep()
    return hashes


@cache
def _facts(name: str) -> Facts | None:
    """The facts of a module; None where there is no file."""
    file = module_file(name)
    return None if file is None else facts_of(file.read_bytes())


@cache
def _imports(name: str) -> frozenset[str]:
    """Absolute names of all modules that a module imports, also in functions, but not only for types."""
    file, facts = module_file(name), _facts(name)
    if file is None or facts is None:
        return frozenset()
    return facts.imported(name if file.name == "__init__.py" else name.rpartition(".")[0])


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


def _path(name: str) -> str:
    """The file of a module that stored results know by `name`, relative to the folder of its package."""
    name = next((now for now, first in FIRST_NAMES.items() if first == name), name)
    file = module_file(name)
    suffix = "/__init__.py" if file is not None and file.name == "__init__.py" else ".py"
    return name.replace(".", "/") + suffix
