"""Mean and variance, or mean and covariance, of data that arrive in parts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


class RunningMoments:
    """Mean and sum of squared deviations of rows that arrive in parts (Chan, Golub and LeVeque, 1983).

    kind    "variance" of each entry, or "covariance" of rows (k,).
    count   rows so far.
    mean    (…); set by the first part, as is `spread`.
    spread  Σ d² per entry (…), or Σ d dᵀ (k, k), with d the deviations from the mean.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, kind: Literal["variance", "covariance"]) -> None:
        self.kind = kind
        self.count = 0

    def add(self, rows: Tensor) -> None:
        """Add rows (n, …), n ≥ 1. Sums have the rows' precision, also under autocast."""
        with torch.autocast(rows.device.type, enabled=False):
            self._add(rows)

    def _add(self, rows: Tensor) -> None:
        mean = rows.mean(dim=0)
        spread = self._squares(rows - mean)
        if not self.count:
            self.count, self.mean, self.spread = len(rows), mean, spread
            return
        total = self.count + len(rows)
        shift = mean - self.mean
        self.spread = self.spread + spread + self._squares(shift[None]) * (self.count * len(rows) / total)
        self.mean = self.mean + shift * (len(rows) / total)
        self.count = total

    def second(self, correction: int = 0) -> Tensor:
        """Variance (…) or covariance (k, k): `spread` divided by max(count − `correction`, 1)."""
        return self.spread / max(self.count - correction, 1)

    def _squares(self, deviations: Tensor) -> Tensor:
        return deviations.T @ deviations if self.kind == "covariance" else deviations.square().sum(dim=0)
