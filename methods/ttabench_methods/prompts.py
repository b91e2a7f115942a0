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
    summaries  after each block, its class token, or the mean of its tokens, (B, d): as the norm layer that
               takes them next leaves them (the next block's first, or the one after the last block), where
               such a layer takes them as they are.
    """

    def __init__(self, model: tta.Classifier, prompts: Tensor | None = None) -> None:
        self.blocks = blocks_of(model)
        self.norms = [module for _, module in tta.norm_modules(model, "layer")]
        self.prompts = prompts
        self.classes = int("class_token" in model.tags)
        self.summaries: list[Tensor] = []
        self.waiting: Tensor | None = None  # the last block's tokens, before a norm layer has taken them

    def __enter__(self) -> Prompted:
        self.hooks = [self.blocks[0].register_forward_pre_hook(self.join)]
        self.hooks += [block.register_forward_hook(self.leave) for block in self.blocks]
        self.hooks += [norm.register_forward_hook(self.normed) for norm in self.norms]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
        self.summarise(self.waiting)

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

    def leave(self, _block: nn.Module, _inputs: object, x: Tensor) -> None:
        self.summarise(self.waiting)
        self.waiting = x

    def normed(self, _norm: nn.Module, inputs: tuple[Any, ...], x: Tensor) -> None:
        if self.waiting is not None and inputs[0] is self.waiting:
            self.summarise(x)

    def summarise(self, x: Tensor | None) -> None:
        """Append the summary of tokens (B, N, d), if there are any; nothing waits then."""
        if x is not None:
            self.summaries.append(tta.widen(x[:, 0] if self.classes else x.mean(dim=1)))
        self.waiting = None
