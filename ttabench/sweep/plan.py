"""The cells of a resolved sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.cell.subset_names import split_subset
from ttabench.classifier import Architecture, Classifier
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.own.set_checks import largest_set
from ttabench.data.published.own_head import settled_classes
from ttabench.errors import UserError, exit_is_an_error
from ttabench.method.settings import configured, label
from ttabench.models.model import Model
from ttabench.models.soundness.gradient_flow import gradient_problem
from ttabench.run.gpu import free_gpu_memory
from ttabench.store.record_values import unreadable
from ttabench.sweep.batch_rate import RATE, settings_for_batch
from ttabench.sweep.chosen_methods import MethodChoice
from ttabench.sweep.exclude_rules import matching, warn_of_idle
from ttabench.sweep.grid import Grid, Rule
from ttabench.sweep.named_method import check_ratios, given_ratio
from ttabench.sweep.pace import BASELINE, OFFLINE, no_pace
from ttabench.sweep.resolve import Sweep, SweepPart
from ttabench.sweep.shifts import Shifts
from ttabench.system.malloc import give_back, keep_freed_memory
from ttabench.system.progress import OnProgress, silent

NOT_RESET = f"{OFFLINE}, so it cannot be reset during the stream"

RatioOf = Callable[[Cell], float]
"""The compute ratio of a cell's method on its classifier, for a protocol with a pace."""


@dataclass(frozen=True)
class SourceFacts:
    """The facts about a source classifier that planning needs.

    name         of the model.
    fingerprint  SHA-256 of what the dataset is made from.
    num_classes  those that methods choose their settings by.
    checkpoint   SHA-256 of the weights, "" before training.
    trains       whether the dataset has training images, which are the source images of methods too.
    no_gradient  why methods that need gradients cannot run on it, "" if they can.
    """

    name: str
    dataset: str
    num_classes: int
    fingerprint: str
    architecture: Architecture
    checkpoint: str
    trains: bool = True
    no_gradient: str = ""


@dataclass(frozen=True)
class Planned:
    """A cell, and why it cannot be run ("" if it can).

    fixed   the weights and the compute ratio, where the user gave them: cells that differ in them are
            different ones, and the later one does not replace the earlier.
    """

    cell: Cell
    unmet: str
    fixed: tuple[str, ...] = ()


def find_sources(
    models: Sequence[Model], device: str, progress: OnProgress = silent, *, measure: bool = True
) -> list[SourceFacts]:
    """The source classifier of every model. Those trained elsewhere are downloaded, and measured on `device`.

    measure   False: nothing is measured, for a dry run.

    Warns as :meth:`Model.load_with_warnings` does. Raises UserError without weights.
    """
    keep_freed_memory()  # networks are run on many clean images
    fingerprints: dict[str, str] = {}
    sources = []
    for model in models:
        measured = model.measured
        if measured.name not in fingerprints:
            fingerprints[measured.name] = measured.fingerprint()
        if model.ready:
            loaded = model.load_with_warnings(device, progress, measure=measure)
            classifier, checkpoint = loaded.classifier, loaded.sha256
        else:
            classifier, checkpoint = model.build(), ""
        sources.append(source_of(model, classifier, checkpoint, fingerprints[measured.name]))
    free_gpu_memory(device)  # for the workers
    give_back()
    return sources


def source_of(model: Model, classifier: Classifier, checkpoint: str, fingerprint: str) -> SourceFacts:
    """The facts about `model`, whose network is `classifier`; for the other two see :class:`SourceFacts`."""
    data = model.dataset
    return SourceFacts(
        name=model.name, dataset=model.measured.name, num_classes=settled_classes(data),
        fingerprint=fingerprint, architecture=classifier.architecture(), checkpoint=checkpoint,
        trains=not isinstance(data, OwnDataset) or data.has_train(),
        no_gradient="" if model.trainable else gradient_problem(classifier, data.image_size),
    )  # fmt: skip


