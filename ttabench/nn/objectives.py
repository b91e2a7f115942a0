"""Losses of logits."""

from __future__ import annotations

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """float16 and bfloat16 → float32, so that sums and logarithms stay precise; other types unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def entropy(logits: Tensor) -> Tensor:
    """Softmax entropy per row, natural logarithm: (B, C) → (B,)."""
    log_p = torch.log_softmax(widen(logits), dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def stabilised_entropy(logits: Tensor) -> Tensor:
    """−Σ p log(p + 10⁻⁶) per row, as the official codes of RoTTA and SoTTA have it: (B, C) → (B,)."""
    p = widen(logits).softmax(dim=1)
    return -(p * (p + 1e-6).log()).sum(dim=1)


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ softmax(target) · log softmax(logits) per row: (B, C), (B, C) → (B,)."""
    return -(torch.softmax(widen(target), dim=1) * torch.log_softmax(widen(logits), dim=1)).sum(dim=1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the rows of `values` (B, …) where `mask` (B,) is true; 0 with zero gradient if no row is."""
    weight = mask.to(values.dtype).view(-1, *(1,) * (values.dim() - 1))
    return (weight * values).sum(dim=0) / weight.sum().clamp(min=1)
