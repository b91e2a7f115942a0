"""A network with more classes than the dataset: its last layer keeps the outputs of the dataset's classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ttabench.classifier import Classifier
from ttabench.data.published.own_head import OwnHead
from ttabench.errors import UserError
from ttabench.models.external.external_model import ExternalModel
from ttabench.system.progress import OnProgress, silent


class HeadRows(ExternalModel):
    """The network of `whole`, with the rows of its last layer that belong to the classes of `dataset`.

    whole   the same network for all classes.
    own     the same network for these classes alone. It is taken where it has as many outputs.
    """

    def __init__(self, whole: ExternalModel, own: ExternalModel, dataset: OwnHead) -> None:
        super().__init__(whole.name, dataset, normalize=whole.normalize)
        self.asked, self.aliases, self.known_code = whole.asked, whole.aliases, whole.known_code
        self.whole, self.own, self.kept = whole, own, dataset.kept

    def build(self) -> Classifier:
        return self._of_either(lambda model: model.build())

    def build_pretrained(self) -> Classifier:
        return self._of_either(lambda model: model.build_pretrained())

    def fill(self, classifier: Classifier, file: Path) -> None:
        def filled(model: ExternalModel) -> Classifier:
            made = model.build()
            model.fill(made, file)
            return made

        classifier.net.load_state_dict(self._of_either(filled).net.state_dict())

    def weights(self, progress: OnProgress = silent) -> Path | None:
        return self.whole.weights(progress)

    def origin(self) -> dict[str, Any]:
        return self.whole.origin()

    def _of_either(self, make: Callable[[ExternalModel], Classifier]) -> Classifier:
        """What is made of the whole network, with the rows of the dataset's classes; else of its own.

        Raises the UserError of the whole one where both fail.
        """
        try:
            return self.checked(keep_rows(make(self.whole), self.kept))
        except UserError as problem:
            try:
                return make(self.own)
            except UserError:
                raise problem from None


def keep_rows(classifier: Classifier, kept: Sequence[int]) -> Classifier:
    """`classifier`, whose last layer has now the outputs `kept` alone, in this order."""
    layer = classifier.linear
    for name in ("weight", "bias"):
        tensor = getattr(layer, name)
        if tensor is not None:
            rows = tensor.detach()[list(kept)].clone()
            setattr(layer, name, nn.Parameter(rows) if isinstance(tensor, nn.Parameter) else rows)
    layer.out_features = len(kept)
    return classifier
