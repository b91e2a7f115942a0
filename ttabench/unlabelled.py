"""Scores by which settings can be chosen without target labels; of two settings, the higher score is better.

How well such scores choose is studied by Cygert et al., arXiv 2407.14231. p are the softmax probabilities of
the logits that are scored, (n, C), p̄ their mean over the images, and H the entropy, natural logarithm.

| name            | score                                                                                   |
| --------------- | --------------------------------------------------------------------------------------- |
| entropy         | −mean H(p)                                                                              |
| infomax         | H(p̄) − mean H(p), the mutual information of image and prediction                       |
| nuclear_norm    | the sum of the singular values of p, divided by √(n·min(n, C)) (Cui et al., CVPR 2020)  |
| snd             | soft neighbourhood density (Saito et al., ICCV 2021)                                    |
| consistency     | % of images that have the same prediction as a view of them, after adapting             |
| source_accuracy | accuracy in % on labelled source images, after adapting                                 |
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ttabench.nn import entropy

__all__ = ["CHEAP", "Collected", "nuclear_norm", "snd"]

CHEAP = ("entropy", "infomax", "nuclear_norm", "snd")
"""The scores that come from the logits alone; every cell has them."""
ROWS = 2000  # of p, at least, for the nuclear norm, where there are more images
NEIGHBOURS = 500  # rows of p for soft neighbourhood density, whose work grows with their square
TEMPERATURE = 0.05


class Collected:
    """The logits of a cell, batch by batch, as far as the scores need them.

    Memory does not grow with the number of images: of many, rows at equal distances are kept.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._entropy: Tensor | float = 0.0
        self._mean: Tensor | float = 0.0
        self._rows: list[Tensor] = []
        self._kept, self._every = 0, 1

    @torch.no_grad()
    def add(self, logits: Tensor) -> None:
        """Add the logits (b, C) of some images; a GPU is not waited for."""
        logits = logits.detach().float()
        p = logits.softmax(dim=1)
        self._entropy = self._entropy + entropy(logits).sum(dtype=torch.float64)
        self._mean = self._mean + p.sum(dim=0, dtype=torch.float64)
        rows = p[-self._seen % self._every :: self._every]
        self._seen += len(p)
        self._rows.append(rows)
        self._kept += len(rows)
        while self._kept >= 2 * ROWS:
            self._rows = [torch.cat(self._rows)[::2]]
            self._kept, self._every = len(self._rows[0]), 2 * self._every

    @torch.no_grad()
    def scores(self) -> dict[str, float | None]:
        """The scores of :data:`CHEAP`; None for a score that so few images do not have."""
        if not self._seen:
            return dict.fromkeys(CHEAP)
        mean = torch.as_tensor(self._mean).cpu() / self._seen
        within = float(self._entropy) / self._seen
        p = torch.cat(self._rows).cpu()
        values = {
            "entropy": -within,
            "infomax": float(torch.special.entr(mean).sum()) - within,
            "nuclear_norm": nuclear_norm(p),
            "snd": snd(p[:: math.ceil(len(p) / NEIGHBOURS)]) if len(p) > 2 else None,
        }
        return {name: None if value is None else round(value, 6) for name, value in values.items()}


def nuclear_norm(p: Tensor) -> float:
    """The sum of the singular values of p (n, C), over its largest possible value √(n·min(n, C)): 0 … 1."""
    n, classes = p.shape
    wide = p.double().numpy()
    gram = wide.T @ wide if classes <= n else wide @ wide.T
    singular = np.sqrt(np.linalg.eigvalsh(gram).clip(0))
    return float(singular.sum()) / math.sqrt(n * min(n, classes))


def snd(p: Tensor) -> float:
    """Soft neighbourhood density of p (n, C), n ≥ 2: 0 … ln(n − 1).

    It is the mean entropy of the softmax over each row of the cosine similarities, divided by 0.05, without
    the similarity of an image to itself. It is higher where predictions form dense groups.
    """
    unit = torch.nn.functional.normalize(p.float(), dim=1)
    similar = (unit @ unit.T / TEMPERATURE).fill_diagonal_(-math.inf)
    chances = similar.softmax(dim=1)
    return float(torch.special.entr(chances).sum(dim=1).mean())
