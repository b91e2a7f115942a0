"""Prompts: tokens added to those of a vision transformer, through hooks, so that no network is rewritten."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ttabench import nn as tta
from ttabench.errors import UserError

__all__ = ["Prompted", "blocks_of"]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The transformer's blocks. Raises UserError where there are none."""
    blocks = tta.transformer_blocks(model)
    if not blocks:
        raise UserError("the model has no list of transformer blocks, so there is nowhere to put prompts.")
    return blocks


class Prompted:
    """While active, prompts (N_p, d) join the tokens that enter the first block; none if there are none.

    tokens     what entered the first block, (B, N, d).
    summaries  after each block, its class token, or the mean of its tokens, (B, d).
    """

    def __init__(self, model: tta.Classifier, prompts: Tensor | None = None) -> None:
        self.blocks = blocks_of(model)
        self.prompts = prompts
        self.classes = int("class_token" in model.tags)
        self.summaries: list[Tensor] = []

    def __enter__(self) -> Prompted:
        self.hooks = [self.blocks[0].register_forward_pre_hook(self.join)]
        self.hooks += [block.register_forward_hook(self.summarise) for block in self.blocks]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def join(self, _block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.tokens: Tensor = inputs[0]
        if self.tokens.dim() != 3:
            raise UserError(
                f"prompts need tokens (B, N, d); the first block takes {tuple(self.tokens.shape)}."
            )
        if self.prompts is None:
            return inputs
        prompts = self.prompts.to(self.tokens.dtype).expand(len(self.tokens), -1, -1)
        first, rest = self.tokens[:, : self.classes], self.tokens[:, self.classes :]
        return torch.cat([first, prompts, rest], dim=1), *inputs[1:]

    def summarise(self, _block: nn.Module, _inputs: object, x: Tensor) -> None:
        self.summaries.append(tta.widen(x[:, 0] if self.classes else x.mean(dim=1)))
