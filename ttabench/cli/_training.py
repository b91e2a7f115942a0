"""Training source classifiers in workers, with progress; shared by ``train`` and ``sweep``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ttabench.cli._display import Display, clock
from ttabench.errors import UserError
from ttabench.executors import Died, Executor
from ttabench.worker_state import WorkerState


@dataclass(frozen=True)
class Epoch:
    """A training run after one of its epochs."""

    name: str
    epoch: int
    epochs: int
    note: str


@dataclass(frozen=True)
class Trained:
    """A classifier that was trained, or the `problem` why it was not."""

    name: str
    clean_accuracy: float = 0.0
    seconds: float = 0.0
    warning: str = ""
    problem: str = ""


@dataclass(frozen=True)
class TrainJob:
    """Train one source classifier; picklable, see :mod:`ttabench.executors`."""

    arch: str
    dataset: str
    device: str
    threads: int = 1
    epochs: int = 0
    seed: int = 0
    precision: str = "auto"
    recipe: str = ""

    @property
    def name(self) -> str:
        return f"{self.arch} on {self.dataset}"

    def __call__(self, emit: Callable[[Any], None], state: WorkerState) -> Trained:
        import torch

        from ttabench.data.catalog import dataset
        from ttabench.models.trained_model import TrainedModel
        from ttabench.models.training.train import TrainingProgress, train

        def tell(at: TrainingProgress) -> None:
            emit(Epoch(self.name, at.epoch, at.epochs, f"loss {at.loss:.3f}, {clock(at.seconds_left)} left"))

        torch.set_num_threads(self.threads)
        try:
            data = dataset(self.dataset)
            model = TrainedModel(self.arch, data, recipe=self.recipe, epochs=self.epochs, seed=self.seed)
            train(model.plan, data, device=self.device, precision=self.precision, on_progress=tell)
            loaded = model.load()
        except UserError as problem:
            return Trained(self.name, problem=str(problem))
        return Trained(
            self.name, loaded.clean_accuracy, float(loaded.note["seconds"]), warning=loaded.note["warning"]
        )


def train_all(jobs: Sequence[TrainJob], executor: Executor, workers: int) -> None:
    """Train every classifier; print its clean accuracy. Raises UserError where one could not be trained."""
    with Display(len(jobs), "classifiers") as display:
        for event in executor(jobs, workers):
            if isinstance(event, Epoch):
                display.running(event.name, event.epoch, event.epochs, event.note)
            elif isinstance(event, Died):
                raise UserError(f"the process training {event.job.name} was killed (out of memory?).")
            elif event.problem:
                raise UserError(f"training {event.name}: {event.problem}")
            else:
                note = f"{event.clean_accuracy:.2f} % clean ({clock(event.seconds)})"
                display.finished(event.name, note, keep=True)
                if event.warning:
                    warnings.warn(f"{event.name}: {event.warning}", stacklevel=2)
