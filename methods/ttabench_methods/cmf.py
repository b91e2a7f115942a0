"""CMF: continual momentum filtering of the weights (Lee and Chang, ICLR 2024).

Loss, weights, views and scored forward pass are ROID's: see `roid`. ROID pulls the weights back to the
source θ₀; CMF pulls them to a hidden model, which a Kalman filter moves from θ₀ towards what was learned.

| symbol | name     |                                                                                 |
| ------ | -------- | ------------------------------------------------------------------------------- |
| θ, φ   | parameters, hidden | learned weights, hidden weights; φ starts at θ₀                       |
| α      | alpha    | prediction: φ ← α φ + (1 − α) θ₀, variance v ← α² v + Q                         |
| q, Q   | q, noise | process noise Q = q · P/38,400 for P adapted values; measurement noise 1 − Q    |
| β      | beta     | (1 − Q)/(v + 1 − Q), the gain being 1 − β                                       |
| γ      | ensemble | θ ← γ θ + (1 − γ) φ                                                             |

Correction: v ← β v, φ ← β φ + (1 − β) θ. v and β do not depend on the data. β is at least 0.89, and set to 1
from 0.9999 on: the gain is 0 or between 0.0001 and 0.11. Q grows with P, so networks with few norm parameters
are filtered little: with the defaults the gain settles at 0.06 for P = 38,400, at 0.027 for 9,600
(ResNet18), at 0.0014 for 224, and at 0, which is ROID, up to 15.

Deviations: ROID's; single precision, where the official code has half. The limits of β and the 38,400 are
the official code's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ttabench import nn as tta
from ttabench.method import NonNegative, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.roid import ROID, ROIDConfig

LEAST_BETA, NO_GAIN = 0.89, 0.9999
REFERENCE_SIZE = 38_400


@dataclass(frozen=True, slots=True, kw_only=True)
class CMFConfig(ROIDConfig):
    """Defaults: the official configuration. `ensemble` is γ."""

    alpha: UnitInterval = 0.99
    q: NonNegative = 0.005


def gain(variance: float, noise: float) -> tuple[float, float]:
    """β from the predicted variance v and the noise Q, and the corrected variance β v."""
    learning = max(0.0, 1 - noise)
    beta = max(LEAST_BETA, learning / (variance + learning))
    beta = 1.0 if beta >= NO_GAIN else beta
    return beta, beta * variance


class CMF(ROID):
    """ROID whose weights stay near a filtered model instead of the source."""

    name = "cmf"
    paper = references.CMF
    Config = CMFConfig
    restores = "a part of what it learned, after every step, towards the hidden model"
    deviations = f"{ROID.deviations}; single precision (official code: half)"

    config: CMFConfig

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        self.hidden = tta.snapshot(self.parameters)
        self.noise = self.config.q * sum(p.numel() for p in self.parameters.values()) / REFERENCE_SIZE
        self.variance, self.beta = 0.0, 1.0

    @torch.no_grad()
    def pull_back(self) -> None:
        """Move the hidden model, and pull the weights to it."""
        alpha, hidden = self.config.alpha, list(self.hidden.values())
        torch._foreach_lerp_(hidden, list(self.theta0.values()), 1 - alpha)
        self.beta, self.variance = gain(alpha**2 * self.variance + self.noise, self.noise)
        torch._foreach_lerp_(hidden, [p.detach() for p in self.parameters.values()], 1 - self.beta)
        tta.pull(self.parameters, self.hidden, 1 - self.config.ensemble)

    def alarms(self) -> dict[str, Any]:
        return {"beta": round(self.beta, 5)}
