"""Mirror: the mean of what the classifier says of an image and of its mirror image.

Scored: the weighted mean of both forward passes. Nothing is learned.

Deviations: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ttabench.method import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """weight: of the mirror image's logits, 0 … 1."""

    weight: float = 0.5


class Mirror(Method[MirrorConfig]):
    """Average the logits of an image and of its mirror image."""

    name = "mirror"
    Config = MirrorConfig
    scores = "the mean of the image's and its mirror image's forward pass"

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def predict(self, x: Tensor) -> Tensor:
        weight = self.config.weight
        return (1 - weight) * super().predict(x) + weight * super().predict(x.flip(-1))
