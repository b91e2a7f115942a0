"""From what a user asks for to the cells of a sweep."""

from __future__ import annotations

import itertools
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ttabench.cell import Cell, Scalar
from ttabench.errors import UserError, unknown
from ttabench.method import Architecture, Method
from ttabench.protocol import Protocol
from ttabench.ranges import check_ranges
from ttabench.registry import method

BASELINE = "source"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A sweep as asked for; every tuple is an axis.

    methods   names, perhaps with settings: ``tent`` or ``tent[norms=all,lr=0.001]``.
    settings  ``method.key=value[,value…]``; several values, and several settings, cross.
    mode      native (each method as its paper runs it) | online | offline.
    batch_size, epochs   0 = each method's own.
    checkpoint, normalize   a weights file for the architecture, and what it normalises with.
    """

    methods: tuple[str, ...]
    archs: tuple[str, ...]
    datasets: tuple[str, ...] = ("digits-c",)
    corruptions: tuple[str, ...]
    severities: tuple[int, ...] = (5,)
    seeds: tuple[int, ...] = (0,)
    settings: tuple[str, ...] = ()
    mode: str = "native"
    reset: str = "per_corruption"
    batch_size: int = 0
    epochs: int = 0
    order: str = "iid"
    contamination: str = ""
    held_out: float = 0.0
    limit: int = 0
    precision: str = "float32"
    checkpoint: str = ""
    normalize: str = ""

    def __post_init__(self) -> None:
        if self.checkpoint and len(self.archs) > 1:
            raise UserError(
                f"a checkpoint is of one architecture, but {len(self.archs)} are named; name one."
            )
        if self.mode not in ("native", "online", "offline"):
            raise unknown("mode", self.mode, ("native", "online", "offline"))
        for severity in self.severities:
            if not 1 <= severity <= 5:
                raise UserError(f"severity {severity} does not exist; severities are 1 to 5.")
        for seed in self.seeds:
            if not 0 <= seed < 2**63:
                raise UserError(f"seed {seed} does not exist; seeds are 0 to 2⁶³ − 1.")
        for axis in ("methods", "archs", "datasets", "corruptions", "severities", "seeds"):
            values = getattr(self, axis)
            if not values:
                raise UserError(f"no {axis} were given; name at least one.")
            if len(set(values)) != len(values):
                twice = next(v for v in values if values.count(v) > 1)
                raise UserError(f"{axis} names '{twice}' twice; name each once.")

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Target:
    """A classifier on a dataset, as far as planning must know it."""

    arch: str
    architecture: Architecture
    checkpoint: str
    dataset: str
    fingerprint: str
    num_classes: int


@dataclass(frozen=True)
class Planned:
    """A cell, and why it cannot be run ("" if it can)."""

    cell: Cell
    unmet: str


def split_list(text: str) -> tuple[str, ...]:
    """Split at commas outside brackets: ``a,b[x=1,y=2]`` → ``("a", "b[x=1,y=2]")``."""
    return tuple(part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip())


def parse_method(text: str) -> tuple[str, dict[str, str]]:
    """``tent[norms=all]`` → ``("tent", {"norms": "all"})``. Raises UserError."""
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", text)
    if not match:
        raise UserError(f"method '{text}' is not of the form name or name[key=value,…].")
    settings: dict[str, str] = {}
    for part in filter(None, (match[2] or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"'{part}' in '{text}' is not of the form key=value.")
        settings[key.strip()] = value.strip()
    return match[1].strip(), settings


def parse_settings(settings: Sequence[str], chosen: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """``tent.lr=1e-3,1e-4`` → ``{"tent": {"lr": ["1e-3", "1e-4"]}}``. Raises UserError."""
    parsed: dict[str, dict[str, list[str]]] = {}
    for text in settings:
        match = re.fullmatch(r"([^.=]+)\.([^.=]+)=(.*)", text)
        if not match or not match[3]:
            raise UserError(f"--set {text} is not of the form method.key=value[,value…].")
        name, key, values = match[1].strip(), match[2].strip(), match[3].split(",")
        if name not in chosen:
            method(name)  # raises for one that nobody knows
            raise UserError(f"--set {text} is about '{name}', which is not among the methods of this sweep.")
        parsed.setdefault(name, {})[key] = [v.strip() for v in values]
    return parsed


def parse_value(name: str, key: str, text: str, kind: Any) -> Scalar:
    """`text` as the type a Config field declares. Raises UserError."""
    if typing.get_origin(kind) is typing.Literal:
        choices = [str(c) for c in typing.get_args(kind)]
        if text not in choices:
            raise unknown(f"value of {name}.{key}", text, choices)
        return text
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        options = typing.get_args(kind)
        if type(None) in options and text.lower() == "none":
            return None
        kind = next(option for option in options if option is not type(None))
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UserError(f"{name}.{key}={text}: expected true or false.")
    if kind in (int, float):
        try:
            value: float = kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise UserError(f"{name}.{key}={text}: expected {what}.") from None
        if not math.isfinite(value):
            raise UserError(f"{name}.{key}={text}: expected a finite number.")
        return value
    return text


def make_config(cls: type[Method[Any]], values: Mapping[str, str], base: Mapping[str, Any]) -> Any:
    """A method's Config from `base` values and a user's texts. Raises UserError."""
    hints = typing.get_type_hints(cls.Config)
    kinds = {f.name: hints[f.name] for f in fields(cls.Config)}
    for key in values:
        if key not in kinds:
            raise unknown(f"setting of {cls.name}", key, kinds)
    given = {k: parse_value(cls.name, k, v, kinds[k]) for k, v in values.items()}
    try:
        config = cls.Config(**{**base, **given})
        check_ranges(config)
    except ValueError as problem:
        raise UserError(f"{cls.name}: {problem}.") from None
    return config


def variants(grid: Grid) -> Iterator[tuple[type[Method[Any]], dict[str, str]]]:
    """Every method × its settings. The baseline comes first, asked for or not: tables need it."""
    asked = [parse_method(text) for text in grid.methods]
    names = [name for name, _ in asked]
    crossed = parse_settings(grid.settings, names)
    if BASELINE not in names:
        asked.insert(0, (BASELINE, {}))
    for name, own in asked:
        cls = method(name)
        axes = {k: v for k, v in crossed.get(name, {}).items() if k not in own}
        for values in itertools.product(*axes.values()):
            yield cls, {**own, **dict(zip(axes, values, strict=True))}


def plan(grid: Grid, targets: Sequence[Target]) -> list[Planned]:
    """All cells of a sweep, ordered so that one classifier's cells stay together."""
    planned: list[Planned] = []
    chosen = list(variants(grid))
    seen: set[str] = set()
    for target in targets:
        for cls, values in chosen:
            silent = dict(cls.for_dataset(target.dataset, target.num_classes))
            shown = dict(cls.for_architecture(target.architecture))
            config = make_config(cls, values, {**silent, **shown})
            plain = make_config(cls, {}, silent)
            label = _label(cls.name, config, plain)
            unmet = cls.needs_of(config).unmet(target.architecture)
            template = Cell(
                method=cls.name, config=tuple(sorted(asdict(config).items())), label=label,
                arch=target.arch, checkpoint=target.checkpoint,
                dataset=target.dataset, fingerprint=target.fingerprint,
                corruption="", severity=1, seed=0, protocol=_protocol(grid, cls, target.num_classes),
            )  # fmt: skip
            for cell in _cells(grid, template):
                if cell.cell_id not in seen:  # tent and tent[norms=all] are one on a transformer
                    seen.add(cell.cell_id)
                    planned.append(Planned(cell, unmet))
    return planned


