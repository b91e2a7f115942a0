"""CCT, CVT and ViT-Lite: a tokenizer in front of :class:`TransformerClassifier`.

Hassani et al. 2021 (see `transformer_encoder`). The published checkpoints load unchanged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from ttabench.errors import UserError
from ttabench.models.architectures.transformer_encoder import TransformerClassifier

HIDDEN_CHANNELS = 64  # output channels of all convolutions of CCT's tokenizer except the last


class Tokenizer(nn.Module):
    """(B, 3, H, W) → (B, N, d): convolutions; each pixel of the last feature map is a token."""

    def __init__(self, *stages: nn.Module) -> None:
        super().__init__()
        self.conv_layers = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.conv_layers(x)
        return tokens.flatten(2).transpose(1, 2)


class CompactTransformer(nn.Module):
    def __init__(self, tokenizer: Tokenizer, classifier: TransformerClassifier) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.classifier = classifier

    @property
    def has_fixed_positions(self) -> bool:
        """Whether the positions are sinusoids rather than learned."""
        return not self.classifier.positional_emb.requires_grad

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.tokenizer(x))
        return logits


def cct(num_classes: int, image_size: int, *, kernel: int, convs: int, **encoder: Any) -> CompactTransformer:
    """CCT-layers/kernel×convs: convolution, ReLU and 3×3 max-pool of stride 2, `convs` times.

    `encoder`, here and below: dim, layers, heads, mlp_ratio, positions of :class:`TransformerClassifier`.
    """
    stride, padding = max(1, kernel // 2 - 1), kernel // 2
    channels = [3, *[HIDDEN_CHANNELS] * (convs - 1), encoder["dim"]]
    stages = [
        nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        for inputs, outputs in pairwise(channels)
    ]
    side = image_size
    for _ in stages:
        convolved = (side + 2 * padding - kernel) // stride + 1
        side = (convolved - 1) // 2 + 1
    classifier = TransformerClassifier(side * side, num_classes, class_token=False, **encoder)
    return CompactTransformer(Tokenizer(*stages), classifier)


def _patches(
    num_classes: int, image_size: int, patch: int, class_token: bool, **encoder: Any
) -> CompactTransformer:
    if image_size % patch:
        raise UserError(
            f"patches of {patch} pixels do not tile images of {image_size} pixels; expected a multiple of "
            f"{patch} pixels."
        )
    tokens = (image_size // patch) ** 2
    classifier = TransformerClassifier(tokens, num_classes, class_token=class_token, **encoder)
    embedding = nn.Conv2d(3, encoder["dim"], patch, stride=patch)
    return CompactTransformer(Tokenizer(nn.Sequential(embedding)), classifier)


def cvt(num_classes: int, image_size: int, *, patch: int, **encoder: Any) -> CompactTransformer:
    """CVT-layers/patch: linear patch tokens, sequence pooling."""
    return _patches(num_classes, image_size, patch, class_token=False, **encoder)


def vit_lite(num_classes: int, image_size: int, *, patch: int, **encoder: Any) -> CompactTransformer:
    """ViT-Lite-layers/patch: linear patch tokens, class token."""
    return _patches(num_classes, image_size, patch, class_token=True, **encoder)
