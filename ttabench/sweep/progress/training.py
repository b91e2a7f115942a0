"""Training source classifiers with progress; shared by ``train``, ``sweep`` and ``figure``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ttabench.errors import UserError
from ttabench.run.executors import Died, Executor
from ttabench.sweep.progress.display import Display, clock
from ttabench.sweep.train_sources import Epoch, TrainJob


def train_all(jobs: Sequence[TrainJob], executor: Executor, workers: int) -> None:
    """Train every classifier; print its clean accuracy. Raises UserError where one could not be trained."""
    with Display(len(jobs), "classifiers", workers=workers) as display:
        for event in executor(jobs, workers):
            if isinstance(event, Epoch):
                note = f"loss {event.loss:.3f}, {clock(event.seconds_left)} left"
                display.running(event.name, event.epoch, event.epochs, note)
            elif isinstance(event, Died):
                raise UserError(f"training {event.job.name}: {event.reason}.")
            elif event.problem:
                raise UserError(f"training {event.name}: {event.problem}")
            else:
                note = f"{event.clean_accuracy:.2f} % clean ({clock(event.seconds)})"
                display.finished(event.name, note, keep=True)
                if event.warning:
                    warnings.warn(f"{event.name}: {event.warning}", stacklevel=2)
