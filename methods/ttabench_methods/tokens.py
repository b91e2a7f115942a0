"""The tokens of a vision transformer: which ones its class token looks at, and passes with some of them.

Hooks do both, without changing the network, and exist inside the block alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ttabench import nn as tta
from ttabench.errors import UserError
from ttabench_methods.prompts import blocks_of

SOFTMAX = ("_softmax", "_safe_softmax")
FUSED = "_scaled_dot_product"  # the beginning of the names of attention in one operation


class ClassAttention:
    """Inside the block, the attention of the class token in the last transformer block is recorded.

    scores   after a forward pass: attention to each other token, averaged over heads, (B, N − 1).

    Raises UserError if the last block computes no attention over the tokens that enter it.
    """

    scores: Tensor

    def __init__(self, model: tta.Classifier) -> None:
        self.last = blocks_of(model)[-1]
        self.mode: _Watch | None = None

    def __enter__(self) -> ClassAttention:
        self.hooks = [
            self.last.register_forward_pre_hook(self.begin),
            self.last.register_forward_hook(self.end, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def begin(self, _block: nn.Module, inputs: tuple[Any, ...]) -> None:
        images, tokens = inputs[0].shape[:2]
        self.mode = _Watch(images, tokens)
        self.mode.__enter__()  # type: ignore[no-untyped-call]

    def end(self, _block: nn.Module, _inputs: object, _output: object) -> None:
        mode, self.mode = self.mode, None
        assert mode is not None
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if mode.scores is None:
            raise UserError(
                "the last block of the transformer has no attention between its tokens; use a vision "
                "transformer whose blocks attend to all tokens."
            )
        self.scores = mode.scores


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the first attention between `tokens` tokens of `images` images."""

    def __init__(self, images: int, tokens: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.images, self.tokens = images, tokens
        self.scores: Tensor | None = None

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if self.scores is None and name in SOFTMAX:
            self.take(out)
        elif self.scores is None and name.startswith(FUSED) and "backward" not in name:
            q, k = args[:2]
            scale = (kwargs or {}).get("scale") or q.shape[-1] ** -0.5
            self.take((tta.widen(q[..., :1, :]) @ tta.widen(k).transpose(-1, -2) * scale).softmax(-1))
        return out

    def take(self, attention: Tensor) -> None:
        """Attention (B, heads, N or 1, N), or (B · heads, N, N)."""
        if attention.dim() < 3 or attention.shape[-1] != self.tokens:
            return
        rows = attention[..., 0, 1:].detach()
        self.scores = tta.widen(rows).reshape(self.images, -1, self.tokens - 1).mean(dim=1)


class KeptTokens:
    """Inside the block, the first transformer block gets the class token and the tokens `kept` (B, n)."""

    def __init__(self, model: tta.Classifier, kept: Tensor) -> None:
        self.first, self.kept = blocks_of(model)[0], kept

    def __enter__(self) -> KeptTokens:
        self.hook = self.first.register_forward_pre_hook(self.select)
        return self

    def __exit__(self, *_: object) -> None:
        self.hook.remove()

    def select(self, _block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        tokens = inputs[0]
        others = tokens[:, 1:].gather(1, self.kept[..., None].expand(-1, -1, tokens.shape[2]))
        return torch.cat([tokens[:, :1], others], dim=1), *inputs[1:]
