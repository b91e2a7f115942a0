"""SAR: sharpness-aware and reliable entropy minimisation (Niu et al., ICLR 2023).

| symbol | name           |                                                                           |
| ------ | -------------- | ------------------------------------------------------------------------- |
| E(x)   | h, second      | softmax entropy, natural logarithm, at θ and at θ + ε̂                     |
| E₀     | e0             | `e0_factor` · ln C; samples at or above it are unreliable                 |
| ρ      | rho            | ε̂ = ρ ∇E/‖∇E‖, over all adapted parameters                                |
| e_m    | average        | moving average (0.9) of the loss at θ + ε̂                                 |
| e₀     | reset_constant | below it the model is restored; an absolute entropy, chosen on ImageNet   |

Loss: mean of E over the samples reliable at θ and again at θ + ε̂. Adapted: norm layers but the top ones
(`nn.top_norms`: last stage, or last quarter of the blocks, and the final norm). Scored: the first forward
pass, before the update. If the entropy of clean images is below e₀, as on CIFAR-10, the model is reset from
the first batches on; a warning and an alarm report this. Another alarm reports resets after most batches.

Deviations: a reset clears e_m and the optimiser; without a reliable sample there is no step; dropout stays
off. Sweeps scale the learning rate with the batch size as the official script does (`rates_by_batch_size`).
As in the official code, `official_quirks=True` keeps e_m and optimiser (so the next batch resets again),
takes steps by momentum alone, and finds the top by module names, which exist only in torchvision's ResNets
and timm's ViT-B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Needs, NonNegative, SourceData
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class SARConfig(tta.NormSettings):
    """Defaults: the official ones for ResNet50 on ImageNet (batch size 64); none exist for CIFAR."""

    norms: Literal["batch", "all"] = "all"
    optimizer: Literal["adam", "sgd"] = "sgd"  # "adam", or "sgd" with momentum
    lr: NonNegative = 2.5e-4
    rho: NonNegative = 0.05
    e0_factor: NonNegative = 0.4  # E₀ over ln C: samples of higher entropy are unreliable
    reset_constant: NonNegative = 0.2
    official_quirks: bool = False  # average loss and optimiser outlive a reset; top layers by name


class SAR(tta.NormAdapter[SARConfig]):
    """Sharpness-aware entropy minimisation on reliable samples, with resets to the source."""

    name = "sar"
    paper = references.SAR
    median_paper = references.MEDBN
    needs = Needs(gradient=True, norm_layers=("batch", "group", "layer", "instance"))
    Config = SARConfig
    vit_lr = 1e-3  # ViT-B
    batch_size = 64
    scores = "the first forward pass, before the update"
    restores = "all it learned, where the average entropy falls below reset_constant"
    deviations = (
        "the layers that are not adapted are found by structure, a reset clears average and optimiser, and "
        "there is no step without a reliable sample (official_quirks: layers by name, a reset clears "
        "neither, steps by momentum); dropout and stochastic depth stay in eval mode"
    )
    entropy: Callable[[Tensor], Tensor] = staticmethod(tta.entropy)

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        self.collect(skip=tta.top_norms(self.model, by_name=cfg.official_quirks))
        self.theta0 = tta.snapshot(self.parameters)
        self.e0 = cfg.e0_factor * math.log(self.model.num_classes)
        self.average: Tensor | None = None

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        self.counts["batches"] += 1
        logits: Tensor = self.model(x)
        h = self.entropy(logits)
        reliable = h < self.e0
        self.optimizer.zero_grad()
        torch.autograd.backward(tta.masked_mean(h, reliable))
        with tta.sharpness(self.parameters.values(), self.config.rho):
            second = self.entropy(self.model(x))
            kept = self.still_reliable(reliable, second)
            loss = tta.masked_mean(second, kept)
            torch.autograd.backward(loss)
        if any_kept := bool(kept.any()):
            self.average = tta.moving_average(self.average, loss)
        if any_kept or self.config.official_quirks:
            self.optimizer.step()
            self.recover()
        return logits.detach()

    def still_reliable(self, reliable: Tensor, second: Tensor) -> Tensor:
        """Samples reliable at θ and at θ + ε̂: (B,) bool, (B,) entropies → (B,) bool."""
        return reliable & (second < self.e0)

    def recover(self) -> None:
        """Back to the source weights where e_m < e₀."""
        if self.average is None or not self.average < self.config.reset_constant:
            return
        self.counts["resets"] += 1
        tta.pull(self.parameters, self.theta0)
        if not self.config.official_quirks:
            self.average = None
            self.optimizer.state.clear()

    def check(self, clean: Tensor) -> str:
        h = self.entropy(clean)
        mean, limit = float(h[h < self.e0].mean()), self.config.reset_constant
        if not mean < limit:
            return ""
        return f"reset_constant {limit:g} > mean entropy {mean:.3g} of clean images: the model is restored"

    def alarms(self) -> dict[str, Any]:
        resets, batches = self.counts["resets"], self.counts["batches"]
        alarm = f"reset after {resets} of {batches} batches" if 2 * resets > batches else ""
        return {"alarm": alarm, "resets": resets}
