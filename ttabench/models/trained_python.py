"""A network that a function of the user makes, trained here by a general recipe."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from functools import cached_property
from pathlib import Path

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.models.architectures.names import Member
from ttabench.models.external.python_path import PythonModel
from ttabench.models.model import Model
from ttabench.models.trained_model import TrainedModel
from ttabench.models.training.plans import TrainingPlan
from ttabench.models.training.recipes import PYTHON

__all__ = ["TrainedPython"]


class TrainedPython(TrainedModel):
    """``package.module:callable`` for ``ttabench train``: a network of the user that ttabench trains.

    A sweep that names the same path takes the weights that the function gives; these here are used with
    ``--checkpoint FILE``.
    """

    def __init__(
        self, name: str, dataset: Dataset, *, recipe: str = "", epochs: int = 0, seed: int = 0
    ) -> None:
        Model.__init__(self, name, dataset)
        self.path = PythonModel(name, dataset)
        self.path.build()  # so that errors in the function appear before training
        self.member = Member(name=name, family=PYTHON, options={"code": _code(name)})
        self.recipe, self.epochs, self.seed = recipe, epochs, seed

    @cached_property
    def plan(self) -> TrainingPlan:
        return TrainingPlan.of(
            self.member, self.dataset, recipe=self.recipe, epochs=self.epochs, seed=self.seed,
            maker=self.build,
        )  # fmt: skip

    def build(self) -> Classifier:
        return self.path.build()


def _code(name: str) -> str:
    """SHA-256 (hex) of the file of the function's module; "" if it has no file."""
    file = inspect.getsourcefile(importlib.import_module(name.partition(":")[0]))
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
