"""The feature extractor: all layers of a classifier except the last."""

from __future__ import annotations

from torch import Tensor, nn

from ttabench import nn as tta

__all__ = ["describe", "learn_extractor", "train_features"]


def learn_extractor(model: tta.Classifier) -> dict[str, nn.Parameter]:
    """The parameters of the feature extractor by name; they now require gradients."""
    model.requires_grad_(True)
    model.linear.requires_grad_(False)
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def train_features(model: tta.Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    """Features (B, k) and logits (B, C); batch norm uses and stores batch statistics.

    Dropout and stochastic depth stay off. One image has no variance in maps of one location: there, batch
    norm uses its stored statistics.
    """
    tta.set_norm_mode(model, train=True)
    single = tta.norm_modules(model, "batch") if len(x) == 1 else ()
    hooks = [layer.register_forward_pre_hook(keep_stored_for_one_value) for _, layer in single]
    try:
        z, logits = model.features_and_logits(x)
    finally:
        for hook in hooks:
            hook.remove()
        tta.set_norm_mode(model, train=False)
    return tta.widen(z), tta.widen(logits)


def keep_stored_for_one_value(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Eval mode for a batch-norm layer whose input has one value per channel."""
    layer.training = inputs[0].numel() > inputs[0].shape[1]


def describe(parameters: dict[str, nn.Parameter]) -> str:
    """``all but the last layer (11,173,962 parameters)``"""
    return f"all but the last layer ({sum(p.numel() for p in parameters.values()):,} parameters)"
