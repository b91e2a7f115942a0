"""``--log mlflow``: a run named after the results folder, where ``MLFLOW_TRACKING_URI`` points."""

from __future__ import annotations

from pathlib import Path

from ttabench.errors import UserError


class MLflow:
    """Metrics of one MLflow run."""

    def __init__(self, folder: Path) -> None:
        try:
            import mlflow
        except ImportError as problem:
            raise UserError(f"--log mlflow needs a package ({problem}); pip install mlflow.") from None
        self._mlflow = mlflow
        mlflow.start_run(run_name=folder.absolute().name)

    def log(self, values: dict[str, float], step: int) -> None:
        self._mlflow.log_metrics(values, step=step)

    def close(self) -> None:
        self._mlflow.end_run()
