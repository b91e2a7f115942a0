"""The encoder that CCT, CVT and ViT-Lite share: tokens in, logits out.

Hassani, Walton, Shah, Abuduweili, Li, Shi: Escaping the Big Data Paradigm with Compact
Transformers, 2021. Parameter names are those of the published checkpoints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ATTENTION_DROPOUT = 0.1
STOCHASTIC_DEPTH = 0.1  # rate of the last block; it rises linearly from 0 at the first block


class StochasticDepth(nn.Module):
    """Drops a residual branch per image with probability `rate` while training (Huang et al. 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return branch
        keep = 1 - self.rate
        kept = torch.empty(len(branch), 1, 1, device=branch.device, dtype=branch.dtype).bernoulli_(keep)
        return branch * (kept / keep)


class SelfAttention(nn.Module):
    """Multi-head self-attention over (B, N, d); no bias on query, key and value."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = ATTENTION_DROPOUT if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        mixed: Tensor = self.proj(out.transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """y = norm1(x + attention(pre_norm(x))), then y + MLP(y): the second skip starts after norm1."""

    def __init__(self, dim: int, heads: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.pre_norm = nn.LayerNorm(dim)
        self.self_attn = SelfAttention(dim, heads)
        self.norm1 = nn.LayerNorm(dim)
        self.linear1 = nn.Linear(dim, hidden)
        self.linear2 = nn.Linear(hidden, dim)
        self.drop_path = StochasticDepth(drop)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.drop_path(self.self_attn(self.pre_norm(x))))
        out: Tensor = x + self.drop_path(self.linear2(F.gelu(self.linear1(x))))
        return out


def sinusoids(length: int, dim: int) -> Tensor:
    """Fixed positions (1, length, dim): sines in the even channels, cosines in the odd ones."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    channel = torch.arange(dim, dtype=torch.float64)[None]
    angle = position / 10000 ** (2 * (channel // 2) / dim)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos()).float()[None]


class TransformerClassifier(nn.Module):
    """Positions, blocks, final norm, pooling, linear layer: (B, N, d) → (B, C).

    class_token   pool by a learned class token, else by an attention over the tokens (SeqPool).
    positions     "learned", or "sine": fixed, but stored as a parameter in published checkpoints.
    """

    def __init__(
        self,
        tokens: int,
        num_classes: int,
        *,
        dim: int,
        layers: int,
        heads: int,
        mlp_ratio: float,
        positions: str,
        class_token: bool,
    ) -> None:
        super().__init__()
        if class_token:
            tokens += 1
            self.class_emb = nn.Parameter(torch.zeros(1, 1, dim))
        else:
            self.attention_pool = nn.Linear(dim, 1)
        self.class_token = class_token
        if positions == "sine":
            self.positional_emb = nn.Parameter(sinusoids(tokens, dim), requires_grad=False)
        else:
            self.positional_emb = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, tokens, dim), std=0.2))
        rates = torch.linspace(0, STOCHASTIC_DEPTH, layers).tolist()
        hidden = int(dim * mlp_ratio)
        self.blocks = nn.ModuleList(Block(dim, heads, hidden, rate) for rate in rates)
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.class_token:
            x = torch.cat((self.class_emb.expand(len(x), -1, -1), x), dim=1)
        x = x + self.positional_emb
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if self.class_token:
            pooled = x[:, 0]
        else:
            pooled = (self.attention_pool(x).softmax(dim=1).transpose(1, 2) @ x).squeeze(1)
        logits: Tensor = self.fc(pooled)
        return logits
