"""``--log wandb``: a run of the project ``ttabench``, or of ``WANDB_PROJECT``."""

from __future__ import annotations

import os
from pathlib import Path

from ttabench.sweep.loggers import imported


class WeightsAndBiases:
    """Metrics of one run. The step is a value of its own, as steps of a run may only grow."""

    def __init__(self, folder: Path) -> None:
        wandb = imported("wandb", "wandb")
        project = os.environ.get("WANDB_PROJECT", "ttabench")
        self._run = wandb.init(project=project, name=folder.absolute().name, dir=str(folder))

    def log(self, values: dict[str, float], step: int) -> None:
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()
