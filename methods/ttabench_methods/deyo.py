"""DeYO (destroy your object): entropy of images that are classified by shape (Lee et al., ICLR 2024).

| symbol      | name           |                                                                       |
| ----------- | -------------- | --------------------------------------------------------------------- |
| x′          | shuffle_patches | the image cut into `patches` × `patches` parts, in random order      |
| Ent         | h              | softmax entropy, natural logarithm                                    |
| PLPD(x, x′) | plpd           | probability of the predicted class that is lost from x to x′ (Eq. 7)  |
| τ_Ent       | entropy_limit  | `entropy_factor` · ln C                                               |
| τ_PLPD      | plpd_limit     | official: 0.3 with batch norm (ResNet50), 0.2 without (GN, ViT)       |
| Ent₀        | e0             | `e0_factor` · ln C                                                    |
| α_θ(x)      | weight         | exp(Ent₀ − Ent) + exp(PLPD), without gradient (Eq. 10); either can    |
|             |                | be scaled, or switched off, by `entropy_weight` and `plpd_weight`     |

Loss: mean of α·Ent over the images with Ent < τ_Ent and PLPD > τ_PLPD (Eqs. 8, 9); no step where there is
none. Adapted: affine parameters of the norm layers but the top ones (`nn.top_norms`), as in SAR. Scored: the
forward pass before the update. x′ is made, and its forward pass done, for images that pass τ_Ent only.

Deviations: dropout and stochastic depth stay in eval mode. With `official_quirks=True` the top layers are
found by their names, as in the official code, which leaves nothing out on networks other than torchvision's
ResNets and timm's ViT-B. Sweeps scale the learning rate with the batch size as the official script does
(`rates_by_batch_size`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import fold, interpolate, unfold

from ttabench import nn as tta
from ttabench.errors import UserError
from ttabench.method import Architecture, Count, Needs, NonNegative, Range, SourceData
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class DeYOConfig(tta.NormSettings):
    """Defaults: the official ImageNet-C configuration (batch size 64); plpd_limit of networks with group or
    layer norm. With fewer than 1,000 classes, lr is EATA's for CIFAR, chosen on the extra corruptions. With
    both weights 0, α is 1: plain entropy.
    """

    norms: Literal["batch", "all"] = "all"
    optimizer: Literal["adam", "sgd"] = "sgd"  # "adam", or "sgd" with momentum
    lr: NonNegative = 2.5e-4
    entropy_factor: NonNegative = 0.5  # τ_Ent over ln C: images of higher entropy are left out
    plpd_limit: Annotated[float, Range(least=-1, most=1)] = 0.2
    e0_factor: NonNegative = 0.4  # Ent₀ over ln C, in the weight of an image
    entropy_weight: NonNegative = 1.0  # factor of exp(Ent₀ − Ent) in the weight; 0 = off
    plpd_weight: NonNegative = 1.0  # factor of exp(PLPD) in the weight; 0 = off
    patches: Count = 4  # parts per side into which an image is cut
    official_quirks: bool = False  # top layers are found by their names


def random_orders(count: int, patches: int, device: torch.device) -> Tensor:
    """(count, patches²): independent random orders of the patches."""
    return torch.rand(count, patches**2, device=device).argsort(dim=1)


def shuffle_patches(x: Tensor, patches: int, orders: Tensor | None = None) -> Tensor:
    """Images with their patches in another order, image by image: (B, 3, H, W) → (B, 3, H, W).

    Patch j, row by row, is patch ``orders[i, j]`` of image i. `orders` (B, patches²) are random if None. If
    `patches` does not divide a side, images are resized down before and up again after. Raises UserError for
    a side of less than `patches` pixels.
    """
    height, width = (side // patches for side in x.shape[-2:])
    if not (height and width):
        raise UserError(f"patches is {patches}; expected at most {min(x.shape[-2:])}, the images' side.")
    tiled_size = height * patches, width * patches
    resized = x if x.shape[-2:] == tiled_size else interpolate(x, tiled_size, mode="bilinear", antialias=True)
    parts = unfold(resized, (height, width), stride=(height, width))  # (B, 3·h·w, patches²)
    orders = random_orders(len(x), patches, x.device) if orders is None else orders
    parts = parts.gather(2, orders[:, None].expand_as(parts))
    shuffled = fold(parts, tiled_size, (height, width), stride=(height, width))
    size = x.shape[-2:]
    return shuffled if size == tiled_size else interpolate(shuffled, size, mode="bilinear", antialias=True)


def probability_difference(p: Tensor, p_shuffled: Tensor) -> Tensor:
    """PLPD (Eq. 7) of softmax outputs (B, C), (B, C) → (B,) in [−1, 1]."""
    largest, label = p.max(dim=1, keepdim=True)
    return (largest - p_shuffled.gather(1, label)).squeeze(1)


class DeYO(tta.NormAdapter[DeYOConfig]):
    """Entropy of images predicted with certainty and by their shape, weighted by both."""

    name = "deyo"
    paper = references.DEYO
    needs = Needs(gradient=True, norm_layers=("batch", "group", "layer", "instance"))
    Config = DeYOConfig
    vit_lr = 1e-3  # ViT-B
    batch_size = 64
    deviations = (
        "the layers that are not adapted are found by structure (official_quirks: by name); dropout and "
        "stochastic depth stay in eval mode"
    )

    orders = staticmethod(random_orders)

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        settings = super().for_architecture(arch)
        return {**settings, "plpd_limit": 0.3} if "batch" in arch.norm_layers else settings

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> Mapping[str, Any]:
        """Official for ImageNet only; otherwise EATA's for CIFAR, which the extra corruptions favour."""
        return {} if num_classes >= 1000 else {"lr": 5e-3}

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        self.collect(skip=tta.top_norms(self.model, by_name=cfg.official_quirks))
        self.entropy_limit = cfg.entropy_factor * math.log(self.model.num_classes)
        self.e0 = cfg.e0_factor * math.log(self.model.num_classes)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        h = tta.entropy(logits)
        low_entropy = (
            (h < self.entropy_limit).nonzero().squeeze(1)
        )  # positions, since each boolean mask makes a GPU wait
        self.counts.update(seen=len(x), sure=len(low_entropy))
        if len(low_entropy):
            plpd = self.plpd(x[low_entropy], logits.detach()[low_entropy])
            kept = plpd > self.config.plpd_limit
            count = int(kept.sum())
            self.counts["kept"] += count
            if count:
                weight = self.weight(h.detach()[low_entropy], plpd)
                tta.minimise(tta.masked_mean(weight * h[low_entropy], kept), self.optimizer)
        return logits.detach()

    def weight(self, h: Tensor, plpd: Tensor) -> Tensor:
        """α (Eq. 10) of entropies (B,) and PLPDs (B,)."""
        by_entropy, by_plpd = self.config.entropy_weight, self.config.plpd_weight
        if by_entropy == by_plpd == 0:
            return torch.ones_like(h)
        return by_entropy * (self.e0 - h).exp() + by_plpd * plpd.exp()

    @torch.no_grad()
    def plpd(self, x: Tensor, logits: Tensor) -> Tensor:
        """PLPD of images whose logits are known: (B, 3, H, W), (B, C) → (B,)."""
        patches = self.config.patches
        shuffled = shuffle_patches(x, patches, self.orders(len(x), patches, x.device))
        destroyed = self.model(tta.channels_last(shuffled))
        return probability_difference(tta.widen(logits).softmax(1), tta.widen(destroyed).softmax(1))

    def alarms(self) -> dict[str, Any]:
        return {"kept": round(self.counts["kept"] / max(1, self.counts["seen"]), 4)}
