"""Tiny nets and images to try a method on: one per kind of normalisation, milliseconds per batch.

Weights are random, but the nets behave like trained ones: their running statistics fit their images, they
predict all classes, and they are certain about half of the images, so entropy thresholds select a part of
them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.models.soundness.group_norm import guard_group_norm
from ttabench.nn import entropy

CLASSES = 5
SIZE = 16  # pixels
WIDTH = 16
PATCH = 4  # pixels
DROP = 0.3


class DropPath(nn.Module):
    """Stochastic depth: in training mode, drops the branch of a sample with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        keep = torch.rand(len(x), *[1] * (x.ndim - 1), device=x.device) >= self.p
        return x * keep / (1 - self.p)


class Block(nn.Module):
    """A transformer block with pre-norm, dropout and stochastic depth: (B, T, d) → (B, T, d)."""

    def __init__(self, dim: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        wide, narrow = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.mlp = nn.Sequential(wide, nn.GELU(), nn.Dropout(drop), narrow)
        self.drop_path = DropPath(drop)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attend(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A vision transformer with a class token, named as timm names its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(0.5 * torch.randn(1, 1 + (SIZE // PATCH) ** 2, WIDTH))
        self.pos_drop = nn.Dropout(DROP)
        self.blocks = nn.Sequential(Block(WIDTH, 2, DROP), Block(WIDTH, 2, DROP))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(self.pos_drop(tokens)))[:, 0])  # type: ignore[no-any-return]


class ConvNet(nn.Module):
    """A stem and four stages of convolution, normalisation and ReLU, named as in a ResNet.

    The last stage is a residual branch with stochastic depth; dropout precedes the last layer.
    """

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()

        def stage(inside: int, outside: int, stride: int) -> nn.Sequential:
            conv = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
            return nn.Sequential(conv, norm(outside), nn.ReLU())

        self.stem = stage(3, 8, 1)
        self.layer1, self.layer2 = stage(8, 8, 1), stage(8, 8, 2)
        self.layer3, self.layer4 = stage(8, WIDTH, 2), stage(WIDTH, WIDTH, 1)
        self.drop_path, self.dropout = DropPath(DROP), nn.Dropout(DROP)
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for stage in (self.stem, self.layer1, self.layer2, self.layer3):
            x = stage(x)
        x = x + self.drop_path(self.layer4(x))
        return self.fc(self.dropout(x.mean((2, 3))))  # type: ignore[no-any-return]


def images(count: int, seed: int, shift: float = 0.0) -> Tensor:
    """Random smooth colour images (count, 3, SIZE, SIZE) in [0, 1]; `shift` > 0 greys and brightens them."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 4, 4, generator=draw)
    fine = torch.rand(count, 3, SIZE, SIZE, generator=draw)
    x = 0.8 * nn.functional.interpolate(coarse, size=SIZE, mode="bilinear") + 0.2 * fine
    return (x * (1 - shift) + shift * 0.7).clamp(0, 1)


@torch.no_grad()
def settle(classifier: Classifier, x: Tensor) -> Classifier:
    """Fit running statistics to `x`, and the last layer to use all classes and be sure of half of `x`."""
    norms = [m for m in classifier.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.train().momentum = None  # a cumulative average
    classifier(x)
    for m, momentum in zip(norms, momenta, strict=True):
        m.eval().momentum = momentum
    last = classifier.linear
    logits = classifier(x)
    scale = 1 / logits.std(0)
    last.weight.mul_(scale[:, None])
    last.bias.sub_(logits.mean(0)).mul_(scale)
    while entropy(classifier(x)).median() > 0.4 * math.log(CLASSES):
        last.weight.mul_(1.2)
        last.bias.mul_(1.2)
    return classifier


def nets() -> dict[str, Classifier]:
    """The nets by name, new at every call and equal; the global generator does not change."""
    return copy.deepcopy(_made())


@cache
def _made() -> dict[str, Classifier]:
    """The nets, made once in a process; never changed."""
    with torch.random.fork_rng(), torch.inference_mode(False):
        torch.manual_seed(0)
        made = {
            "BN CNN": Classifier(ConvNet(nn.BatchNorm2d), last="fc"),
            "GN CNN": Classifier(ConvNet(lambda width: nn.GroupNorm(4, width)), last="fc"),
            "LN ViT": Classifier(Transformer(), last="head", tags=("transformer", "class_token")),
        }
        for net in made.values():
            guard_group_norm(net)
        return {name: settle(net.eval(), images(256, seed=1)) for name, net in made.items()}
