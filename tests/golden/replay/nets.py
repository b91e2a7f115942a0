"""The three kinds of nets golden traces are made on, built from the shapes of their weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.models.soundness.group_norm import guard_group_norm


class ConvNet(nn.Module):
    """conv{i} (3 × 3, stride 1, then 2) → {bn,gn}{i} → ReLU, mean over H and W, `fc`."""

    def __init__(self, weights: Mapping[str, Tensor], norm: str, groups: int) -> None:
        super().__init__()
        self.norm = norm
        self.depth = sum(name.startswith("conv") for name in weights)
        for i in range(1, self.depth + 1):
            wide, narrow, *kernel = weights[f"conv{i}.weight"].shape
            stride = 1 if i == 1 else 2
            self.add_module(
                f"conv{i}",
                nn.Conv2d(narrow, wide, kernel, stride, kernel[0] // 2, bias=f"conv{i}.bias" in weights),
            )
            layer = nn.BatchNorm2d(wide) if norm == "bn" else nn.GroupNorm(groups, wide)
            self.add_module(f"{norm}{i}", layer)
        self.fc = nn.Linear(*weights["fc.weight"].shape[::-1])

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, self.depth + 1):
            x = self.get_submodule(f"{self.norm}{i}")(self.get_submodule(f"conv{i}")(x)).relu()
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, width))


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """`patch_embed`, `cls_token` if there is one, + `pos_embed`, `blocks`, `norm`, `head`.

    The head takes the class token, or the mean over the tokens without one.
    """

    def __init__(self, weights: Mapping[str, Tensor], heads: int) -> None:
        super().__init__()
        width, channels, *patch = weights["patch_embed.weight"].shape
        hidden = weights["blocks.0.mlp.fc1.weight"].shape[0]
        depth = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
        self.pos_embed = nn.Parameter(torch.zeros(weights["pos_embed"].shape))
        self.cls_token = nn.Parameter(weights["cls_token"].clone()) if "cls_token" in weights else None
        self.patch_embed = nn.Conv2d(channels, width, patch, patch)
        self.blocks = nn.ModuleList(Block(width, hidden, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(*weights["head.weight"].shape[::-1])

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(dim=1) if self.cls_token is None else x[:, 0])


def build(weights: Mapping[str, Tensor], dtype: torch.dtype, groups: int = 4, heads: int = 4) -> Classifier:
    """The net these weights belong to, as a classifier without normalisation, in eval mode."""
    net: nn.Module
    tags: tuple[str, ...] = ()
    if "patch_embed.weight" in weights:
        net, last = VisionTransformer(weights, heads), "head"
        tags = ("transformer", "class_token") if "cls_token" in weights else ("transformer",)
    elif "bn1.weight" in weights or "gn1.weight" in weights:
        net, last = ConvNet(weights, "bn" if "bn1.weight" in weights else "gn", groups), "fc"
    else:
        raise ValueError(f"weights of no known net: {', '.join(sorted(weights)) or 'none'}")
    net.load_state_dict(dict(weights))
    guard_group_norm(net)
    return Classifier(net, last=last, tags=tags).to(dtype).eval()
