"""Rules of a sweep file: what is added to a grid, left out of it, or different for a method or a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ttabench.cell.subset_names import split_subset
from ttabench.errors import UserError
from ttabench.method.spelling import parse_method
from ttabench.sweep.grid import Grid, Rule

PER_CORRUPTION = "per_corruption"
"""The reset that a long stream cannot have."""


def plain_grids(grid: Grid) -> list[Grid]:
    """A grid as several without `include` and `per_dataset`: the grid itself, then one for each include rule.

    A grid with datasets of its own rules is one grid per dataset. What an include rule names itself wins over
    `per_dataset`. Raises UserError.
    """
    plain: list[Grid] = []
    for number, rule in enumerate(({}, *grid.include)):
        try:
            plain += _by_dataset(changed(replace(grid, include=(), per_dataset={}), rule), grid, rule)
        except UserError as problem:
            raise UserError(f"include rule {number}: {problem}" if number else str(problem)) from None
    used = {name for part in plain for name in method_names(part.methods)}
    return [_without_others(part, used) for part in plain]


def _without_others(part: Grid, used: set[str]) -> Grid:
    """`part` without settings and compute ratios of methods that only other parts use.

    Those of methods that no part uses stay: they are mistakes, and named later.
    """
    others = used - set(method_names(part.methods))
    return replace(
        part,
        settings=tuple(text for text in part.settings if setting_method(text) not in others),
        pace_ratio=tuple(pair for pair in part.pace_ratio if parse_method(pair[0])[0] not in others),
    )


def _by_dataset(part: Grid, grid: Grid, rule: Rule) -> list[Grid]:
    """One grid for each dataset that has rules of its own, and one for each run of others.

    Those of ``digits-c`` are of ``digits-c[100]`` too, unless the sweep has both.
    """
    grids: list[Grid] = []
    shared: list[str] = []
    for name in part.datasets:
        whole, _ = split_subset(name)
        key = name if name in grid.per_dataset or whole in part.datasets else whole
        if key not in grid.per_dataset:
            shared.append(name)
            continue
        if shared:
            grids.append(replace(part, datasets=tuple(shared)))
            shared = []
        values = {field: value for field, value in grid.per_dataset[key].items() if field not in rule}
        grids.append(changed(replace(part, datasets=(name,)), values))
    return [*grids, replace(part, datasets=tuple(shared))] if shared else grids


def changed(grid: Grid, values: Rule) -> Grid:
    """`grid` with other values; settings are added to its own, and win over those of the same name.

    A rule that brings a long stream, and no reset, has that of the stream in place of one per corruption.
    """
    values = dict(values)
    if values.get("stream") and grid.reset == PER_CORRUPTION:
        values.setdefault("reset", "")
    if "settings" in values:
        values["settings"] = joined_settings(grid.settings, values["settings"])
    return replace(grid, **values)


def joined_settings(held: Iterable[str], more: Sequence[str]) -> tuple[str, ...]:
    """``method.key=value`` texts; one of `more` replaces one of `held` with the same method and key."""
    replaced = {setting_name(text) for text in more}
    return (*(text for text in held if setting_name(text) not in replaced), *more)


def setting_name(text: str) -> str:
    """``tent.lr=0.1,0.2`` → ``tent.lr``"""
    return text.partition("=")[0].strip()


def setting_method(text: str) -> str:
    """``tent.lr=0.1,0.2`` → ``tent``"""
    return text.partition(".")[0].strip()


def method_names(methods: Iterable[str]) -> list[str]:
    """``tent[norms=all]`` → ``tent``"""
    return [parse_method(text)[0] for text in methods]


def dataset_names(name: str) -> set[str]:
    """By which names rules mean a dataset: ``digits-c[100]`` also by ``digits-c``."""
    return {name, split_subset(name)[0]}


def of_method(grid: Grid, name: str) -> Grid:
    """`grid` with the values that it has for one method."""
    return replace(grid, **grid.per_method[name]) if name in grid.per_method else grid
