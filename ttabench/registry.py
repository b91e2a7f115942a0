"""Find methods, reports and figures through entry points, built-in ones and those of other packages."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from ttabench.cell.protocol import MODES
from ttabench.errors import UnusableModel, UserError, exit_is_an_error, is_sigterm, shortened, unknown
from ttabench.method.ranges import check_ranges
from ttabench.method.spelling import joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ttabench.method import Method

METHODS = "ttabench.methods"
REPORTS = "ttabench.reports"
VIEWS = "ttabench.views"
FIGURES = "ttabench.figures"

# Where an unknown method is looked for; the text goes on after "See".
LISTED = "`ttabench list methods`; a method of your own needs its package installed: pip install -e FOLDER"

# Attributes of a method that the core reads; they are of the same type as those of `Method`.
DECLARED = (
    "needs", "family", "mode", "batch_size", "imagenet_batch_size", "online_batch_size", "scores",
    "scores_frozen", "restores", "deviations", "per_class",
)  # fmt: skip
SCALARS = (str, int, float, bool, type(None))  # as in `ttabench.cell.Scalar`


def entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    """Entry points of a group by name; nothing is imported yet.

    ``TTABENCH_PLUGINS=off`` leaves only the built-in ones. Raises UserError if two installed packages
    register the same name.
    """
    built_in_only = os.environ.get("TTABENCH_PLUGINS", "on") == "off"
    return dict(_entry_points(group, built_in_only, _places(), metadata.entry_points))


def _places() -> tuple[tuple[str, int], ...]:
    """The folders that packages are imported from, with the times when something was installed there."""
    times = []
    for place in sys.path:
        try:
            times.append((place, os.stat(place or ".").st_mtime_ns))
        except OSError:
            times.append((place, 0))
    return tuple(times)


@lru_cache(maxsize=16)
def _entry_points(
    group: str, built_in_only: bool, _places: tuple[tuple[str, int], ...], find: Callable[..., Any]
) -> Mapping[str, metadata.EntryPoint]:
    """Kept until something is installed: a look through all packages takes tens of milliseconds."""
    points: dict[str, metadata.EntryPoint] = {}
    for point in find(group=group):
        if built_in_only and _owner(point) != "ttabench":
            continue
        other = points.get(point.name)
        if other is not None and other.value != point.value:
            raise UserError(
                f"two installed packages, {_owner(other)} and {_owner(point)}, both register '{point.name}' "
                f"in {group}; uninstall one of them, or set TTABENCH_PLUGINS=off to use only the built-in "
                "ones."
            )
        points[point.name] = point
    return points


def _owner(point: metadata.EntryPoint) -> str:
    """The package of an entry point. Each call reads its metadata file."""
    return point.dist.name if point.dist else "?"


def load(group: str, name: str, kind: str) -> Any:
    """The object behind one entry point. Raises UserError for an unknown or broken one."""
    points = entry_points(group)
    if name not in points:
        raise unknown(kind, name, points)
    try:
        return points[name].load()
    except UnusableModel as problem:  # it imports what no method may, see `reach.refused_imports`
        raise UserError(
            f"{kind} '{name}' of package {_owner(points[name])} is refused: {problem}."
        ) from problem
    except (Exception, SystemExit) as problem:
        if is_sigterm(problem):
            raise
        raise UserError(
            f"{kind} '{name}' of package {_owner(points[name])} cannot be imported "
            f"({type(problem).__name__}: {problem}); fix or uninstall that package."
        ) from problem


def method(name: str) -> type[Method[Any]]:
    """The method class registered as `name`. Raises UserError with the nearest name that can be imported.

    A class that was found is kept.
    """
    return _method(name, entry_points, os.environ.get("TTABENCH_PLUGINS", "on"))


@cache
def _method(name: str, points: Callable[[str], Any], _plugins: str) -> type[Method[Any]]:
    if name not in points(METHODS):
        raise unknown("method", name, methods(), LISTED)
    cls: type[Method[Any]] = load(METHODS, name, "method")
    if fault := _fault(cls, name):
        raise UserError(
            f"method '{name}' of package {_owner(points(METHODS)[name])} cannot be used: {fault}; "
            "fix or uninstall that package."
        )
    return cls


def _fault(cls: Any, name: str) -> str:
    """Why what was registered as `name` cannot be used as a method; "" if it can."""
    contract: Any = sys.modules.get("ttabench.method")  # a method has imported it, and with it torch
    is_method = contract is not None and isinstance(cls, type) and issubclass(cls, contract.Method)
    if not is_method:
        return f"it is {_shown(cls)}, expected a subclass of ttabench.method.Method"
    if (called := getattr(cls, "name", None)) != name:
        return f"its `name` is {_shown(called)}, expected the registered one"
    if not isinstance(cls.paper, (contract.Paper, type(None))):
        return f"its `paper` is {_shown(cls.paper)}, expected a Paper or None"
    for attribute in DECLARED:
        value, kind = getattr(cls, attribute), type(getattr(contract.Method, attribute))
        if not isinstance(value, kind):
            expected = {str: "a text", int: "a whole number"}.get(kind, f"a {kind.__name__}")
            return f"its `{attribute}` is {_shown(value)}, expected {expected}"
    if cls.mode not in MODES:
        return f"its `mode` is {_shown(cls.mode)}, expected {' or '.join(MODES)}"
    if cls.reset is not contract.Method.reset:
        return "it has a reset() of its own, expected that of Method, which restores all attributes"
    return config_fault(cls)


def config_fault(cls: type[Method[Any]]) -> str:
    """Why a method's `Config` is no dataclass of scalars that all have defaults; "" if it is one."""
    kind: Any = cls.Config
    if not isinstance(kind, type) or not is_dataclass(kind):
        return f"its Config is {_shown(kind)}, expected a frozen dataclass"
    for base in vars(cls).get("__orig_bases__", ()):
        for stated in get_args(base):
            if isinstance(stated, type) and is_dataclass(stated) and not issubclass(kind, stated):
                return (
                    f"it is a {get_origin(base).__name__}[{stated.__name__}], and its Config is "
                    f"{kind.__name__}; write `Config = {stated.__name__}` in it"
                )
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING:
            return f"its setting `{field.name}` has no default, expected one for every setting"
    try:
        with exit_is_an_error():
            config = kind()
            check_ranges(config)
    except Exception as problem:  # of the plugin's code
        return f"its Config() fails ({type(problem).__name__}: {problem}), expected defaults that are valid"
    for field in fields(kind):
        value = getattr(config, field.name)
        if not isinstance(value, SCALARS) or value in (math.inf, -math.inf) or value != value:
            expected = "a text, a finite number, a bool or None"  # they are part of a cell's identity
            return f"its setting `{field.name}` is {_shown(value)}, expected {expected}"
    return ""