def _cells(grid: Grid, template: Cell) -> Iterator[Cell]:
    for seed, severity in itertools.product(grid.seeds, grid.severities):
        history: tuple[str, ...] = ()
        for corruption in grid.corruptions:
            yield replace(template, corruption=corruption, severity=severity, seed=seed, history=history)
            if grid.reset == "continual":
                history = (*history, f"{corruption}-{severity}")


def _label(name: str, config: Any, plain: Any) -> str:
    differs = [
        f"{f.name}={_spell(getattr(config, f.name))}"
        for f in fields(config)
        if getattr(config, f.name) != getattr(plain, f.name)
    ]
    return f"{name}[{','.join(differs)}]" if differs else name


def _spell(value: Scalar) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _protocol(grid: Grid, cls: type[Method[Any]], num_classes: int) -> Protocol:
    mode = cls.mode if grid.mode == "native" else grid.mode
    try:
        return Protocol(
            mode=mode,
            batch_size=grid.batch_size or cls.native_batch_size(num_classes, mode),
            epochs=grid.epochs if mode == "offline" else 0,
            order=grid.order,
            reset=grid.reset,
            contamination=grid.contamination,
            held_out=grid.held_out,
            limit=grid.limit,
            precision=grid.precision,
        )
    except ValueError as problem:
        raise UserError(f"{cls.name}: {problem}.") from None
