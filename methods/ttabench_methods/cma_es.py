"""CMA-ES: covariance matrix adaptation evolution strategy (Hansen, The CMA Evolution Strategy, 2016).

| symbol       | name       |                                                                           |
| ------------ | ---------- | ------------------------------------------------------------------------- |
| m, σ, C      | mean, sigma, covariance | of the Gaussian that candidates are drawn from               |
| λ, μ_eff     | population, mass | candidates per generation; (Σ w_i)² / Σ w_i² of the positive w_i    |
| w_i          | weights    | log((n + 1)/2) − log i, n candidates from the fittest on; the worse half  |
|              |            | counts negatively in C ("active"), scaled by Eqs. 50 to 53                |
| p_σ, p_c     | path_sigma, path_c | evolution paths                                                   |
| B D Bᵀ = C^½ | root       | computed only every few generations: a d × d eigenproblem is expensive    |

Equation numbers are those of Hansen's tutorial (arXiv 1604.00772). In float64, on the device of the start
point. `tell` also accepts external candidates, which were not drawn by `ask`; their steps are limited to the
length of a long drawn step (Hansen, Injecting External Solutions Into CMA-ES, 2011).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def strategy_weights(count: int) -> tuple[Tensor, float, float]:
    """w_i (count,), positive ones summing to 1 and negative ones to −1, and μ_eff of both kinds (49, 8)."""
    raw = math.log((count + 1) / 2) - torch.arange(1, count + 1).double().log()
    masses = []
    for part in (raw.clamp(min=0), raw.clamp(max=0)):
        masses.append(float(part.sum().square() / part.square().sum()))
        raw = torch.where(part != 0, part / part.sum().abs(), raw)
    return raw, masses[0], masses[1]


class CMAES:
    """Minimises a function of d numbers from its values alone: ask, evaluate, tell.

    start  m at first, (d,). sigma  σ at first, > 0. population  λ ≥ 2, or 0 for 4 + ⌊3 ln d⌋.
    extra  how many external candidates `tell` gets after the λ drawn ones.
    """

    def __init__(self, start: Tensor, sigma: float, population: int = 0, extra: int = 0) -> None:
        d = start.numel()
        self.mean, self.sigma = start.double(), sigma
        self.population, self.extra = population or 4 + int(3 * math.log(d)), extra
        weights, mass, negative_mass = strategy_weights(self.population + extra)
        self.mass = mass
        self.c_sigma = (mass + 2) / (d + mass + 5)
        self.damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + self.c_sigma
        self.c_path = (4 + mass / d) / (d + 4 + 2 * mass / d)
        self.c_one = 2 / ((d + 1.3) ** 2 + mass)
        self.c_mu = min(1 - self.c_one, 2 * (0.25 + mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
        negative = min(
            1 + self.c_one / self.c_mu,
            1 + 2 * negative_mass / (mass + 2),
            (1 - self.c_one - self.c_mu) / (d * self.c_mu),
        )  # (50, 51, 52)
        self.weights = torch.where(weights < 0, negative * weights, weights).to(start.device)  # (53)
        self.path_sigma, self.path_c = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        self.covariance = torch.eye(d, dtype=torch.double, device=start.device)
        self.root = self.inverse_root = self.covariance
        self.every = max(1, int(1 / (10 * d * (self.c_one + self.c_mu))))
        self.generation = 0

    def ask(self) -> Tensor:
        """λ candidates (λ, d), drawn from N(m, σ² C)."""
        normal = torch.randn(self.population, len(self.mean), dtype=torch.double, device=self.mean.device)
        return self.mean + self.sigma * normal @ self.root

    def tell(self, candidates: Tensor, values: Tensor) -> None:
        """Move to the better half of the candidates (λ + extra, d), given their values (λ + extra,)."""
        d = len(self.mean)
        steps = (candidates - self.mean) / self.sigma
        lengths = (steps @ self.inverse_root).norm(dim=1)  # each is near √d
        scale = torch.ones_like(lengths)
        scale[self.population :] = (d**0.5 + 2 * d / (d + 2)) / lengths[self.population :].clamp(min=1e-12)
        scale.clamp_(max=1)
        order = values.argsort()
        steps, lengths = (steps * scale[:, None])[order], (lengths * scale)[order]
        step = self.weights.clamp(min=0) @ steps  # (41)
        self.mean = self.mean + self.sigma * step  # (42)
        decay = 1 - self.c_sigma
        self.path_sigma = decay * self.path_sigma + math.sqrt((1 - decay**2) * self.mass) * (
            self.inverse_root @ step
        )  # (43)
        length = float(self.path_sigma.norm())
        expected = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
        self.sigma *= math.exp(self.c_sigma / self.damping * (length / expected - 1))  # (44)
        self.generation += 1
        small_path = length / math.sqrt(1 - decay ** (2 * self.generation)) < (1.4 + 2 / (d + 1)) * expected
        decay = 1 - self.c_path
        self.path_c = decay * self.path_c + small_path * math.sqrt((1 - decay**2) * self.mass) * step  # (45)
        correction = 0.0 if small_path else self.c_one * (1 - decay**2)
        negative = self.weights * d / lengths.square().clamp(min=1e-12)
        weights = torch.where(self.weights < 0, negative, self.weights)  # (46)
        self.covariance = (
            (1 - self.c_one - self.c_mu * float(self.weights.sum()) + correction) * self.covariance
            + self.c_one * torch.outer(self.path_c, self.path_c)
            + self.c_mu * (steps.T * weights) @ steps
        )  # (47)
        if self.generation % self.every == 0:
            self.decompose()

    def decompose(self) -> None:
        """C^½ and C^−½."""
        values, vectors = torch.linalg.eigh((self.covariance + self.covariance.T) / 2)
        scale = values.clamp(min=1e-20).sqrt()
        self.root = (vectors * scale) @ vectors.T
        self.inverse_root = (vectors / scale) @ vectors.T
