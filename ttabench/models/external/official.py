"""Networks of the authors of Compact Transformers, ``official/NAME``; see `official_checkpoints`."""

from __future__ import annotations

from ttabench.classifier import Classifier
from ttabench.models.architectures.build import build
from ttabench.models.external.download_weights import PublishedWeights
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.external.official_checkpoints import checkpoint


class OfficialModel(ExternalModel):
    """``official/NAME``: our architecture with the weights and normalisation its authors published."""

    def build(self) -> Classifier:
        there = checkpoint(self.name, self.dataset)
        mean, std = there.normalisation
        classifier = build(
            there.member, dataset=self.dataset.name, num_classes=self.dataset.num_classes,
            image_size=self.dataset.image_size, mean=mean, std=std,
        )  # fmt: skip
        return self.checked(classifier)

    def published_weights(self) -> PublishedWeights:
        there = checkpoint(self.name, self.dataset)
        return PublishedWeights(file=there.file, source="compact-transformers", claimed=there.claimed)
