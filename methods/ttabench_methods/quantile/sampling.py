"""Which points quantile indices are matched at (Section 4.1), and, as a variant, within which class."""

from __future__ import annotations

import torch
from torch import Tensor

from ttabench.nn import Classifier

__all__ = ["ByClass", "high_confidence_uniform"]


def high_confidence_uniform(logits: Tensor, per_class: int, keep: float = 0.5) -> Tensor:
    """Positions of class-balanced, confidently classified samples, from the classifier's own logits (n, C).

    Of each predicted class the `keep` most confident fraction (more, where `per_class` asks for it), and of
    these `per_class` at random. A class with fewer samples gives all. Returns int64 positions, by class.
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
    """Indices within classes: only features that are predicted to be of a point's class count at that point.

    For 2Q points, the same Q twice: features weigh 1 at the first half and, at the second, √`weight` × C
    where the classes agree, else 0. With the weight a part of h the index stays a mean over all features, so
    the loss stays composite-separable (Section 4.2). Where classes are equally frequent it is √`weight` times
    the index within the class.
    """

    def __init__(self, model: Classifier, unit: Tensor, points: Tensor, weight: float) -> None:
        self.model, self.unit = model, unit
        self.classes = self.predict(points)
        self.scale = weight**0.5 * model.num_classes

    def __call__(self, features: Tensor) -> Tensor:
        """(b, k) → (2Q, b)"""
        agree = self.classes[:, None] == self.predict(features)
        return torch.cat([torch.ones_like(agree, dtype=features.dtype), self.scale * agree])

    def predict(self, features: Tensor) -> Tensor:
        """(b, k) → classes (b,)"""
        z = (features * self.unit).to(self.model.linear.weight.dtype)
        return self.model.head(z).argmax(1)
