"""Train the missing source classifiers of a sweep, as jobs for an executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ttabench.errors import UserError, first_line, out_of_memory
from ttabench.run.kept_objects import WorkerState


@dataclass(frozen=True)
class Epoch:
    """Progress of a training run after an epoch."""

    name: str
    epoch: int
    epochs: int
    loss: float
    seconds_left: float


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
    """Train one source classifier; picklable, see :mod:`ttabench.run.executors`.

    force   whether it is trained although it is there, as where another process has just trained it.
    """

    arch: str
    dataset: str
    device: str
    threads: int = 1
    epochs: int = 0
    seed: int = 0
    precision: str = "auto"
    recipe: str = ""
    force: bool = False

    @property
    def name(self) -> str:
        return f"{self.arch} on {self.dataset}"

    @property
    def command(self) -> tuple[str, ...]:
        """See :mod:`ttabench.run.executors`; without the device, which the engine adds."""
        return ("train", "--archs", self.arch, "--datasets", self.dataset, "--threads", str(self.threads))

    def __call__(self, emit: Callable[[Any], None], state: WorkerState) -> Trained:
        import torch

        from ttabench.data.catalog import dataset
        from ttabench.models.resolve import resolve_trainable
        from ttabench.models.training.train import TrainingProgress, train

        def report(at: TrainingProgress) -> None:
            emit(Epoch(self.name, at.epoch, at.epochs, at.loss, at.seconds_left))

        torch.set_num_threads(self.threads)
        try:
            data = dataset(self.dataset)
            model = resolve_trainable(self.arch, data, recipe=self.recipe, epochs=self.epochs, seed=self.seed)
            if self.force or not model.ready:
                train(model.plan, data, device=self.device, precision=self.precision, on_progress=report)
            loaded = model.load()
        except UserError as problem:
            return Trained(self.name, problem=str(problem))
        except Exception as problem:
            if not out_of_memory(problem):
                raise
            why = f"out of memory ({first_line(problem)}); --workers 1 trains one classifier at a time."
            return Trained(self.name, problem=why)
        warning = without_normalize(loaded.note["warning"])
        return Trained(self.name, loaded.clean_accuracy, float(loaded.note["seconds"]), warning=warning)


def without_normalize(warning: str) -> str:
    """A warning about a clean accuracy without its hint at --normalize, which training does not have."""
    text, hint, _ = warning.partition("; it is ")
    return f"{text}." if hint else warning
