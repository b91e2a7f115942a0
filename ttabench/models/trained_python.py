"""A network that a function of the user makes, trained here by a general recipe."""

from __future__ import annotations

import hashlib

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.models.architectures.arch_names import Member
from ttabench.models.external.python_path import PythonModel
from ttabench.models.model import Model
from ttabench.models.soundness.group_norm import guard_group_norm
from ttabench.models.trained_model import TrainedModel
from ttabench.models.training.recipes import PYTHON
from ttabench.provenance.modules import module_file, network_modules


class TrainedPython(TrainedModel):
    """``package.module:callable`` for ``ttabench train``: a network of the user that ttabench trains.

    A sweep that names the same path takes the weights that the function gives; these here are used with
    ``--checkpoint FILE``.
    """

    def __init__(self, name: str, dataset: Dataset) -> None:
        Model.__init__(self, name, dataset)
        self.path = PythonModel(name, dataset)
        self.path.build()  # so that errors in the function appear before training
        self.member = Member(name=name, family=PYTHON, options={"code": _code(name)})

    def build(self) -> Classifier:
        classifier = self.path.build()
        guard_group_norm(classifier)  # the user may have frozen the layers before one
        return classifier


def _code(name: str) -> str:
    """SHA-256 (hex) of the files of the function's module and of what it imports from its project."""
    modules = sorted(network_modules(name.partition(":")[0]))
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in map(module_file, modules) if file]
    return hashlib.sha256("".join(digests).encode()).hexdigest()
