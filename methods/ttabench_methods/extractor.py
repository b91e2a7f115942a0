"""The feature extractor: all layers of a classifier except the last."""

from __future__ import annotations

from torch import Tensor, nn

from ttabench import nn as tta


def learn_extractor(model: tta.Classifier) -> dict[str, nn.Parameter]:
    """The parameters of the feature extractor by name; they now require gradients."""
    model.requires_grad_(True)
    model.linear.requires_grad_(False)
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def train_features(model: tta.Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    """Features (B, k) and logits (B, C); batch norm uses and stores batch statistics.

    Dropout and stochastic depth stay off.
    """
    tta.set_norm_mode(model, train=True)
    try:
        z, logits = model.features_and_logits(x)
    finally:
        tta.set_norm_mode(model, train=False)
    return tta.widen(z), tta.widen(logits)


def describe(parameters: dict[str, nn.Parameter]) -> str:
    """``all but the last layer (11,173,962 parameters)``"""
    return f"all but the last layer ({sum(p.numel() for p in parameters.values()):,} parameters)"
