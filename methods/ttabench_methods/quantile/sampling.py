"""High-confidence uniform sampling (Section 4.1): the points where quantile indices are matched."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["high_confidence_uniform"]


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
