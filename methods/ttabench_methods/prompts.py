"""Prompts: tokens that hooks add to those of a vision transformer, without changing the network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ttabench import nn as tta
from ttabench.errors import UserError


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The transformer's blocks. Raises UserError where there are none."""
    blocks = tta.transformer_blocks(model)
    if not blocks:
        raise UserError(
            "the model has no list of transformer blocks, so prompts cannot be added; use a vision "
            "transformer."
        )
    return blocks


class Prompted:
    """Inside the block, prompts (N_p, d) are added to the input of the first transformer block.

    tokens     the input of the first block, (B, N, d).
    summaries  after each block, its class token, or the mean of its tokens, (B, d). If the next layer is a
               norm layer (the first of the next block, or the one after the last block), the summary is
               taken from its output.
    """

    def __init__(self, model: tta.Classifier, prompts: Tensor | None = None) -> None:
        self.blocks = blocks_of(model)
        self.norms = [module for _, module in tta.norm_modules(model, "layer")]
        self.prompts = prompts
        self.classes = int("class_token" in model.tags)
        self.summaries: list[Tensor] = []
        self.waiting: Tensor | None = None  # the last block's tokens, until they are summarised

    def __enter__(self) -> Prompted:
        self.hooks = [self.blocks[0].register_forward_pre_hook(self.add_prompts)]
        self.hooks += [block.register_forward_hook(self.after_block) for block in self.blocks]
        self.hooks += [norm.register_forward_hook(self.after_norm) for norm in self.norms]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
        self.summarise(self.waiting)

    def add_prompts(self, _block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.tokens: Tensor = inputs[0]
        if self.tokens.dim() != 3:
            raise UserError(
                f"prompts need tokens (B, N, d); the first block takes {tuple(self.tokens.shape)}; use a "
                "vision transformer whose blocks take tokens."
            )
        if self.prompts is None:
            return inputs
        prompts = self.prompts.to(self.tokens.dtype).expand(len(self.tokens), -1, -1)
        first, rest = self.tokens[:, : self.classes], self.tokens[:, self.classes :]
        return torch.cat([first, prompts, rest], dim=1), *inputs[1:]

    def after_block(self, _block: nn.Module, _inputs: object, x: Tensor) -> None:
        self.summarise(self.waiting)
        self.waiting = x

    def after_norm(self, _norm: nn.Module, inputs: tuple[Any, ...], x: Tensor) -> None:
        if self.waiting is not None and inputs[0] is self.waiting:
            self.summarise(x)

    def summarise(self, x: Tensor | None) -> None:
        """Append the summary of tokens (B, N, d), unless `x` is None; clear `waiting`."""
        if x is not None:
            self.summaries.append(tta.widen(x[:, 0] if self.classes else x.mean(dim=1)))
        self.waiting = None
