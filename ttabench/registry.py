"""Find methods, reports and figures through entry points, built-in ones and those of other packages."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttabench.errors import UserError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ttabench.method import Method

METHODS = "ttabench.methods"
REPORTS = "ttabench.reports"
VIEWS = "ttabench.views"
FIGURES = "ttabench.figures"

# Where an unknown method is looked for; the text goes on after "See".
LISTED = "`ttabench list methods`; a method of your own needs its package installed: pip install -e FOLDER"


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
    except Exception as problem:
        owner = points[name].dist
        raise UserError(
            f"{kind} '{name}' of package {owner.name if owner else '?'} cannot be imported "
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
    if getattr(cls, "name", None) != name:
        raise UserError(
            f"the method registered as '{name}' has the name '{getattr(cls, 'name', None)}'; "
            "its `name` must be the registered one."
        )
    return cls


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


def in_groups(names: Sequence[str]) -> list[str]:
    """Methods as a user names them, with ``all`` and the names of families replaced by their members.

    A family's members are the methods whose `family` is that name, and the baseline, Source. A method that
    is named beside a group it belongs to stands once.
    """
    known = entry_points(METHODS)
    named: list[str] = []
    grouped: list[str] = []
    for name in names:
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
