"""The cells of a resolved sweep."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from ttabench.cell import Cell
from ttabench.classifier import Architecture
from ttabench.corruptions.names import CORRUPTIONS, NO_SEVERITY
from ttabench.errors import UserError
from ttabench.method_settings import label, make_config
from ttabench.models.model import Model
from ttabench.progress import OnProgress, silent
from ttabench.protocol import Protocol, StreamSpec
from ttabench.sweep.grid import Grid
from ttabench.sweep.resolve import (
    BASELINE,
    OFFLINE,
    MethodChoice,
    Sweep,
    corruptions_of,
    severities_of,
    stream_corruptions,
)

RatioOf = Callable[[Cell], float]
"""The compute ratio of a cell's method on its classifier, for a protocol with a pace."""


@dataclass(frozen=True)
class Source:
    """The facts about a source classifier that planning needs.

    name         of the model.
    fingerprint  SHA-256 of what the dataset is made from.
    checkpoint   SHA-256 of the weights, "" before training.
    corruptions  the corruptions of the dataset.
    """

    name: str
    dataset: str
    num_classes: int
    fingerprint: str
    architecture: Architecture
    checkpoint: str
    corruptions: tuple[str, ...] = CORRUPTIONS


@dataclass(frozen=True)
class Planned:
    """A cell, and why it cannot be run ("" if it can)."""

    cell: Cell
    unmet: str


def find_sources(models: Sequence[Model], device: str, progress: OnProgress = silent) -> list[Source]:
    """The source classifier of every model. Those trained elsewhere are downloaded and measured.

    Warns if a clean accuracy is too low or differs from the claimed one. Raises UserError without weights.
    """
    fingerprints: dict[str, str] = {}
    sources = []
    for model in models:
        data = model.dataset
        if data.name not in fingerprints:
            fingerprints[data.name] = data.fingerprint()
        if model.ready:
            loaded = model.load(device, progress)
            classifier, checkpoint = loaded.classifier, loaded.sha256
            if text := loaded.note.get("warning"):
                warnings.warn(f"{model}: {text}", stacklevel=2)
        else:
            classifier, checkpoint = model.build(), ""
        sources.append(
            Source(
                name=model.name, dataset=data.name, num_classes=data.num_classes,
                fingerprint=fingerprints[data.name], architecture=classifier.architecture(),
                checkpoint=checkpoint, corruptions=data.corruptions,
            )
        )  # fmt: skip
    return sources


def plan(sweep: Sweep, sources: Sequence[Source], ratio_of: RatioOf = lambda cell: 1.0) -> list[Planned]:
    """All cells of a sweep, ordered so that one classifier's cells stay together.

    ratio_of   asked once per method and classifier, if the sweep has a pace. Source has ratio 1.
    """
    planned: list[Planned] = []
    seen: set[str] = set()
    for source, choice in itertools.product(sources, sweep.methods):
        template, unmet = _template(sweep.grid, source, choice)
        if sweep.grid.pace and not unmet and choice.cls.name != BASELINE:
            template = _paced(template, ratio_of)
        for cell in _cells(sweep.grid, source, template):
            if cell.cell_id not in seen:  # tent and tent[norms=all] are the same on a transformer
                seen.add(cell.cell_id)
                planned.append(Planned(cell, unmet))
    return planned


def _template(grid: Grid, source: Source, choice: MethodChoice) -> tuple[Cell, str]:
    """A cell of a method on a source classifier, and why it cannot be run ("" if it can)."""
    cls = choice.cls
    of_dataset = dict(cls.for_dataset(source.dataset, source.num_classes))
    of_architecture = dict(cls.for_architecture(source.architecture))
    config = make_config(cls, choice.given, {**of_dataset, **of_architecture})
    cell = Cell(
        method=cls.name, config=tuple(sorted(asdict(config).items())),
        label=label(cls.name, config, make_config(cls, {}, of_dataset)),
        arch=source.name, checkpoint=source.checkpoint,
        dataset=source.dataset, fingerprint=source.fingerprint,
        corruption="", severity=1, seed=0, protocol=_protocol(grid, choice, source),
    )  # fmt: skip
    unmet = cls.needs_of(config).unmet(source.architecture)
    if cell.protocol.mode == "offline" and (grid.stream or grid.pace):
        unmet = unmet or OFFLINE
    return cell, unmet


def _paced(template: Cell, ratio_of: RatioOf) -> Cell:
    ratio = float(f"{ratio_of(template):.3g}")
    return replace(template, protocol=replace(template.protocol, pace_ratio=ratio))


def _cells(grid: Grid, source: Source, template: Cell) -> Iterator[Cell]:
    if grid.stream:
        kind = template.protocol.spec.kind
        for seed, severity in itertools.product(
            grid.seeds, grid.severities if kind == "recurring" else (NO_SEVERITY,)
        ):
            yield replace(template, corruption=kind, severity=severity, seed=seed)
        return
    corruptions = corruptions_of(source.corruptions, grid.corruptions)
    for seed, severity in itertools.product(grid.seeds, severities_of(corruptions, grid.severities)):
        history: tuple[str, ...] = ()
        for corruption in corruptions:
            yield replace(template, corruption=corruption, severity=severity, seed=seed, history=history)
            if grid.reset == "continual":
                history = (*history, f"{corruption}-{severity}")


def _stream(grid: Grid, source: Source) -> str:
    """The stream of a protocol. It names its corruptions, if they are not the fifteen."""
    if not grid.stream:
        return ""
    corruptions = stream_corruptions(source.corruptions, grid)
    named = () if corruptions == CORRUPTIONS else corruptions
    return str(replace(StreamSpec.parse(grid.stream), corruptions=named))


def _protocol(grid: Grid, choice: MethodChoice, source: Source) -> Protocol:
    mode = choice.cls.mode if grid.mode == "native" else grid.mode
    try:
        return Protocol(
            mode=mode,
            batch_size=grid.batch_size or choice.cls.native_batch_size(source.num_classes, mode),
            epochs=grid.epochs if mode == "offline" else 0,
            order=grid.order,
            reset=grid.reset,
            contamination=grid.contamination,
            held_out=grid.held_out,
            limit=grid.limit,
            precision=grid.precision,
            stream=_stream(grid, source),
            pace=grid.pace,
        )
    except ValueError as problem:
        raise UserError(f"{choice.cls.name}: {problem}.") from None
