"""``--log tensorboard``: event files in the folder ``tensorboard`` of the results."""

from __future__ import annotations

from pathlib import Path

from ttabench.sweep.loggers import imported


class TensorBoard:
    """Scalars for ``tensorboard --logdir RESULTS/tensorboard``."""

    def __init__(self, folder: Path) -> None:
        module = imported("tensorboard", "torch.utils.tensorboard")
        self._writer = module.SummaryWriter(str(folder / "tensorboard"))

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
