"""Resolve the names in a grid to objects: methods with settings, datasets, and models for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ttabench.contamination import foreign_images
from ttabench.corruptions.names import CORRUPTIONS, IMAGE_SIZES, KNOWN_CORRUPTIONS, NATURAL, NO_SEVERITY
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.dataset import Dataset
from ttabench.data.mixed import MIXED
from ttabench.errors import UserError, unknown
from ttabench.method import Method
from ttabench.method_settings import make_config, parse_settings
from ttabench.method_texts import parse_method
from ttabench.models.model import Model
from ttabench.models.resolve import resolve_model
from ttabench.protocol import Protocol, StreamSpec, parse_call
from ttabench.registry import method
from ttabench.sweep.grid import Grid
from ttabench.sweep.rules import of_method, plain_grids

BASELINE = "source"
OFFLINE = "an offline method sees all images before the first is scored"


@dataclass(frozen=True)
class MethodChoice:
    """A method and the settings that the user gives it, as text."""

    cls: type[Method[Any]]
    given: dict[str, str]


@dataclass(frozen=True)
class Part:
    """A part of a sweep without gaps: `methods` × `models`, measured as the plain `grid` says."""

    grid: Grid
    methods: tuple[MethodChoice, ...]
    models: tuple[Model, ...]


@dataclass(frozen=True)
class Sweep:
    """A grid whose names are resolved. `models` are those of all parts, each once."""

    parts: tuple[Part, ...]
    models: tuple[Model, ...]


def resolve(grid: Grid) -> Sweep:
    """Look up every name and check every setting; nothing is fetched or trained. Raises UserError."""
    known: dict[tuple[str, ...], Model] = {}
    parts = tuple(_part(plain, known) for plain in plain_grids(grid))
    return Sweep(parts, tuple(known.values()))


def _part(grid: Grid, known: dict[tuple[str, ...], Model]) -> Part:
    """A plain grid with its names resolved; `known` models are used again, and new ones are added."""
    methods = tuple(choose_methods(grid))
    for choice in methods:
        _check_protocol(of_method(grid, choice.cls.name))
        make_config(choice.cls, choice.given, {})
    _check_mode(grid, methods)
    datasets = {name: _checked(open_dataset(name), grid) for name in grid.datasets}
    checkpoint = Path(grid.checkpoint) if grid.checkpoint else None
    models = []
    for (name, data), arch in itertools.product(datasets.items(), grid.archs):
        key = (name, arch, grid.checkpoint, grid.normalize)
        if key not in known:
            known[key] = resolve_model(arch, data, checkpoint=checkpoint, normalize=grid.normalize)
        models.append(known[key])
    return Part(_with_dataset_names(grid, datasets), methods, tuple(models))


def _with_dataset_names(grid: Grid, datasets: Mapping[str, Dataset]) -> Grid:
    """`grid` with exclude rules that name datasets as results do; the user may have given a path."""
    names = {given: data.name for given, data in datasets.items()}
    rules = [
        {**rule, "datasets": tuple(names.get(name, name) for name in rule["datasets"])}
        if "datasets" in rule
        else rule
        for rule in grid.exclude
    ]
    return replace(grid, exclude=tuple(rules))


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
            yield MethodChoice(method(name), {**given, **dict(zip(axes, values, strict=True))})


def _check_protocol(grid: Grid) -> None:
    """Raises UserError for a protocol that no method supports; `plan` checks again for each method."""
    try:
        Protocol(
            batch_size=grid.batch_size or 1, order=grid.order, reset=grid.reset,
            contamination=grid.contamination, held_out=grid.held_out, limit=grid.limit,
            precision=grid.precision, stream=grid.stream, pace=grid.pace,
        )  # fmt: skip
    except ValueError as problem:
        raise UserError(f"{problem}.") from None
    if grid.stream:
        _check_stream(grid)
    if grid.mode == "offline" and (grid.stream or grid.pace):
        raise UserError(
            f"--mode offline: {OFFLINE}, which {'--stream' if grid.stream else '--pace'} does not allow; "
            "leave --mode out, or name online."
        )
    if grid.pace_ratio and not grid.pace:
        raise UserError("--pace-ratio belongs to --pace; add --pace 1, or leave it out.")
    bases = {parse_method(text)[0] for text in grid.methods}
    for name, _ in grid.pace_ratio:
        if name not in grid.methods and name not in bases:
            raise unknown("method of --pace-ratio", name, [*grid.methods, *bases])


def _check_stream(grid: Grid) -> None:
    spec = StreamSpec.parse(grid.stream)
    for name in spec.corruptions:
        if name not in KNOWN_CORRUPTIONS:
            raise unknown("corruption of --stream", name, KNOWN_CORRUPTIONS)
    if spec.corruptions and grid.corruptions != CORRUPTIONS:
        raise UserError("--stream and --corruptions both name corruptions; keep one.")
    if MIXED in grid.corruptions or NATURAL in grid.corruptions:
        raise UserError(f"--stream {spec.kind} needs corruptions by name; leave out {MIXED} and {NATURAL}.")
    if spec.kind == "ccc" and len(spec.corruptions or grid.corruptions) < 2:
        raise UserError("--stream ccc puts two corruptions on each image; name at least two.")
    if spec.kind != "recurring" and grid.severities != (5,):
        raise UserError(f"--stream {spec.kind} goes through all severities; leave --severities out.")


def _check_mode(grid: Grid, methods: tuple[MethodChoice, ...]) -> None:
    grids = [(of_method(grid, choice.cls.name), choice.cls.mode) for choice in methods]
    modes = {own if grid.mode == "native" else grid.mode for grid, own in grids}
    if grid.epochs and "offline" not in modes:
        raise UserError(
            f"--epochs {grid.epochs}: no method of this sweep runs offline, and online every image is seen "
            "once; add --mode offline or leave --epochs out."
        )


def corruptions_of(has: Sequence[str], asked: tuple[str, ...]) -> tuple[str, ...]:
    """The corruptions of a sweep for a dataset that `has` these corruptions.

    They are the `asked` ones. If these are the default, the fifteen, and the dataset has none of them, all of
    its corruptions are used.
    """
    return tuple(has) if asked == CORRUPTIONS and not set(has) & set(CORRUPTIONS) else asked


def stream_corruptions(has: Sequence[str], grid: Grid) -> tuple[str, ...]:
    """The corruptions of the long stream of a grid, for a dataset that `has` these corruptions."""
    return StreamSpec.parse(grid.stream).corruptions or corruptions_of(has, grid.corruptions)


def severities_of(corruptions: tuple[str, ...], asked: tuple[int, ...]) -> tuple[int, ...]:
    """The severities of a sweep for a dataset: only `NO_SEVERITY` for a natural shift."""
    return (NO_SEVERITY,) if corruptions == (NATURAL,) else asked


def _checked(data: Dataset, grid: Grid) -> Dataset:
    """`data`. Raises UserError if it lacks a corruption or images that the grid needs."""
    if grid.stream:
        _check_stream_of(data, grid)
    for corruption in () if grid.stream else corruptions_of(data.corruptions, grid.corruptions):
        if corruption == MIXED and (missing := [c for c in CORRUPTIONS if c not in data.corruptions]):
            raise UserError(
                f"mixed interleaves the fifteen corruptions, and {data.name} has no {missing[0]}; "
                "leave out the dataset, or mixed."
            )
        if corruption not in (*data.corruptions, MIXED):
            raise unknown(f"corruption of {data.name}", corruption, data.corruptions)
    if grid.limit and grid.limit > (count := data.shifted_count()):
        raise UserError(
            f"--limit {grid.limit}: {data.name} has {count} test images; name fewer, or leave it out."
        )
    if parse_call(grid.contamination):
        foreign_images(grid.contamination, data.test().images[:0], seed=0)
    return data


def _check_stream_of(data: Dataset, grid: Grid) -> None:
    """Raise UserError if a dataset cannot have the long stream of a grid."""
    spec = StreamSpec.parse(grid.stream)
    corruptions = stream_corruptions(data.corruptions, grid)
    if corruptions == (NATURAL,):
        raise UserError(f"--stream {spec.kind}: {data.name} is a natural shift and has no corruptions.")
    if spec.kind == "ccc":
        if data.image_size not in IMAGE_SIZES:
            sizes = " or ".join(map(str, IMAGE_SIZES))
            raise UserError(
                f"--stream ccc needs images of {sizes} pixels; those of {data.name} have {data.image_size}."
            )
        return
    for corruption in corruptions:
        if corruption not in data.corruptions:
            raise unknown(f"corruption of {data.name}", corruption, data.corruptions)