def plan(sweep: Sweep, sources: Sequence[SourceFacts], ratio_of: RatioOf = lambda cell: 1.0) -> list[Planned]:
    """All cells of a sweep, ordered so that one classifier's cells stay together.

    sources    of the models of the sweep, in their order.
    ratio_of   asked once per method and classifier, if the sweep has a pace and the user gives no ratio.
               Source has ratio 1.

    Raises UserError for rules and compute ratios that do not fit the cells, and warns of exclude rules that
    leave out none.
    """
    planned: list[Planned] = []
    seen: set[str] = set()
    excluding: list[Rule] = []
    by_model = dict(zip(map(id, sweep.models), sources, strict=True))
    for model, source in zip(sweep.models, sources, strict=True):
        count = cache(lambda model=model: largest_set(model.measured))
        for part in sweep.parts:
            if not any(model is one for one in part.models):
                continue
            keeps = by_model[id(part.baseline)] if part.baseline else None
            baseline = _baseline(keeps) if keeps else ""
            for choice in part.methods:
                limited = _limited(choice, count)
                for item in _of_method(source, part, limited, ratio_of, baseline, excluding):
                    if item.cell.cell_id not in seen:  # tent is tent[norms=all] on a transformer
                        seen.add(item.cell.cell_id)
                        planned.append(item)
    if len(sweep.parts) > 1:
        _check_sequences(planned)
    warn_of_idle(sweep.exclude, excluding)
    choices = [choice for part in sweep.parts for choice in part.methods]
    given = {pair: None for choice in choices for pair in choice.grid.pace_ratio}
    check_ratios(given, (item.cell for item in planned) if given else ())
    return planned


def _limited(choice: MethodChoice, count: Callable[[], int]) -> MethodChoice:
    """Without a limit that leaves out no image: these cells are those of all images.

    count   the images of the largest corrupted set; asked only where there is a limit.
    """
    limit = choice.grid.limit
    return replace(choice, grid=replace(choice.grid, limit=0)) if limit and limit >= count() else choice


def _baseline(source: SourceFacts) -> str:
    from ttabench.run.stream_of_cell import baseline_of  # imports all corruption functions, which takes long

    return baseline_of(source.name, source.checkpoint)


def sequence(cell: Cell) -> Hashable:
    """Cells that have to run one after the other share it; otherwise it is the cell's own.

    A long stream is one cell: it begins with a method that has seen nothing, whatever ran before.
    """
    if cell.protocol.reset == "continual" and not cell.protocol.stream:
        weights, data = (cell.arch, cell.checkpoint), (cell.dataset, cell.fingerprint)
        return cell.method, cell.config, weights, data, cell.severity, cell.seed, cell.protocol
    return cell.cell_id


def _check_sequences(planned: Sequence[Planned]) -> None:
    """Raises UserError if two rules give one method two different continual runs over the same images."""
    seen: set[tuple[Hashable, int]] = set()
    for cell in (item.cell for item in planned):
        if cell.protocol.reset != "continual" or cell.protocol.stream:
            continue
        at = sequence(cell), len(cell.history)
        if at in seen:
            raise UserError(
                f"{cell} is in two continual runs of this sweep that differ in their corruptions; "
                "name all corruptions of a continual run in one place."
            )
        seen.add(at)


def _of_method(
    source: SourceFacts,
    part: SweepPart,
    choice: MethodChoice,
    ratio_of: RatioOf,
    baseline: str,
    excluding: list[Rule],
) -> Iterator[Planned]:
    """The cells of a method on a source classifier, without those that an exclude rule leaves out.

    Such rules are added to `excluding`, once.
    """
    template, unmet = _template(source, choice, part.shifts)
    template = replace(template, baseline=baseline)
    if choice.grid.pace and not unmet and choice.cls.name != BASELINE:
        given = given_ratio(choice.grid.pace_ratio, template)
        ratio = ratio_of(template) if given is None else given
        protocol = replace(template.protocol, pace_ratio=ratio)
        template = replace(template, protocol=protocol)
        unmet = no_pace(choice.cls, protocol)
    fixed = _fixed(template, choice.grid)
    for corruption in part.shifts.cells:
        cell = replace(template, corruption=corruption)
        if why := unreadable(cell.to_json()):
            raise UserError(
                f"results of {cell} could not be read again, as {why}; rename it, or choose another setting."
            )
    for seed, severity in itertools.product(choice.grid.seeds, part.shifts.severities):
        history: tuple[str, ...] = ()
        for corruption in part.shifts.cells:
            cell = replace(template, corruption=corruption, severity=severity, seed=seed, history=history)
            if rules := [*matching(part.exclude, cell)]:
                excluding += [rule for rule in rules if rule not in excluding]
                continue
            yield Planned(cell, unmet, fixed)
            if choice.grid.reset_in_force == "continual":
                history = (*history, f"{corruption}-{severity}")


