"""Predictions averaged over many views of a batch, in few forward passes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ttabench_methods.cotta_views import View

# Images per forward pass over several views. On a CPU, fewer calls save less than larger activations cost.
IMAGES_PER_FORWARD = 512
IMAGES_PER_FORWARD_CPU = 16


@torch.no_grad()
def average_over_views(model: nn.Module, x: Tensor, view: View, count: int) -> Tensor:
    """Mean logits (B, C) of `model` over `count` views of a batch (B, 3, H, W).

    A forward pass takes as many views as a fixed number of images allows, at least one. Batch norm
    (`nn.use_batch_statistics`) uses the statistics of each view separately.
    """
    per_pass = max(1, (IMAGES_PER_FORWARD_CPU if x.device.type == "cpu" else IMAGES_PER_FORWARD) // len(x))
    logits: list[Tensor] = []
    for start in range(0, count, per_pass):
        views = [view(x) for _ in range(min(per_pass, count - start))]
        with SeparateBatchStatistics(len(views)) if len(views) > 1 else nullcontext():
            logits.append(model(torch.cat(views)))
    return torch.cat(logits).view(count, len(x), -1).mean(0)


class SeparateBatchStatistics(TorchFunctionMode):
    """Inside the block, each of `parts` concatenated batches has its own batch statistics."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.batch_norm:
            return self.batch_norm(*args)
        return function(*args, **(kwargs or {}))

    def batch_norm(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, *settings: Any) -> Tensor:
        # (V·B, C, …) → (B, V·C, …): now each channel of each view has statistics of its own.
        folded = x.reshape(self.parts, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)
        weight, bias = (None if p is None else p.repeat(self.parts) for p in (weight, bias))
        out = torch.batch_norm(folded, weight, bias, *settings)
        unfolded = out.view(len(out), self.parts, *x.shape[1:]).transpose(0, 1)
        return unfolded.reshape(x.shape)
