"""What a worker does: load data and models once, run cells, store each result immediately."""

from __future__ import annotations

import gc
import math
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ttabench.cell import Cell, Result
from ttabench.corruptions.names import NATURAL
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.catalog import foreign_set
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.drawn import undrawn
from ttabench.data.files.file_states import CLEAN as CLEAN_IMAGES
from ttabench.data.files.file_states import State, file_states
from ttabench.data.foreign import coded
from ttabench.data.foreign_set import ForeignSet
from ttabench.errors import UnusableModel, UserError, warn_of_network, warn_of_setting
from ttabench.measure.any_network import SourceOfAnyNetwork
from ttabench.measure.by_class import ORDER as BY_CLASS
from ttabench.measure.by_class import evaluate_by_class
from ttabench.measure.declared_source import DeclaredSource
from ttabench.measure.foreign_places import foreign_of
from ttabench.measure.prepare import prepared
from ttabench.measure.scoring import Evaluation, OnBatch, evaluate
from ttabench.measure.source_access import Memo, SourceImages
from ttabench.measure.stream import arrange
from ttabench.measure.streams.images import LongStream
from ttabench.measure.streams.score import evaluate_stream
from ttabench.measure.test_set import test_set
from ttabench.measure.torch_defaults import matrix_products
from ttabench.method import Method, Needs
from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.resolve import resolve_model
from ttabench.models.soundness.gradient_flow import check_learning
from ttabench.models.soundness.torch_errors import explained
from ttabench.observe.cost import Meter, measured, source_forward
from ttabench.observe.decline import Course
from ttabench.observe.few_of_each import few_of_each_alarm
from ttabench.observe.harm import harm_alarm
from ttabench.observe.label_free_scores import COSTLY, Collected, consistency, sample, source_accuracy
from ttabench.observe.unknown import Certainties, watched
from ttabench.provenance import shared_code
from ttabench.provenance.forbidden_imports import forbidden_imports, watched_imports
from ttabench.registry import method as find_method
from ttabench.run.kept_objects import WorkerState
from ttabench.run.more_streams import stream_of_any
from ttabench.run.progress_events import CellProgress, Emit
from ttabench.run.stream_of_cell import checkpoint_of
from ttabench.run.summary_cache import SourceCache
from ttabench.store import Store, Writer
from ttabench.system.environment import cache_dir

CLEAN = 256  # clean images whose logits `Method.check` gets


