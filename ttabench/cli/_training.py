"""Training source classifiers in workers, with progress; shared by ``train`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ttabench.cli._display import Display, clock
from ttabench.errors import UserError
from ttabench.executors import Died, Executor


@dataclass(frozen=True)
class Epoch:
    """A training run after one of its epochs."""

    name: str
    epoch: int
    epochs: int
    note: str


@dataclass(frozen=True)
class Trained:
    name: str
    clean_accuracy: float
    seconds: float
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

    def __call__(self, emit: Callable[[Any], None]) -> Trained:
        import torch

        from ttabench.data.catalog import dataset
        from ttabench.models.training.train import train

        torch.set_num_threads(self.threads)
        try:
            loaded = train(
                self.arch,
                dataset(self.dataset),
                epochs=self.epochs or None,
                seed=self.seed,
                recipe=self.recipe,
                device=self.device,
                precision=self.precision,
                on_progress=lambda p: emit(
                    Epoch(self.name, p.epoch, p.epochs, f"loss {p.loss:.3f}, {clock(p.seconds_left)} left")
                ),
            )
        except UserError as problem:
            return Trained(self.name, 0.0, 0.0, problem=str(problem))
        return Trained(self.name, loaded.clean_accuracy, float(loaded.note["seconds"]))


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
