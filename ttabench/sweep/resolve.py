"""Resolve the names in a grid to objects: methods with settings, datasets, and models for them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttabench.cell import Scalar
from ttabench.data.catalog import check_names
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.dataset import Dataset
from ttabench.data.drawn import undrawn
from ttabench.data.foreign import check_share
from ttabench.data.own.doubts import warn_of_doubts
from ttabench.errors import UserError, counted, unknown
from ttabench.method import Method
from ttabench.method.settings import configured, parse_values
from ttabench.method.spelling import parse_method
from ttabench.models.model import Model
from ttabench.models.resolve import resolve_model
from ttabench.protocol import Protocol
from ttabench.registry import method
from ttabench.subset_names import SUBSETS, drawn_from, split_subset
from ttabench.sweep.exclusions import Exclusion, exclusion
from ttabench.sweep.grid import Grid, Rule
from ttabench.sweep.named_method import named_method
from ttabench.sweep.pace import BASELINE, OFFLINE
from ttabench.sweep.rules import dataset_names, method_names, of_method, plain_grids
from ttabench.sweep.settings import parse_settings
from ttabench.sweep.shifts import Shifts, find_shifts, split_baseline
from ttabench.system.files import user_path


@dataclass(frozen=True)
class MethodChoice:
    """A method, the values of the settings that the user gives it, and the grid as it holds for it."""

    cls: type[Method[Any]]
    given: dict[str, Scalar]
    grid: Grid


@dataclass(frozen=True)
class Part:
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

    parts: tuple[Part, ...]
    models: tuple[Model, ...]
    exclude: tuple[Rule, ...] = ()


def resolve(grid: Grid) -> Sweep:
    """Look up every name and check every setting; nothing is fetched or trained. Raises UserError."""
    known: dict[tuple[str, ...], Model] = {}
    parts = tuple(part for plain in plain_grids(grid) for part in _parts(plain, known))
    check_names(model.measured for model in known.values())
    used = {choice.cls.name for part in parts for choice in part.methods}
    if other := next((name for name in grid.per_method if name not in used), ""):
        raise unknown("method in a rule", other, sorted(used))
    return Sweep(parts, tuple(known.values()), grid.exclude)


def _parts(grid: Grid, known: dict[tuple[str, ...], Model]) -> list[Part]:
    """A plain grid with its names resolved; `known` models are used again, and new ones are added."""
    methods = tuple(choose_methods(grid))
    _check_methods(grid, methods)
    return [_part(name, grid, methods, known) for name in grid.datasets]


def _part(
    name: str, grid: Grid, methods: tuple[MethodChoice, ...], known: dict[tuple[str, ...], Model]
) -> Part:
    """The part of a plain grid that is on one dataset."""
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
    return Part(methods, ours, shifts, exclude, models.get(shifts.baseline))


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
            f"{plain}: the folder of corrupted images is not whole; measured on the {data.shifted_count():,} "
            f"images of each corruption that are in it, as {data.name}.", stacklevel=2,
        )  # fmt: skip


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


def _check_methods(grid: Grid, methods: Sequence[MethodChoice]) -> None:
    """Raises UserError for a setting outside of its range, and for a protocol that no method supports.

    Warns about methods that do not use the epochs.
    """
    modes = set()
    online: list[str] = []
    for choice in methods:
        _check_protocol(choice.grid)
        configured(choice.cls, choice.given, {})
        mode = choice.cls.mode if choice.grid.mode == "native" else choice.grid.mode
        if mode == "online" and grid.per_method.get(choice.cls.name, {}).get("epochs"):
            raise UserError(
                f"per_method.{choice.cls.name}: epochs belong to offline mode, and it runs online; "
                'add mode = "offline" or leave epochs out.'
            )
        if mode == "offline":
            _check_minibatch(choice)
        modes.add(mode)
        if mode == "online" and choice.cls.name not in (BASELINE, *online):
            online.append(choice.cls.name)
    if grid.epochs and "offline" not in modes:
        raise UserError(
            f"--epochs {grid.epochs}: no method of this sweep runs offline, and online every image is seen "
            "once; add --mode offline or leave --epochs out."
        )
    if grid.epochs and online:
        warnings.warn(
            f"--epochs {grid.epochs} is for offline methods; here these run online, and every image is seen "
            f"once: {', '.join(online)}.", stacklevel=2,
        )  # fmt: skip


def _check_minibatch(choice: MethodChoice) -> None:
    """Raises UserError for more images per update than a batch has: updates never span two batches."""
    wanted, batch = choice.given.get("minibatch", 0), choice.grid.batch_size or choice.cls.batch_size
    if isinstance(wanted, int) and wanted > batch:
        raise UserError(
            f"{choice.cls.name}.minibatch={wanted}: its batches have {batch} images, and an update has no "
            f"more; expected at most {batch}, or also per_method.{choice.cls.name}.batch_size = {wanted} in "
            f"a sweep file (for all methods: --batch-size {wanted})."
        )


def choose_methods(grid: Grid) -> Iterator[MethodChoice]:
    """Every method × its settings. The baseline comes first, even if it is not given: tables need it."""
    chosen = [parse_method(text) for text in grid.methods]
    names = [name for name, _ in chosen]
    crossed = parse_settings(grid.settings, names)
    if BASELINE not in names:
        chosen.insert(0, (BASELINE, {}))
    for name, given in chosen:
        axes = crossed.get(name, {})
        if both := given.keys() & axes.keys():
            key = min(both)
            raise UserError(
                f"{name}.{key} is set twice: {name}[{key}={given[key]}] and --set {name}.{key}=…; keep one."
            )
        for values in itertools.product(*axes.values()):
            settings = {**given, **dict(zip(axes, values, strict=True))}
            cls = method(name)
            yield MethodChoice(cls, parse_values(cls, settings), of_method(grid, name))


def _check_protocol(grid: Grid) -> None:
    """Raises UserError for a protocol that no method supports; `plan` checks again for each method."""
    try:
        Protocol(
            batch_size=grid.batch_size or 1, order=grid.order, reset=grid.reset_in_force,
            contamination=grid.contamination, held_out=grid.held_out, limit=grid.limit,
            precision=grid.precision, stream=split_baseline(grid.stream)[0], pace=grid.pace,
        )  # fmt: skip
    except ValueError as problem:
        raise UserError(f"{problem}.") from None
    if grid.mode == "offline" and (grid.stream or grid.pace):
        raise UserError(
            f"--mode offline: {OFFLINE}, which {'--stream' if grid.stream else '--pace'} does not allow; "
            "leave --mode out, or name online."
        )
    if grid.pace and grid.reset_in_force == "continual" and not grid.stream:
        raise UserError(
            "--pace with --reset continual: each corruption would count its batches anew; for all of them as "
            "one stream, use --stream 'recurring(1)' in place of --reset continual."
        )
    if grid.pace_ratio and not grid.pace:
        raise UserError("--pace-ratio belongs to --pace; add --pace 1, or leave it out.")
    bases = method_names(grid.methods)
    for name, ratio in grid.pace_ratio:
        if parse_method(name)[0] not in bases:
            raise unknown("method of --pace-ratio", name, list(dict.fromkeys([*grid.methods, *bases])))
        if named_method(name).name == BASELINE and ratio != 1:
            raise UserError(f"--pace-ratio {name}={ratio:g}: others are compared with it, so its ratio is 1.")
