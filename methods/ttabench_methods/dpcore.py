"""DPCore: a growing set of prompts, one for each kind of shift (Zhang et al., ICML 2025).

| symbol | name      |                                                                                  |
| ------ | --------- | -------------------------------------------------------------------------------- |
| p      | prompts   | N_p tokens after the class token, before the first block                         |
| S      | source    | moments of the features of source images that are classified surely              |
| Γ      | moments   | mean μ and unbiased deviation σ of the features of a batch                       |
| d      | apart     | ‖μ − μ_S‖ + ‖σ − σ_S‖, the distance of a batch                                   |
| Γ_j    | means, spreads | coreset: moments of a batch without prompts                                 |
| p_j    | core      | coreset: its prompts                                                             |
| w      | weights   | softmax over j of −(‖μ − μ_j‖ + ‖σ − σ_j‖) / τ                                   |
| ρ      | threshold | a shift is known where d with prompts Σ w_j p_j is below ρ d without prompts     |
| α      | step      | of the coreset towards new prompts and moments                                   |

Known shift: one step of AdamW on d, from Σ w_j p_j. Then each p_j and μ_j moves by α w_j of the way to the
new prompts and to μ of the prompted batch; σ_j as well, but upwards only. New shift: `steps` steps from the
first prompts; the result enters the coreset, with the moments of the batch. Scored: the forward pass before
the last step. No weight of the network changes.

Deviations: the coreset has at most `capacity` elements; a further one replaces the nearest (official: no
limit). Source images count as sure below 0.355 ln C (official: ln 1000/2 − 1, the same at C = 1000), judged
without prompts (official: with the first ones). The deviation of one image is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ttabench import nn as tta
from ttabench.method import Count, Method, Needs, NonNegative, Positive, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.prompts import Prompted

Moments = tuple[Tensor, Tensor]  # mean (k,) and deviation (k,)
LOOKED_AT = 10  # source images that are looked at for each sure one that is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class DPCoreConfig:
    """Defaults: the official configuration for ImageNet-C (batch size 64)."""

    prompts: Count = 8  # N_p: tokens inserted after the class token
    steps: Count = 50  # updates on a batch of a new shift
    lr: NonNegative = 0.1  # learning rate of AdamW
    weight_decay: NonNegative = 0.01  # weight decay of AdamW
    temperature: Positive = 3.0  # τ: temperature of the weights of the coreset
    threshold: NonNegative = 0.8  # ρ: a shift is known if prompts reduce the distance to below this share
    step: UnitInterval = 0.999  # α: step of the coreset towards new prompts and moments
    capacity: Count = 100  # largest number of prompts in the coreset (ours)
    e0_factor: NonNegative = 0.355  # entropy over ln C, below which a source image is sure
    source_images: Count = 300  # sure source images for the moments
    source_batch_size: Count = 64  # images per batch of them


def moments(z: Tensor) -> Moments:
    """Mean and unbiased deviation over the batch: (B, k) → (k,), (k,)."""
    deviation, mean = torch.std_mean(tta.widen(z), dim=0, correction=min(1, len(z) - 1))
    return mean, deviation


def apart(a: Moments, b: Moments) -> Tensor:
    """Sum of the distances of means and of deviations, (…, k) each → (…)."""
    distances: Tensor = (a[0] - b[0]).norm(dim=-1) + (a[1] - b[1]).norm(dim=-1)
    return distances


class DPCore(Method[DPCoreConfig]):
    """Prompts that bring features to the source's, remembered by the shift they were learned on."""

    name = "dpcore"
    paper = references.DPCORE
    needs = Needs(
        gradient=True, source_data="images", tags=("transformer",), rules_out=("no_room_for_prompts",)
    )
    Config = DPCoreConfig
    batch_size = 64
    scores = "the forward pass with prompts, before their last update"
    scores_frozen = "a forward pass with the weighted prompts of the coreset"
    deviations = (
        "the coreset has at most capacity elements (official: no limit); source images are sure below "
        "0.355 ln C, judged without prompts (official: ln 1000/2 − 1, with the first prompts); without a "
        "class token, the features are the input of the last layer"
    )

    @torch.no_grad()
    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        self.source = self.source_moments(source)
        start = torch.empty(cfg.prompts, self.width).uniform_(-1, 1) * (3 / self.width) ** 0.5
        self.start = start.to(self.source[0])
        self.means = self.start.new_zeros(cfg.capacity, len(self.source[0]))
        self.spreads = torch.zeros_like(self.means)
        self.core = self.start.new_zeros(cfg.capacity, *self.start.shape)
        self.filled = 0

    def source_moments(self, source: SourceData | None) -> Moments:
        """μ_S and σ_S of the first sure source images; of all, where fewer than two are sure."""
        cfg, rows, certain = self.config, [], []
        limit = cfg.e0_factor * math.log(self.model.num_classes)
        for x in tta.source_batches(source, cfg.source_batch_size, LOOKED_AT * cfg.source_images):
            with Prompted(self.model) as prompted:
                z, logits = self.model.features_and_logits(x)
            self.width = prompted.tokens.shape[2]
            rows.append(z)
            certain.append(tta.entropy(logits) < limit)
            if sum(int(one.sum()) for one in certain) >= cfg.source_images:
                break
        z = torch.cat(rows)
        sure = z[torch.cat(certain)][: cfg.source_images]
        return moments(sure if len(sure) > 1 else z)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            plain = moments(self.model.features(x))
        if self.filled:
            weights = self.weights(plain)
            prompts = nn.Parameter(self.weighted(weights))
            logits, now = self.look(x, prompts)
            if apart(now, self.source) < self.config.threshold * apart(plain, self.source):
                self.update(prompts, now, self.optimizer(prompts))
                self.refine(weights, prompts.detach(), (now[0].detach(), now[1].detach()))
                self.counts["known"] += 1
                return logits.detach()
        return self.learn(x, plain)

    def learn(self, x: Tensor, plain: Moments) -> Tensor:
        """New prompts for a batch whose moments are `plain`; they enter the coreset."""
        prompts = nn.Parameter(self.start.clone())
        optimizer = self.optimizer(prompts)
        for _ in range(self.config.steps):
            logits, now = self.look(x, prompts)
            self.update(prompts, now, optimizer)
        full = self.filled == self.config.capacity
        place = int(self.weights(plain).argmax()) if full else self.filled
        self.means[place], self.spreads[place] = plain
        self.core[place] = prompts.detach()
        self.filled += not full
        self.counts["new"] += 1
        return logits.detach()

    def look(self, x: Tensor, prompts: Tensor) -> tuple[Tensor, Moments]:
        """Logits (B, C) and moments with prompts."""
        with Prompted(self.model, prompts):
            z, logits = self.model.features_and_logits(x)
        return logits, moments(z)

    def optimizer(self, prompts: nn.Parameter) -> torch.optim.Optimizer:
        return tta.make_optimizer("adamw", [prompts], self.config.lr, weight_decay=self.config.weight_decay)

    def update(self, prompts: nn.Parameter, now: Moments, optimizer: torch.optim.Optimizer) -> None:
        tta.minimise(apart(now, self.source), optimizer)

    def weights(self, plain: Moments) -> Tensor:
        """w (J,) for a batch whose moments without prompts are `plain`."""
        known = self.means[: self.filled], self.spreads[: self.filled]
        return (-apart(plain, known) / self.config.temperature).softmax(dim=0)

    def weighted(self, weights: Tensor) -> Tensor:
        """Σ w_j p_j: (N_p, d)."""
        return torch.einsum("j,jpd->pd", weights, self.core[: self.filled])

    def refine(self, weights: Tensor, prompts: Tensor, now: Moments) -> None:
        """Move the coreset towards new prompts and moments."""
        step = (self.config.step * weights)[:, None]
        means, spreads, core = (one[: self.filled] for one in (self.means, self.spreads, self.core))
        means += step * (now[0] - means)
        spreads += step * (now[1] - spreads).clamp_min(0)
        core += step[..., None] * (prompts - core)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        if not self.filled:
            return super().predict(x)
        return self.look(x, self.weighted(self.weights(moments(self.model.features(x)))))[0]

    def adapted(self) -> str:
        return f"{self.config.prompts} prompts ({self.start.numel():,} numbers)"

    def alarms(self) -> dict[str, object]:
        return {"new": self.counts["new"]}
