"""A weights file of the user for a named architecture: ``--archs resnet20 --checkpoint FILE``.

`models/checkpoints/read_weights.py` reads the file, `Model.fill` loads it into the network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ttabench.classifier import Classifier
from ttabench.models.external import official_checkpoints
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.model import Model
from ttabench.system.progress import OnProgress, silent

CLAIMS = {each.file.file: each.claimed for each in official_checkpoints.PUBLISHED}
"""Clean accuracy in percent of published weights, by file name."""


class CheckpointModel(ExternalModel):
    """The network of `model` with the weights in `file`."""

    def __init__(self, model: Model, file: Path, *, normalize: str = "") -> None:
        super().__init__(model.name, model.dataset, normalize=normalize)
        self.asked, self.aliases = model.asked, model.aliases
        self.known_code = model.trainable
        self.model = model
        self.file = file

    @property
    def claimed_accuracy(self) -> float | None:
        return self.model.claimed_accuracy or CLAIMS.get(self.file.name)

    def build(self) -> Classifier:
        return self.model.build()

    def fill(self, classifier: Classifier, file: Path) -> None:
        self.model.fill(classifier, file)

    def weights(self, progress: OnProgress = silent) -> Path:
        return self.file

    def origin(self) -> dict[str, Any]:
        return {"origin": self.file.name}