def _shown(value: object) -> str:
    return shortened(repr(value))


def method_names() -> list[str]:
    """Registered names, sorted; nothing is imported."""
    return sorted(entry_points(METHODS))


def methods() -> dict[str, type[Method[Any]]]:
    """All methods that can be imported. A method that cannot be imported gives a warning."""
    usable: dict[str, type[Method[Any]]] = {}
    for name in method_names():
        try:
            usable[name] = method(name)
        except UserError as problem:
            warnings.warn(f"skipped: {problem}", stacklevel=2)
    return usable


def method_facts(name: str, settings: Iterable[object]) -> dict[str, Any]:
    """The facts of a method, and as its parts those of the methods that its settings name; see `facts_of`.

    {} for a method that is not registered, such as one of a program of the user.
    """
    from ttabench.method.facts_for_reports import facts_of  # imports torch

    try:
        facts = facts_of(method(name))
    except UserError:
        return {}
    names = set(method_names())
    parts = {text: facts_of(method(text)) for text in settings if isinstance(text, str) and text in names}
    return {**facts, "parts": parts} if parts else facts


def in_groups(names: Sequence[str]) -> list[str]:
    """Methods as a user names them, with ``all`` and the names of families replaced by their members.

    ``quantile+cotta`` is spelled as `joined` does.
    A family's members are the methods whose `family` is that name, and the baseline, Source. A method that
    is named beside a group it belongs to stands once.
    """
    known = entry_points(METHODS)
    named: list[str] = []
    grouped: list[str] = []
    for name in map(joined, names):
        members = [name]
        if name not in known and "[" not in name:
            every = methods()
            of_family = [member for member, cls in every.items() if cls.family == name]
            members = list(every) if name == "all" else ["source", *of_family] if of_family else members
        (named if members == [name] else grouped).extend(members)
    return [*named, *(name for name in dict.fromkeys(grouped) if name not in named)]


def families() -> list[str]:
    """The names of the groups of methods that :func:`in_groups` replaces by their members, sorted."""
    return sorted({"all", *(cls.family for cls in methods().values() if cls.family)})


def report(name: str) -> Callable[..., list[Path]]:
    """The writer registered for a report format."""
    writer: Callable[..., list[Path]] = load(REPORTS, name, "report format")
    return writer


def view(name: str) -> Any:
    """What the command line shows results with: ``cells``, ``terminal`` or ``compare``."""
    return load(VIEWS, name, "view")


def figure(name: str) -> Callable[..., Figure]:
    """The function registered for a figure, see :mod:`ttabench.figure`."""
    make: Callable[..., Figure] = load(FIGURES, name, "figure")
    return make


def figure_names() -> list[str]:
    """Registered names, sorted; nothing is imported."""
    return sorted(entry_points(FIGURES))
