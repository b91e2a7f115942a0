"""Models by name, for tests: each function resolves the name and asks the object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.models.checkpoints import cache
from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.external.download_weights import PublishedWeights
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.resolve import resolve_model, resolve_trainable
from ttabench.models.trained_model import TrainedModel
from ttabench.models.training import train as training
from ttabench.models.training.weights_identity import TrainingPlan
from ttabench.system.progress import OnProgress, silent


def trained(name: str, dataset: Dataset, **options: Any) -> TrainedModel:
    return resolve_trainable(name, dataset, **{k: v or 0 if k == "epochs" else v for k, v in options.items()})


def plan(name: str, dataset: Dataset, **options: Any) -> TrainingPlan:
    return trained(name, dataset, **options).plan


def find(name: str, dataset: Dataset, **options: Any) -> Path | None:
    return trained(name, dataset, **options).weights()


def load(name: str, dataset: Dataset, **options: Any) -> Loaded:
    return trained(name, dataset, **options).load()


def note(name: str, dataset: Dataset, **options: Any) -> Any:
    described = cache.read(plan(name, dataset, **options).path)
    return None if described is None else described.note


def train(
    name: str,
    dataset: Dataset,
    *,
    device: str = "cpu",
    precision: str = "auto",
    on_progress: Any = None,
    **options: Any,
) -> Loaded:
    model = trained(name, dataset, **options)
    training.train(model.plan, dataset, device=device, precision=precision, on_progress=on_progress)
    return model.load()


def recall(name: str, dataset: Dataset, sha256: str) -> Loaded | None:
    return resolve_model(name, dataset).recall(sha256)


def construct(name: str, dataset: Dataset, *, pretrained: bool = False) -> Classifier:
    model = resolve_model(name, dataset)
    return model.build_pretrained() if pretrained and isinstance(model, ExternalModel) else model.build()


def fill(name: str, classifier: Classifier, file: Path, dataset: Dataset) -> None:
    resolve_model(name, dataset).fill(classifier, file)


def published(name: str, dataset: Dataset) -> PublishedWeights | None:
    model = resolve_model(name, dataset)
    return model.published_weights() if isinstance(model, ExternalModel) else None


def bring(
    name: str, dataset: Dataset, *, device: str = "cpu", progress: OnProgress = silent, **options: Any
) -> Loaded:
    """As `load`, and a name that has no weights raises even where it was trained."""
    return resolve_model(name, dataset, **options).load(device, progress)
