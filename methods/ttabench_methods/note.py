"""NOTE: robust continual test-time adaptation against temporal correlation (Gong et al., NeurIPS 2022).

| symbol   | name        |                                                                                |
| -------- | ----------- | ------------------------------------------------------------------------------ |
| μ̄, σ̄²   | running_*   | running statistics of a channel: they start at the source's                     |
| μ̃, σ̃²   |             | statistics of one image in a channel, over its L locations                      |
| s_μ      |             | √(σ̄²/L), the standard error of an image's mean                                 |
| s_σ²     |             | σ̄² √(2/(L − 1)), that of its variance                                          |
| ψ(x; λ)  | softshrink  | x moved towards 0 by λ, and 0 within λ of it                                     |
| α        | alpha       | IABN: μ = μ̄ + ψ(μ̃ − μ̄; α s_μ), σ² = σ̄² + ψ(σ̃² − σ̄²; α s_σ²)                |
| N        | capacity    | images in the memory (PBRS: reservoir sampling, balanced over predicted classes) |
| m        | bn_momentum | momentum of the running statistics                                              |

Instance-aware batch norm (IABN) trusts the running statistics, and corrects them only for images that are far
from them. After every `update_every` arrivals, whatever the batch size, it takes a step of entropy
minimisation on the memory. There the statistics of the memory stand for μ̄ and σ̄², and move them by m.
Adapted: affine parameters of batch norm. Scored: a forward pass in eval mode when an image arrives, with the
weights and statistics of the last update; it does not depend on the other images of the batch.

Deviations: IABN replaces batch norm at test time; in the paper the source network is trained with it, so
numbers of the paper are not comparable. One location has no statistics of its own. Dropout stays off.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ttabench import nn as tta
from ttabench.method import Count, Method, Momentum, Needs, NonNegative, SourceData, UnitInterval
from ttabench_methods import references
from ttabench_methods.memory import PBRS, Item


@dataclass(frozen=True, slots=True, kw_only=True)
class NOTEConfig:
    """Defaults: the configuration of the paper."""

    lr: NonNegative = 1e-4  # learning rate of Adam
    momentum: Momentum = 0.9  # β₁ of Adam
    alpha: NonNegative = 4.0  # standard errors within which an image's statistics are ignored
    bn_momentum: UnitInterval = 0.01
    capacity: Count = 64
    update_every: Count = 64  # images of the stream between two updates


def softshrink(x: Tensor, limit: Tensor) -> Tensor:
    """ψ(x; λ) for λ ≥ 0: sign(x)·max(|x| − λ, 0)."""
    return x.sign() * (x.abs() - limit).clamp_min(0)


class InstanceAwareBatchNorm(tta.AdaptiveBatchNorm):
    """IABN. In train mode the statistics of the batch stand for the running ones, and move them by m."""

    def __init__(self, layer: tta.AdaptiveBatchNorm, alpha: float) -> None:
        super().__init__(layer, weight=layer.mix, track=True, after=layer.after)
        self.replaces, self.alpha = layer.replaces, alpha

    def _normalise(self, input: Tensor) -> Tensor:
        x = tta.widen(input)
        shape = (1, -1, *(1,) * (x.dim() - 2))
        locations = x[0, 0].numel()
        of_images = image_statistics(x)
        mean, var = (each.view(shape) for each in self.channel_statistics(*of_images, locations))
        if locations > 1:
            mean, var = self.corrected(*of_images, mean, var, locations)
        scale = (var + self.eps).rsqrt()
        scale = scale if self.weight is None else self.weight.view(shape) * scale
        shift = -mean * scale if self.bias is None else self.bias.view(shape) - mean * scale
        return torch.addcmul(shift, x, scale).to(input.dtype)  # keeps x alone for the gradient

    def channel_statistics(self, means: Tensor, variances: Tensor, locations: int) -> tuple[Tensor, Tensor]:
        """μ̄ and σ̄² (C,); in train mode those of the batch, from the statistics of its images."""
        running_mean, running_var = self.running_mean, self.running_var
        assert running_mean is not None
        assert running_var is not None
        if not self.training:
            return running_mean, running_var
        mean = means.mean(dim=0).flatten()
        var = (variances.mean(dim=0) + means.var(dim=0, correction=0)).flatten()
        count = len(means) * locations
        with torch.no_grad():
            unbiased = var * (count / max(1, count - 1))
            self.running_mean = torch.lerp(running_mean, mean.to(running_mean.dtype), self.mix)
            self.running_var = torch.lerp(running_var, unbiased.to(running_var.dtype), self.mix)
        return mean, var

    def corrected(
        self, means: Tensor, variances: Tensor, mean: Tensor, var: Tensor, locations: int
    ) -> tuple[Tensor, Tensor]:
        """μ and σ² of each image: (B, C, 1, …)."""
        error_of_mean = (var / locations).sqrt()
        error_of_var = var * (2 / (locations - 1)) ** 0.5
        mean = mean + softshrink(means - mean, self.alpha * error_of_mean)
        var = var + softshrink(variances - var, self.alpha * error_of_var)
        return mean, var.clamp_min(0)


def image_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """μ̃ and σ̃² of activations (B, C, …), over the locations of each image: two of (B, C, 1, …)."""
    if x.dim() == 2:
        return x, torch.zeros_like(x)
    variances, means = torch.var_mean(x, dim=tuple(range(2, x.dim())), correction=0, keepdim=True)
    return means, variances


def use_instance_aware_batch_norm(model: nn.Module, alpha: float, momentum: float) -> None:
    """Replace every batch-norm layer by IABN; affine parameters and running statistics stay."""
    tta.adapt_batch_norm(model, weight=momentum, track=True)
    for name, layer in list(tta.norm_modules(model, "batch")):
        assert isinstance(layer, tta.AdaptiveBatchNorm)
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, InstanceAwareBatchNorm(layer, alpha))


class NOTE(Method[NOTEConfig]):
    """Instance-aware batch norm, and entropy minimisation on a memory that is balanced over the classes."""

    name = "note"
    paper = references.NOTE
    needs = Needs(gradient=True, norm_layers=("batch",))
    Config = NOTEConfig
    batch_size = 64
    scores = "a forward pass in eval mode as an image arrives, before the update"
    scores_frozen = "a forward pass in eval mode after all updates"
    deviations = (
        "instance-aware batch norm replaces batch norm at test time (paper: the source network is trained "
        "with it)"
    )

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        use_instance_aware_batch_norm(self.model, cfg.alpha, cfg.bn_momentum)
        self.parameters = tta.norm_affine(self.model, "batch")
        self.optimizer = tta.make_optimizer("adam", self.parameters.values(), cfg.lr, cfg.momentum)
        self.memory = PBRS(cfg.capacity, self.model.num_classes)
        self.arrived = 0

    def adapt(self, x: Tensor) -> Tensor:
        every = self.config.update_every
        group_ends = range(every - self.arrived % every, len(x), every)  # where a group is complete
        return torch.cat([self.arrive(group) for group in torch.tensor_split(x, tuple(group_ends))])

    def arrive(self, x: Tensor) -> Tensor:
        """Score images of one group and offer them to the memory; learn from it if the group is complete."""
        logits = self.predict(x)
        for image, label in zip(x, logits.argmax(1).tolist(), strict=True):
            self.memory.insert(Item(image.clone(), self.arrived), label)
            self.arrived += 1
        if self.arrived % self.config.update_every == 0:
            self.update()
        return logits

    @torch.enable_grad()
    def update(self) -> None:
        """One step of entropy minimisation on the memory."""
        images = tta.channels_last(torch.stack([item.image for item in self.memory.items()]))
        tta.set_norm_mode(self.model, train=True)
        tta.minimise(tta.entropy(self.model(images)).mean(), self.optimizer)
        tta.set_norm_mode(self.model, train=False)

    def adapted(self) -> str:
        return tta.describe(self.model, self.parameters)
