"""FOA: forward passes only. CMA-ES searches prompts for a vision transformer (Niu et al., ICML 2024).

| symbol       | name       |                                                                             |
| ------------ | ---------- | --------------------------------------------------------------------------- |
| p            | prompts    | N_p tokens put behind the class token, before the first block               |
| K            | population | candidates per batch, each one forward pass                                 |
| μ_i, σ_i     | moments    | mean and deviation over the batch of the class token after block i          |
| μ_i^S, σ_i^S | source     | the same on `source_images` source images, without prompts                  |
| λ            | weight     | fitness: Σ_x H(ŷ) + λ · B/64 · Σ_i ‖μ_i − μ_i^S‖ + ‖σ_i − σ_i^S‖ (Eq. 5)     |
| d_t, γ       | step       | logits = head(z + γ d_t), d_t = μ_N^S − μ_N(t) (Eqs. 7, 8)                  |
| μ_N(t)       | average    | moving average of the mean feature z, new batches with weight α             |

A batch costs K + 1 forward passes: with the mean of the search distribution, which moves μ_N(t), and with
each candidate. Scored: the fittest candidate's, shifted by γ d_t. Nothing is differentiated and no weight
changes. Offline mode searches the same way, then predicts with the mean of the search distribution.

Deviations: written from the description alone. Unverified: how the search starts (here at p = 0, with σ =
`sigma` times the standard deviation of the tokens), how μ_N(t) does (here with the first batch), and what the
extra pass is for. Where there is no class token, the mean over the tokens stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Count, Method, Needs, NonNegative, Positive, Range, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.cma_es import CMAES
from ttabench_methods.prompts import Prompted


@dataclass(frozen=True, slots=True, kw_only=True)
class FOAConfig:
    """Defaults: the paper's for ImageNet-C (batch size 64). population: K, 0 = 4 + ⌊3 ln(N_p d)⌋."""

    prompts: Count = 3
    population: Annotated[int, Range(least=2, also=0)] = 0
    sigma: Positive = 1.0
    weight: NonNegative = 0.4
    alpha: UnitInterval = 0.1
    step: NonNegative = 1.0
    source_images: Annotated[int, Range(least=2)] = 32


def moments(summaries: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """μ_i, σ_i over the batch, block by block: (B, d) → (d,), (d,)."""
    return [(x.mean(dim=0), x.std(dim=0, correction=0)) for x in summaries]


class FOA(Method[FOAConfig]):
    """Prompts found by CMA-ES, so that outputs are sure and activations stay like the source's."""

    name = "foa"
    paper = references.FOA
    needs = Needs(source_data="images", tags=("transformer",), rules_out=("no_room_for_prompts",))
    Config = FOAConfig
    batch_size = 64
    scores = "the forward pass with the fittest prompts, its features shifted towards the source"
    scores_frozen = "a forward pass with the mean of the last prompts, its features shifted as before"
    deviations = "start of the search and of the moving average are unverified"

    @torch.no_grad()
    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        images = torch.cat(list(tta.source_batches(source, cfg.source_images, cfg.source_images)))
        with Prompted(self.model) as seen:
            self.source_mean = tta.widen(self.model.features(images)).mean(dim=0)
        self.source = moments(seen.summaries)
        self.average: Tensor | None = None
        start = torch.zeros(cfg.prompts * seen.tokens.shape[2], device=images.device)
        self.search = CMAES(start, cfg.sigma * float(seen.tokens.std()), cfg.population)

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        z, _ = self.look(x, self.search.mean)
        self.average = tta.moving_average(self.average, z.mean(dim=0), 1 - self.config.alpha)
        candidates = self.search.ask()
        tried = [self.look(x, candidate) for candidate in candidates]
        values = torch.stack([value for _, value in tried])
        self.search.tell(candidates, values)
        return self.shifted(tried[int(values.argmin())][0])

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.shifted(self.look(x, self.search.mean)[0])

    def look(self, x: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, k) and fitness () with the prompts of one candidate (N_p · d,)."""
        with Prompted(self.model, candidate.view(self.config.prompts, -1)) as seen:
            z, logits = self.model.features_and_logits(x)
        return tta.widen(z), self.fitness(logits, seen.summaries)

    def fitness(self, logits: Tensor, summaries: list[Tensor]) -> Tensor:
        """Eq. 5 per image: mean entropy + λ/64 · distance of the moments, summed over the blocks."""
        found = zip(moments(summaries), self.source, strict=True)
        apart = [(m - m0).norm() + (s - s0).norm() for (m, s), (m0, s0) in found]
        return tta.entropy(logits).mean() + self.config.weight / 64 * torch.stack(apart).sum()

    def shifted(self, z: Tensor) -> Tensor:
        """Logits (B, C) of features (B, k) moved by γ d_t (Eqs. 7, 8)."""
        shift = 0 if self.average is None else self.source_mean - self.average
        return self.model.head(z + self.config.step * shift)

    def adapted(self) -> str:
        return f"{self.config.prompts} prompts ({len(self.search.mean):,} numbers)"
