"""``--log mlflow``: a run named after the results folder, where ``MLFLOW_TRACKING_URI`` points."""

from __future__ import annotations

from pathlib import Path

from ttabench.sweep.loggers import imported


class MLflow:
    """Metrics of one MLflow run."""

    def __init__(self, folder: Path) -> None:
        self._mlflow = imported("mlflow", "mlflow")
        self._mlflow.start_run(run_name=folder.absolute().name)

    def log(self, values: dict[str, float], step: int) -> None:
        self._mlflow.log_metrics(values, step=step)

    def close(self) -> None:
        self._mlflow.end_run()
