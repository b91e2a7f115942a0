"""REM: attention of the class token, kept tokens, losses and a step, against passes written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ttabench.classifier import Classifier
from ttabench.conformance.nets import images, nets
from ttabench.errors import UserError
from ttabench_methods.rem import REM, REMConfig, agree, ranked
from ttabench_methods.tokens import ClassAttention, KeptTokens


@pytest.fixture(scope="module")
def net() -> Classifier:
    return nets()["LN ViT"].double()


def attention(block: Any, x: Tensor) -> Tensor:
    q, k, _ = block.qkv(block.norm1(x)).unflatten(-1, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)  # type: ignore[no-any-return]


def explicit(net: Classifier, x: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Logits and class attention (B, N) of a pass; only the tokens `kept` (B, n) enter the blocks."""
    vit: Any = net.net
    tokens = vit.patch_embed(net.normalize(x)).flatten(2).transpose(1, 2)
    tokens = torch.cat([vit.cls_token.expand(len(x), -1, -1), tokens], 1) + vit.pos_embed
    if kept is not None:
        rows = [torch.cat([one[:1], one[1:][which]]) for one, which in zip(tokens, kept, strict=True)]
        tokens = torch.stack(rows)
    for block in vit.blocks[:-1]:
        tokens = block(tokens)
    scores = attention(vit.blocks[-1], tokens).mean(1)[:, 0, 1:]
    return vit.head(vit.norm(vit.blocks[-1](tokens))[:, 0]), scores


def test_attention_is_that_of_the_last_block_and_kept_tokens_enter_alone(net: Classifier) -> None:
    x = images(6, seed=2).double()
    kept = torch.rand(6, 16).argsort(1)[:, :11]
    with torch.no_grad():
        with ClassAttention(net) as seen:
            logits = net(x)
        torch.testing.assert_close(logits, explicit(net, x)[0])
        torch.testing.assert_close(seen.scores, explicit(net, x)[1])
        with KeptTokens(net, kept):
            fewer = net(x)
        torch.testing.assert_close(fewer, explicit(net, x, kept)[0])
        assert torch.equal(net(x), logits)


class Fused(nn.Module):
    """Attention in one operation of torch, and through its own module."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.norm, self.qkv = nn.LayerNorm(8), nn.Linear(8, 24)
        self.module = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "module":
            return x + self.module(self.norm(x), self.norm(x), self.norm(x), need_weights=False)[0]
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return x + scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def scores(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        if self.kind == "module":
            return self.module(x, x, x, average_attn_weights=True)[1][:, 0, 1:]  # type: ignore[no-any-return]
        q, k, _ = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return (q @ k.transpose(-1, -2) / 2).softmax(-1).mean(1)[:, 0, 1:]  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["operation", "module"])
def test_attention_of_fused_kernels_is_the_same(kind: str) -> None:
    blocks = nn.Sequential(Fused(kind), Fused(kind)).eval()
    x = torch.randn(3, 7, 8)
    with ClassAttention(blocks) as seen:  # type: ignore[arg-type]
        blocks(x)
    torch.testing.assert_close(seen.scores, blocks[1].scores(blocks[0](x)).detach())  # type: ignore[operator]


def test_blocks_without_attention_are_refused() -> None:
    blocks = nn.Sequential(*(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(2)))
    with pytest.raises(UserError, match="no attention"), ClassAttention(blocks):  # type: ignore[arg-type]
        blocks(torch.randn(3, 7, 8))


def test_losses_are_those_of_the_formulas() -> None:
    chain = [torch.randn(4, 3, dtype=torch.float64) for _ in range(3)]
    p = [one.softmax(1) for one in chain]
    h = [-(one * one.log()).sum(1) for one in p]
    expected = sum(-(p[j] * p[i].log()).sum(1).mean() for i in range(3) for j in range(i))
    torch.testing.assert_close(agree(chain), expected)
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = sum((h[i] - h[j] + 0.3).clamp_min(0).mean() for i, j in pairs)
    torch.testing.assert_close(ranked(h, 0.3), expected)


def test_a_step_masks_what_the_class_token_looks_at(net: Classifier) -> None:
    config = REMConfig(lr=1e-2, mask_step=0.2, margin=0.1, optimizer="sgd")
    method, twin = REM(net, config), REM(net, config)
    method.prepare()
    twin.prepare()
    assert list(method.parameters) == [
        f"net.blocks.0.norm{i}.{leaf}" for i in (1, 2) for leaf in ("weight", "bias")
    ]
    optimizer = torch.optim.SGD(twin.parameters.values(), 1e-2, 0.9)
    for seed in (4, 5):
        x = images(6, seed=seed).double()
        logits, scores = explicit(twin.model, x)
        orders = scores.argsort(1)
        chain = [logits, *(explicit(twin.model, x, orders[:, :n])[0] for n in (12, 9))]  # 16 · 0.8, 0.6
        h = [-(one.softmax(1) * one.log_softmax(1)).sum(1) for one in chain]
        loss = sum(
            -(chain[j].detach().softmax(1) * chain[i].log_softmax(1)).sum(1).mean()
            + (h[j] - h[i].detach() + 0.1 * math.log(5)).clamp_min(0).mean()
            for i in range(3)
            for j in range(i)
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        torch.testing.assert_close(method.adapt(x), logits.detach())
        for name, p in method.parameters.items():
            torch.testing.assert_close(p, twin.parameters[name])
