"""The points where quantile indices are matched (Section 4.1), and weights for indices within classes."""

from __future__ import annotations

import torch
from torch import Tensor

from ttabench.nn import Classifier


def high_confidence_uniform(logits: Tensor, per_class: int, keep: float = 0.5) -> Tensor:
    """Positions of class-balanced, confidently classified samples, from the classifier's own logits (n, C).

    From each predicted class, `per_class` samples are drawn at random among the most confident fraction
    `keep`, or among the `per_class` most confident if these are more. A class with fewer samples gives all.
    Returns int64 positions, class by class.
    """
    confidence, predicted = logits.float().softmax(1).max(1)
    chosen = []
    for c in range(logits.shape[1]):
        members = (predicted == c).nonzero().squeeze(1)
        ranked = members[confidence[members].argsort(descending=True)]
        confident = ranked[: max(per_class, round(keep * len(ranked)))]
        chosen.append(confident[torch.randperm(len(confident))[:per_class].to(confident.device)])
    return torch.cat(chosen)


class ByClass:
    """Weights for indices within classes: at a point, only features count that are predicted as its class.

    There are 2Q points: Q points, and the same again. At the first Q, each feature has the weight 1. At the
    others, it has √`weight` · C if its class is that of the point, else 0. The weight is a part of h, so the
    index is still a mean over all features, and the loss stays composite-separable (Section 4.2). If classes
    are equally frequent, this mean is √`weight` times the index within the class.
    """

    def __init__(self, model: Classifier, unit: Tensor, points: Tensor, weight: float) -> None:
        self.model, self.unit = model, unit
        self.classes = self.predict(points)
        self.scale = weight**0.5 * model.num_classes

    def __call__(self, features: Tensor) -> Tensor:
        """Weights (2Q, b) of features (b, k)."""
        agree = self.classes[:, None] == self.predict(features)
        return torch.cat([torch.ones_like(agree, dtype=features.dtype), self.scale * agree])

    def predict(self, features: Tensor) -> Tensor:
        """Predicted classes (b,) of features (b, k)."""
        z = (features * self.unit).to(self.model.linear.weight.dtype)
        return self.model.head(z).argmax(1)
