"""Resolve the names in a grid to objects: methods with settings, datasets, and models for them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ttabench.cell.subset_names import SUBSETS, drawn_from, split_subset
from ttabench.data.balanced_subset import undrawn
from ttabench.data.catalog import check_names
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.dataset import Dataset
from ttabench.data.foreign import check_share
from ttabench.data.own.doubts import warn_of_doubts
from ttabench.errors import UserError, counted, unknown
from ttabench.models.model import Model
from ttabench.models.resolve import resolve_model
from ttabench.sweep.chosen_methods import MethodChoice, check_methods, choose_methods
from ttabench.sweep.exclude_rules import Exclusion, exclusion
from ttabench.sweep.grid import Grid, Rule
from ttabench.sweep.plain_grids import dataset_names, plain_grids
from ttabench.sweep.shifts import Shifts, find_shifts
from ttabench.system.files import user_path


@dataclass(frozen=True)
class SweepPart:
    """A part of a sweep: every method on every model and shift of one dataset, but for what is excluded.

    baseline   the network whose accuracy a ccc stream keeps; None = that of each row.
    """

    methods: tuple[MethodChoice, ...]
    models: tuple[Model, ...]
    shifts: Shifts
    exclude: tuple[Exclusion, ...] = ()
    baseline: Model | None = None


@dataclass(frozen=True)
class Sweep:
    """A grid whose names are resolved.

    models    those of all parts and their baselines, each once.
    exclude   all exclude rules, those that are about no part among them.
    """

    parts: tuple[SweepPart, ...]
    models: tuple[Model, ...]
    exclude: tuple[Rule, ...] = ()


def resolve(grid: Grid) -> Sweep:
    """Look up every name and check every setting; nothing is fetched or trained. Raises UserError."""
    known: dict[tuple[str, ...], Model] = {}
    parts: list[SweepPart] = []
    for plain in plain_grids(grid):
        methods = tuple(choose_methods(plain))
        check_methods(plain, methods)
        parts += [_part(name, plain, methods, known) for name in plain.datasets]
    check_names(model.measured for model in known.values())
    used = {choice.cls.name for part in parts for choice in part.methods}
    if other := next((name for name in grid.per_method if name not in used), ""):
        raise unknown("method in a rule", other, sorted(used))
    return Sweep(tuple(parts), tuple(known.values()), grid.exclude)


def _part(
    name: str, grid: Grid, methods: tuple[MethodChoice, ...], known: dict[tuple[str, ...], Model]
) -> SweepPart:
    """The part of a plain grid on one dataset; `known` models are used again, and new ones are added."""
    named = dataset_names(name)  # and, once it is open, the name that it has in results
    if draw := _draw_of(name, grid):
        name, grid = draw, replace(grid, limit=0, classes="first")
        methods = tuple(replace(choice, grid=replace(choice.grid, limit=0)) for choice in methods)
    data = open_dataset(name)
    named |= dataset_names(data.name)
    _say_if_not_whole(data)
    shifts = find_shifts(data, grid)
    warn_of_doubts(undrawn(data), shifts.measured)
    for choice in methods:
        _check_shares(data, choice.grid)
    wanted = {arch: (name, arch, grid.checkpoint, grid.normalize) for arch in grid.archs}
    if shifts.baseline:
        wanted.setdefault(shifts.baseline, (name, shifts.baseline, "", ""))
    for key in wanted.values():
        if key not in known:
            _, arch, checkpoint, normalize = key
            file = user_path(checkpoint) if checkpoint else None
            known[key] = resolve_model(arch, data, checkpoint=file, normalize=normalize)
    models = {arch: known[key] for arch, key in wanted.items()}
    ours = tuple(models[arch] for arch in grid.archs)
    rules = (rule for rule in grid.exclude if named & set(rule.get("datasets", named)))
    exclude = tuple(exclusion(rule, ours) for rule in rules)
    _check_distinct(ours)
    return SweepPart(methods, ours, shifts, exclude, models.get(shifts.baseline))


def _draw_of(name: str, grid: Grid) -> str:
    """The balanced draw that a limit means: ``imagenet-c[5000]``, whose images come class by class.

    "" where there is no limit, and where the first images of other datasets are taken. Raises UserError.
    """
    plain, subset = split_subset(name)
    if not grid.limit:
        if grid.classes != "first":
            raise UserError(
                f"--classes {grid.classes} draws the images that --limit counts; add --limit or leave it out."
            )
        return ""
    if (subset and plain in SUBSETS) or drawn_from(name) != name:
        raise UserError(f"--limit {grid.limit}: {name} is a subset already; leave one of the two out.")
    return f"{name}[{grid.limit}]" if plain in SUBSETS or grid.classes == "balanced" else ""


def _say_if_not_whole(data: Dataset) -> None:
    plain, subset = split_subset(data.name)
    if subset.startswith("here-"):
        warnings.warn(
            f"{plain}: the folder of corrupted images is incomplete; measured on the "
            f"{data.shifted_count():,} images of each corruption that are in it, as {data.name}.",
            stacklevel=2,
        )


def _check_distinct(models: Sequence[Model]) -> None:
    """Raises UserError for two names of one network, such as resnet18 and resnet18_w8 on digits-c."""
    first: dict[str, Model] = {}
    for model in models:
        if (other := first.setdefault(model.aliases[-1], model)) is not model:
            both = f"{other.asked} and {model.asked}"
            raise UserError(f"{both} are the same network on {model.measured.name}; name one of them.")


def _check_shares(data: Dataset, grid: Grid) -> None:
    """Raises UserError if one of the two parts of the images is empty, or none is foreign."""
    if not (grid.held_out or grid.contamination):
        return
    images = grid.limit or data.shifted_count()
    check_share(grid.contamination, images)
    if not grid.held_out:
        return
    scored = round(grid.held_out * images)
    if not 0 < scored < images:
        purpose = "to adapt to" if scored else "to score"
        raise UserError(
            f"--held-out {grid.held_out:g} of {counted(images, 'image')} of {data.name} leaves none {purpose}"
            "; give another share, or more images."
        )