@dataclass(frozen=True)
class Worker:
    """Runs cells. Datasets, classifiers and methods are kept in `state` for the next job.

    scores   the label-free scores of cells: "cheap", or "all", which need further forward passes.
    """

    state: WorkerState
    results: Path
    device: str
    emit: Emit
    scores: str = "cheap"

    def run(self, cells: tuple[Cell, ...], stored: Callable[[Result], None]) -> None:
        """Run cells, store their results and hand each to `stored`. A cell that fails is a result too.

        Raises UserError only where results cannot be stored.
        """
        method: Method[Any] | None = None
        settings_alarm = ""
        first_failed: Cell | None = None
        for cell in cells:
            try:
                if first_failed is not None:
                    raise UnusableModel(
                        f"{first_failed.corruption}-{first_failed.severity}, "
                        "earlier in this continual run, failed"
                    )
                with explained():
                    if method is None:
                        self.tell(cell, "preparing the method")
                        method, settings_alarm = self.prepared(cell)
                        method.reset()
                    with matrix_products(cell.protocol.precision, self.device):
                        result = self.run_cell(cell, method, settings_alarm)
            except Exception as problem:  # one bad cell must not end a sweep; the reason is stored
                result = failed(cell, problem)
                first_failed = first_failed or cell
                if out_of_memory(problem):
                    method = None
                    # The frames of the exception hold tensors; its text is in the result.
                    problem.__traceback__ = None
                    self.free_memory()
            self.writer().append(result)
            stored(result)

    def give_up(self, cells: Sequence[Cell], reason: str, stored: Callable[[Result], None]) -> None:
        """Record cells as failed without running them, and hand each result to `stored`."""
        for cell in cells:
            result = Result(cell=cell, status="failed", reason=reason)
            self.writer().append(result)
            stored(result)

    def free_memory(self) -> None:
        """Drop all that can be made again, so that the next cell finds a worker like a new one."""
        self.state.drop("prepared method", "source data", "classifier", "dataset", "foreign")
        gc.collect()
        torch.cuda.empty_cache()  # does nothing where CUDA was never used

    def run_cell(self, cell: Cell, method: Method[Any], settings_alarm: str) -> Result:
        """The result of a cell with a prepared method; `settings_alarm` comes from `Method.check`.

        Raises UnusableModel if the images are not those of the cell, or changed while it ran.
        """
        self.tell(cell, "making or reading images")
        dataset = self.dataset(cell.dataset)
        files = self.files_of(cell)
        if cell.protocol.stream:
            cell_images: LongStream | Labelled = self.stream(cell, dataset)
        else:
            cell_images = test_set(dataset, cell.corruption, cell.severity, cell.seed)
        if isinstance(cell_images, LongStream):
            total = streamed = cell_images.total
            images = cell_images.read(0, min(cell.protocol.batch_size, total)).images
        else:
            total = streamed = min(cell.protocol.limit or len(cell_images), len(cell_images))
            images = cell_images.images
        self.check_data(dataset, cell)

        course = Course()

        def report(seen: int, scored: int, right: int) -> None:
            nonlocal streamed
            course.note(seen, scored, right)
            streamed = max(streamed, seen) if scored else streamed  # foreign images count, further epochs not
            self.emit(CellProgress(str(cell), total, seen, scored, right))

        collected, watch = self.observer(cell, cell_images, method, dataset.scored_classes)
        source_seconds = self.source_seconds(cell, images)
        memory_key = (cell.method, cell.config, *self._place(cell), cell.protocol)
        host_memory: dict[str, float] = self.state.keep("memory", memory_key, dict, limit=256)
        with watched_imports() as label_imports, watch, measured(self.device, host_memory) as meter:
            if isinstance(cell_images, LongStream):
                evaluation = self.follow(
                    cell_images, cell, method, report, dataset.scored_classes, collected, meter
                )
            else:
                measure = evaluate_by_class if cell.protocol.order == BY_CLASS else evaluate
                evaluation = measure(
                    method,
                    cell_images,
                    coded(cell.protocol),
                    cell.seed,
                    self.device,
                    report,
                    dataset.scored_classes,
                    collected.add,
                )
        self.check_data(dataset, cell)
        if written := sorted(set(files.items()) ^ set(self.files_of(cell).items())):
            raise UnusableModel(f"{written[0][0]} was written to while the cell ran; run the sweep again")
        alarms = {name: plain(value) for name, value in method.alarms().items()}
        unknown = self.unknown(cell, cell_images, collected, evaluation)
        unlabelled = collected.scores()
        if self.scores == "all":
            stream = bool(cell.protocol.stream)
            unlabelled |= dict.fromkeys(COSTLY) if stream else self.costly_scores(cell, method, images)
        source = self.classifier(cell)
        import_alarm = (
            f"the method imports {label_imports[0]}, which knows the labels" if label_imports else ""
        )
        random_order = cell.protocol.order == "iid" and not cell.protocol.stream
        falls = course.alarm() if random_order else ""
        # Of methods without gradients, a pass over these images would be a large part of the cost.
        harm, learns = "", type(method).needs_of(method.config).gradient
        if learns and isinstance(cell_images, Labelled) and not cell.protocol.held_out:
            harm = harm_alarm(
                source.classifier, cell_images, evaluation.correct, self.device, dataset.scored_classes
            )
        few = few_of_each_alarm(
            type(method).per_class,
            len(evaluation.correct),
            len(dataset.scored_classes) or dataset.num_classes,
        )
        own = str(alarms.pop("alarm", ""))
        alarm = "; ".join(
            filter(None, (import_alarm, evaluation.alarm, falls, harm, few, settings_alarm, own))
        )
        return Result(
            cell=cell,
            status="ok",
            accuracy=evaluation.accuracy,
            clean_accuracy=source.clean_accuracy,
            n_images=len(evaluation.correct),
            seconds=evaluation.seconds,
            correct=np.packbits(evaluation.correct).tobytes(),
            details={
                "adapted": method.adapted(),
                "scored_classes": of_classes(dataset),
                "scores": type(method).scores_frozen if cell.protocol.frozen else type(method).scores,
                "source_warning": source.note.get("warning", ""),
                "restores": type(method).restores,
                "source_data": type(method).needs_of(method.config).source_data,
                "source_used": "; ".join(f"{what} ({n:,} images)" for what, n in method.served.items()),
                "alarm": alarm,
                "calibration": evaluation.calibration,
                **({"windows": evaluation.windows} if evaluation.windows else {}),
                **({"unknown": unknown} if unknown else {}),
                "unlabelled": unlabelled,
                "cost": meter.cost(method, streamed, evaluation.seconds, source_seconds),
                **alarms,
            },
        )

    def check_data(self, dataset: Dataset, cell: Cell) -> None:
        """Raise UnusableModel if the images, or those that contaminate them, are not those of the cell."""
        check_unchanged(dataset, cell)
        if (foreign := self.foreign(cell)) and (now := foreign.fingerprint()) != cell.foreign:
            raise UnusableModel(
                f"the data of {foreign.name} changed during the sweep (now {now[:12]}); run the sweep again"
            )

    def files_of(self, cell: Cell) -> dict[str, State]:
        """The state of the files that the images of a cell come from."""
        files = file_states(self.dataset(cell.dataset), cell.corruption, cell.severity)
        if (foreign := self.foreign(cell)) is not None:
            natural = foreign.corruptions == (NATURAL,)
            files |= file_states(foreign.data, NATURAL if natural else CLEAN_IMAGES, 0)
        return files

    def foreign(self, cell: Cell) -> ForeignSet | None:
        """The images that contaminate the stream of a cell; None for noise."""
        name = cell.protocol.contamination.partition("(")[0]
        return self.state.keep("foreign", name, lambda: foreign_set(name), limit=1) if cell.foreign else None

    def stream(self, cell: Cell, dataset: Dataset) -> LongStream:
        """The images of a cell that is a long stream."""
        cell = replace(cell, protocol=coded(cell.protocol))
        return stream_of_any(cell, dataset, self.classifier(cell).classifier, self.results, self.device)

    def follow(
        self,
        stream: LongStream,
        cell: Cell,
        method: Method[Any],
        report: OnBatch,
        scored_classes: tuple[int, ...],
        collected: Collected,
        meter: Meter,
    ) -> Evaluation:
        """Score a long stream; if a state of it was saved, go on from this state."""
        checkpoint = checkpoint_of(cell, self.results, self.device)
        evaluation = evaluate_stream(
            method, stream, coded(cell.protocol), cell.seed, self.device, report, scored_classes, collected,
            meter, checkpoint,
        )  # fmt: skip
        if checkpoint is not None:
            checkpoint.remove()
        return evaluation

    def observer(
        self, cell: Cell, images: LongStream | Labelled, method: Method[Any], classes: tuple[int, ...]
    ) -> tuple[Collected, AbstractContextManager[None]]:
        """What collects the logits of a cell; of a contaminated one, those of foreign images too."""
        if not cell.protocol.contamination:
            return Collected(), nullcontext()
        certainties = Certainties(len(foreign_of(images, cell.protocol, cell.seed)), classes)
        return certainties, watched(method, certainties.note)

    def unknown(
        self, cell: Cell, images: LongStream | Labelled, collected: Collected, evaluation: Evaluation
    ) -> dict[str, Any]:
        """How well foreign images are told from test images, see `ttabench.observe.unknown`; or {}."""
        if not isinstance(collected, Certainties):
            return {}
        right = evaluation.correct
        if isinstance(images, Labelled):  # in the order of the stream
            labels = images.labels[: len(right)]
            right = right[arrange(cell.protocol.order, labels, cell.seed)]
        return collected.figures(foreign_of(images, cell.protocol, cell.seed), right)

    def costly_scores(
        self, cell: Cell, method: Method[Any], images: NDArray[np.uint8]
    ) -> dict[str, float | None]:
        """The scores of :data:`COSTLY`, after the adaptation; None for one that cannot be computed."""
        self.tell(cell, "computing label-free scores")
        data, protocol = self.dataset(cell.dataset), cell.protocol
        settings = protocol.batch_size, self.device, protocol.precision
        target = images[sample(min(protocol.limit or len(images), len(images)), cell.seed)]
        scores: dict[str, float | None] = {
            "consistency": consistency(method, target, *settings, cell.seed),
            "source_accuracy": None,
        }
        try:
            source = self.state.keep("labelled source", cell.dataset, lambda: some_of(data.train()), limit=2)
        except UserError:  # ImageNet's training images may be missing
            return scores
        return {**scores, "source_accuracy": source_accuracy(method, source, *settings)}

    def tell(self, cell: Cell, doing: str) -> None:
        """Report what is done before a cell's first batch."""
        self.emit(CellProgress(str(cell), 0, 0, 0, 0, doing))

    # ---- objects that the state keeps

    def prepared(self, cell: Cell) -> tuple[Method[Any], str]:
        """A method after `prepare`, and the alarm of `Method.check`.

        Both depend only on the values in the key, so a continued sweep gives the same numbers.
        """
        key = cell.method, cell.config, *self._place(cell), cell.seed
        return self.state.keep("prepared method", key, lambda: self._prepare(cell), limit=2)

    def _prepare(self, cell: Cell) -> tuple[Method[Any], str]:
        cls = find_method(cell.method)
        if label_imports := forbidden_imports(cls.__module__):
            raise UnusableModel(f"{label_imports[0]}; a method may not read datasets or scores")
        config = cls.Config(**dict(cell.config))
        classifier = self.classifier(cell).classifier
        memo: Memo = self.state.keep("source data", self._place(cell), dict, limit=2)
        needs = cls.needs_of(config)
        dataset = self.dataset(cell.dataset)
        own = resolve_model(cell.arch, dataset).trainable
        kind = SourceImages if own else SourceOfAnyNetwork
        whole = undrawn(dataset)  # whose training images a draw has
        identity = (whole.fingerprint(), cell.checkpoint, shared_code(whole.name))
        cache = SourceCache(cache_dir() / "source", identity if own else (*identity, kind.__name__))
        source = kind(lambda: dataset.train().images, needs, self.device, memo, cache)
        declared: Any = DeclaredSource(source, needs)
        method = prepared(cls, classifier, config, cell.seed, declared)
        settings_alarm = ""
        if cls.check is not Method.check:
            settings_alarm = method.check(self._clean_logits(cell))
        settings_alarm = settings_alarm and warn_of_setting(cell.method, settings_alarm)
        if needs.gradient and not own:
            found = check_learning(method, dataset.image_size, cell.arch)
            warn_of_network(cell.method, found.sentence)
            settings_alarm = "; ".join(filter(None, (settings_alarm, found.sentence if found.runs else "")))
        return method, settings_alarm

    @torch.no_grad()
    def _clean_logits(self, cell: Cell) -> torch.Tensor:
        """Logits (n, C) of the unadapted classifier on some clean test images, the same for every method."""
        dataset, classifier = self.dataset(cell.dataset), self.classifier(cell).classifier
        source = SourceImages(lambda: dataset.test().images, Needs(source_data="images"), self.device)
        return torch.cat([classifier(x) for x in source.batches(CLEAN // 2, CLEAN)])

    def classifier(self, cell: Cell) -> Loaded:
        """The source classifier of a cell, in eval mode on the worker's device."""
        return self.state.keep("classifier", self._place(cell), lambda: self._load(cell), limit=4)

    def source_seconds(self, cell: Cell, images: NDArray[np.uint8]) -> float:
        """Seconds per image of Source's forward pass with the batch size of a cell."""
        protocol, classifier = cell.protocol, self.classifier(cell).classifier
        return self.state.keep(
            "source seconds",
            (*self._place(cell), protocol.batch_size, protocol.precision),
            lambda: source_forward(classifier, images, protocol.batch_size, self.device, protocol.precision),
            limit=64,
        )

    def _load(self, cell: Cell) -> Loaded:
        loaded = resolve_model(cell.arch, self.dataset(cell.dataset)).recall(cell.checkpoint)
        if loaded is None:
            raise UnusableModel(
                f"the cache no longer has the weights {cell.checkpoint[:12]} of {cell.arch} on "
                f"{cell.dataset}; run the sweep again"
            )
        loaded.classifier.to(self.device).eval()
        return loaded

    def dataset(self, name: str) -> Dataset:
        return self.state.keep("dataset", name, lambda: open_dataset(name), limit=4)

    def writer(self) -> Writer:
        return self.state.keep(
            "writer", (self.results, self.device), lambda: Store.at(self.results).writer(self.device), limit=1
        )

    def _place(self, cell: Cell) -> tuple[str, ...]:
        return cell.arch, cell.dataset, cell.checkpoint, self.device


def check_unchanged(dataset: Dataset, cell: Cell) -> None:
    """Raise UnusableModel if the images are not those of the cell."""
    if (now := dataset.fingerprint()) != cell.fingerprint:
        raise UnusableModel(
            f"the data of {cell.dataset} changed during the sweep (now {now[:12]}); run the sweep again"
        )


def of_classes(data: Dataset) -> str:
    """``200 of 1000 classes`` where predictions are chosen from some of a classifier's classes, or ""."""
    return f"{len(data.scored_classes)} of {data.num_classes} classes" if data.scored_classes else ""


def some_of(data: Labelled) -> Labelled:
    chosen = sample(len(data), 0)
    return Labelled(data.images[chosen], data.labels[chosen])


def plain(value: Any) -> Any:
    """A reported value as JSON data: NumPy and torch numbers as Python numbers, NaN as text."""
    if isinstance(value, np.generic | torch.Tensor | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


OUT_OF_MEMORY = (
    "DefaultCPUAllocator",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def out_of_memory(problem: BaseException) -> bool:
    """Whether this process or its GPU ran out of memory; for the CPU, torch has no exception class."""
    text = str(problem)
    named_in_text = any(words in text for words in OUT_OF_MEMORY)
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or named_in_text


def failed(cell: Cell, problem: Exception) -> Result:
    """The result of a cell that raised an exception."""
    text = str(problem).strip() or type(problem).__name__
    expected = isinstance(problem, UnusableModel | UserError)
    reason = text if expected else f"{type(problem).__name__}: {text.splitlines()[0]}"
    if out_of_memory(problem):
        reason = f"out of memory: {reason}"
    trace = "".join(traceback.format_exception(problem))
    return Result(cell=cell, status="failed", reason=reason, details={"traceback": trace[-4000:]})
