"""What a worker does: load data and models once, run cells, store each result immediately."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ttabench.cell import Cell, Result
from ttabench.data.balanced_subset import undrawn
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.catalog import foreign_set
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.foreign_set import ForeignSet
from ttabench.data.own.open_own import of_image_files
from ttabench.errors import (
    UnusableModel,
    UserError,
    exit_is_an_error,
    out_of_memory,
    said,
    shortened,
    warn_of_network,
    warn_of_setting,
)
from ttabench.measure.any_network import SourceOfAnyNetwork
from ttabench.measure.foreign_positions import foreign_of
from ttabench.measure.source_access import SourceImages
from ttabench.measure.torch_defaults import changed_setting, matrix_products, own_settings
from ttabench.method import Method, Needs
from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.resolve import resolve_model
from ttabench.models.soundness.gradient_flow import check_learning
from ttabench.models.soundness.torch_errors import explained
from ttabench.observe.cost import measured, source_forward
from ttabench.observe.decline import Course
from ttabench.observe.label_free_scores import Collected, costly_scores, some_of
from ttabench.observe.unknown_classes import Certainties, watched
from ttabench.provenance import shared_code
from ttabench.provenance.forbidden_imports import forbidden_imports, watched_imports
from ttabench.registry import method as find_method
from ttabench.run.cell_images import CellImages, images_of
from ttabench.run.cell_result import CellRun
from ttabench.run.continual_failures import failed_before, results_to_store
from ttabench.run.kept_objects import WorkerState
from ttabench.run.other_generators import seeded_generators
from ttabench.run.prepared_method import prepared_method
from ttabench.run.progress_events import CellProgress, Emit
from ttabench.run.recomputing import recompute_where_same
from ttabench.run.replaced_torch import replaced_part
from ttabench.run.stream_of_cell import checkpoint_of
from ttabench.run.summary_cache import SourceCache
from ttabench.run.unchanged_data import unchanged_data
from ttabench.store import Store, Writer
from ttabench.store.read_results import LONGEST_REASON
from ttabench.system.environment import cache_dir

CLEAN = 256  # clean images whose logits `Method.check` gets


@dataclass(frozen=True)
class Worker:
    """Runs cells. Datasets, classifiers and methods are kept in `state` for the next job.

    scores     the label-free scores of cells: "cheap", or "all", which need further forward passes.
    done       ids of cells that have a result, which no failure replaces.
    per_gpu    how many workers share its GPU, which is stored with what cells cost; 0 without one.
    recompute  whether networks compute activations again in the backward pass, which is stored too.
    """

    state: WorkerState
    results: Path
    device: str
    emit: Emit
    scores: str = "cheap"
    done: frozenset[str] = frozenset()
    per_gpu: int = 0
    recompute: bool = False

    def run(self, cells: tuple[Cell, ...], stored: Callable[[Result], None]) -> None:
        """Run cells, store their results and hand each to `stored`.

        Raises UserError only where results cannot be stored.
        """
        for result in results_to_store(self.results_of(cells), self.done):
            self.writer().append(result)
            stored(result)

    def results_of(self, cells: tuple[Cell, ...]) -> Iterator[Result]:
        """Run cells one after the other with one method; torch has the settings of a new process for each.

        A cell that fails is a result too, and the cells after it fail with it. Store each result before the
        next is asked for: then the saved state of a long stream is deleted.
        """
        method: Method[Any] | None = None
        settings_alarm = ""
        first_failed: Cell | None = None
        for cell in cells:
            scored = False
            try:
                if first_failed is not None:
                    raise UnusableModel(failed_before(first_failed))
                if method is None:
                    self.tell(cell, "preparing the method")
                    with explained(), own_settings():  # what an import sets would hold for one cell alone
                        find_method(cell.method)
                        self.classifier(cell)
                with explained(), exit_is_an_error(), own_settings() as usual:
                    if method is None:
                        method, settings_alarm = self.prepared(cell)
                        method.reset()
                    with matrix_products(cell.protocol.precision, self.device), seeded_generators(cell.seed):
                        result, scored = self.run_cell(cell, method, settings_alarm), True
                    if changed := changed_setting(usual):
                        result = with_alarm(result, f"the method changes {changed}, for this cell alone")
                if part := replaced_part():
                    raise UnusableModel(
                        f"this method, or one before it in the same process, has replaced {part}, and all "
                        "methods would run with it; change only the layers of self.model"
                    )
            except Exception as problem:  # one bad cell must not end a sweep; the reason is stored
                result = failed(cell, problem)
                first_failed = first_failed or cell
                if out_of_memory(problem):
                    method = None
                    # The frames of the exception hold tensors; its text is in the result.
                    problem.__traceback__ = None
                    self.free_memory()
            yield result
            if scored:  # and stored by now
                self.forget_stream(cell)

    def give_up(self, cells: Sequence[Cell], reason: str, stored: Callable[[Result], None]) -> None:
        """Record cells as failed without running them, and hand each result to `stored`."""
        for cell in cells:
            result = Result(cell=cell, status="failed", reason=reason)
            self.writer().append(result)
            stored(result)

    def free_memory(self) -> None:
        """Drop all that can be made again, so that the next cell finds a worker like a new one."""
        self.state.drop("prepared method", "classifier", "dataset", "foreign")
        gc.collect()
        torch.cuda.empty_cache()  # does nothing where CUDA was never used

    def forget_stream(self, cell: Cell) -> None:
        """Delete the saved state of a cell with a long stream."""
        saved = checkpoint_of(cell, self.results, self.device) if cell.protocol.stream else None
        if saved is not None:
            with suppress(OSError):  # where it stays, it changes no number
                saved.remove()

    def run_cell(self, cell: Cell, method: Method[Any], settings_alarm: str) -> Result:
        """The result of a cell with a prepared method; `settings_alarm` comes from `Method.check`.

        Raises UnusableModel if the images are not those of the cell, or changed while it ran.
        """
        self.tell(cell, "making or reading images")
        foreign, dataset, source = self.foreign(cell), self.dataset(cell.dataset), self.classifier(cell)
        run: CellRun | None = None
        try:
            with unchanged_data(cell, dataset, foreign) as check_planned:
                images = images_of(
                    cell, dataset, source.classifier, self.results, self.device, partial(self.tell, cell)
                )
                check_planned()
                run = self._scored(cell, method, images, settings_alarm)
        except UnusableModel:
            if run is not None:  # its images changed, and the saved state of a stream with them
                self.forget_stream(cell)
            raise
        return run.result(self._label_free_scores(run))

    def _scored(self, cell: Cell, method: Method[Any], images: CellImages, settings_alarm: str) -> CellRun:
        """Let the method score the images, and measure what that costs."""
        source, protocol = self.classifier(cell), cell.protocol
        source_seconds = self.state.keep(
            "source seconds",
            (*self._place(cell), protocol.batch_size, protocol.precision),
            lambda: source_forward(
                source.classifier, images.first, protocol.batch_size, self.device, protocol.precision
            ),
            limit=64,
        )
        course, streamed = Course(), images.total

        def report(seen: int, scored: int, right: int) -> None:
            nonlocal streamed
            course.note(seen, scored, right)
            if scored:  # foreign images count; those of further epochs do not
                streamed = max(streamed, seen)
            self.emit(CellProgress(str(cell), images.total, seen, scored, right, key=cell.cell_id))

        memory_key = (cell.method, cell.config, *self._place(cell), protocol)
        host_memory: dict[str, float] = self.state.keep("memory", memory_key, dict, limit=256)
        foreign = None
        if protocol.contamination:
            foreign = foreign_of(images.stream, images.protocol, cell.seed)
        collected = Collected() if foreign is None else Certainties(len(foreign), images.classes)
        watch = watched(method, collected.note) if isinstance(collected, Certainties) else nullcontext()
        with watched_imports() as label_imports, watch, measured(self.device, host_memory) as meter:
            evaluation = images.score(method, self.device, report, collected, meter)
        cost = meter.cost(method, streamed, evaluation.seconds, source_seconds)
        if self.per_gpu:
            cost["per_gpu"] = self.per_gpu
        if self.recompute:
            cost["recomputed"] = 1
        return CellRun(
            cell=cell, method=method, dataset=self.dataset(cell.dataset), source=source, images=images,
            device=self.device, evaluation=evaluation, collected=collected, foreign=foreign, course=course,
            cost=cost, label_imports=label_imports, settings_alarm=settings_alarm,
        )  # fmt: skip

    def _label_free_scores(self, run: CellRun) -> dict[str, float | None]:
        """Label-free scores of a cell; where asked for, also those that need further forward passes."""
        cheap = run.collected.scores()
        if self.scores != "all":
            return cheap
        cell, data = run.cell, run.images.data
        if data is not None:
            self.tell(cell, "computing label-free scores")

        def source() -> Labelled:
            return self.state.keep(
                "labelled source", cell.dataset, lambda: some_of(self.dataset(cell.dataset).train()), limit=2
            )

        images = None if data is None else data.images[: run.images.total]
        return cheap | costly_scores(run.method, images, source, cell.protocol, self.device, cell.seed)

    def foreign(self, cell: Cell) -> ForeignSet | None:
        """The images that contaminate the stream of a cell; None for noise."""
        name = cell.protocol.contamination.partition("(")[0]
        return self.state.keep("foreign", name, lambda: foreign_set(name), limit=1) if cell.foreign else None

    def tell(self, cell: Cell, doing: str) -> None:
        """Report what is done before a cell's first batch."""
        self.emit(CellProgress(str(cell), 0, 0, 0, 0, doing, cell.cell_id))

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
        needs = cls.needs_of(config)
        dataset = self.dataset(cell.dataset)
        own = resolve_model(cell.arch, dataset).trainable
        kind = SourceImages if own else SourceOfAnyNetwork
        whole = undrawn(dataset)  # whose training images a draw has
        code = shared_code(whole.name, kind.__module__, of_image_files(whole))
        identity = (whole.fingerprint(), cell.checkpoint, code)
        cache = SourceCache(cache_dir() / "source", identity)
        method = prepared_method(cls, classifier, config, cell.seed, dataset, self.device, kind, cache)
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

    def _load(self, cell: Cell) -> Loaded:
        dataset = self.dataset(cell.dataset)
        loaded = resolve_model(cell.arch, dataset).recall(cell.checkpoint)
        if loaded is None:
            raise UnusableModel(
                f"the cache no longer has the weights {cell.checkpoint[:12]} of {cell.arch} on "
                f"{cell.dataset}; run the sweep again"
            )
        if self.recompute and not recompute_where_same(loaded.classifier, dataset.image_size, cell.arch):
            warn_of_network(cell.arch, "no blocks were found whose activations could be computed again")
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


def with_alarm(result: Result, text: str) -> Result:
    """The same result with one more alarm."""
    alarm = "; ".join(filter(None, (result.details["alarm"], text)))
    return replace(result, details={**result.details, "alarm": alarm})


def failed(cell: Cell, problem: Exception) -> Result:
    """The result of a cell that raised an exception."""
    text = said(problem).strip() or type(problem).__name__
    expected = isinstance(problem, UnusableModel | UserError)
    reason = text if expected else f"{type(problem).__name__}: {text.splitlines()[0]}"
    if out_of_memory(problem):
        reason = f"out of memory: {reason}"
    trace = "".join(traceback.format_exception(problem))
    reason = shortened(reason, LONGEST_REASON)
    return Result(cell=cell, status="failed", reason=reason, details={"traceback": trace[-4000:]})