def _template(source: SourceFacts, choice: MethodChoice, shifts: Shifts) -> tuple[Cell, str]:
    """A cell of a method on a source classifier, and why it cannot be run ("" if it can)."""
    cls, protocol = choice.cls, _protocol(choice, source.num_classes, shifts)
    unsupported = NOT_RESET if _cannot_be_reset(choice) else ""
    if (shifts.stream or choice.grid.pace) and (unsupported or protocol.mode == "offline"):
        unsupported = OFFLINE
    config, name, lacks = _configured(source, choice, protocol)
    cell = Cell(
        method=cls.name, config=tuple(sorted(asdict(config).items())),
        label=name,
        arch=source.name, checkpoint=source.checkpoint,
        dataset=source.dataset, fingerprint=source.fingerprint,
        corruption="", severity=1, seed=0, protocol=protocol, foreign=shifts.foreign,
        image_files=shifts.image_files,
    )  # fmt: skip
    return cell, lacks or unsupported


def _configured(source: SourceFacts, choice: MethodChoice, protocol: Protocol) -> tuple[Any, str, str]:
    """The settings of a method on a source classifier, its label, and what it lacks there ("" if nothing).

    The learning rate that a user does not give is that of official scripts for the batch size.

    Raises UserError if the method's own code fails.
    """
    cls = choice.cls
    try:
        with exit_is_an_error():
            of_dataset = dict(cls.for_dataset(split_subset(source.dataset)[0], source.num_classes))
            of_architecture = dict(cls.for_architecture(source.architecture))

            def settings(given: Mapping[str, Any]) -> Any:
                config = configured(cls, given, {**of_dataset, **of_architecture})
                if not choice.grid.batch_size or choice.grid.batch_rate != "official" or RATE in given:
                    return config
                own = cls.native_batch_size(source.num_classes, protocol.mode)
                of_batch = settings_for_batch(cls, config, source.architecture, own, protocol.batch_size)
                return replace(config, **of_batch)

            config = settings(choice.given)
            name = label(cls.name, config, configured(cls, {}, of_dataset), settings({}))
            needs = cls.needs_of(config)
            without = "no training images" if needs.source_data and not source.trains else ""
            without = without or (source.no_gradient if needs.gradient else "")
            return config, name, needs.unmet(source.architecture) or without
    except UserError:
        raise
    except Exception as problem:  # of the method's code
        raise UserError(
            f"method '{cls.name}' cannot be planned for {source.name} on {source.dataset} "
            f"({type(problem).__name__}: {problem}); fix its package, or name other methods."
        ) from problem


def _cannot_be_reset(choice: MethodChoice) -> bool:
    """Whether the sweep resets methods between batches, and this one is offline in its paper.

    Its cell is n/a. It has the protocol of the others, which is online, and so stands in their table.
    """
    resets = choice.grid.reset_in_force not in ("per_corruption", "continual")
    return resets and choice.grid.mode == "native" and choice.cls.mode == "offline"


def _fixed(template: Cell, grid: Grid) -> tuple[str, ...]:
    """See :class:`Planned`."""
    weights = [f"checkpoint {template.checkpoint}"] if grid.checkpoint else []
    given = grid.pace and given_ratio(grid.pace_ratio, template) is not None
    return (*weights, *([f"pace ratio {template.protocol.pace_ratio!r}"] if given else []))


def _protocol(choice: MethodChoice, num_classes: int, shifts: Shifts) -> Protocol:
    grid = choice.grid
    mode = "online" if _cannot_be_reset(choice) else choice.mode
    try:
        return Protocol(
            **grid.of_protocol,
            mode=mode,
            batch_size=grid.batch_size or choice.cls.native_batch_size(num_classes, mode),
            epochs=grid.epochs if mode == "offline" else 0,
            stream=str(shifts.stream or ""),
        )
    except ValueError as problem:
        raise UserError(f"{choice.cls.name}: {problem}.") from None
