"""ActMAD for vision transformers, as ported in the official repository of SPA.

| symbol | name    |                                                                                       |
| ------ | ------- | ------------------------------------------------------------------------------------- |
| c_i    | tokens  | the class token after block i and the next norm layer: the first one of block i + 1,  |
|        |         | or the final one; without a class token, the mean of the tokens                       |
| μ, σ   | –       | mean and unbiased standard deviation over the batch of all c_i, concatenated          |
| μ̂, σ̂   | source  | the same over `source_images` source images                                           |
| λ      | weight  | loss: λ · (mean (μ − μ̂)² + mean (σ − σ̂)²)                                             |

The affine parameters of the norm layers learn. Scored: the forward pass of the loss, before the step.

Deviations: the port differs from the paper (`actmad`): it uses no locations and no layers inside a block, its
distances are squared, and it compares standard deviations. The port reads 12 source batches; here a batch has
64 images, `source_images` in all. A batch of one image has no deviation to match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Method, Momentum, Needs, NonNegative, Range, SourceData
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class ActMADViTConfig:
    """Defaults: those of a port to vision transformers; `lr` was not verified for this method."""

    lr: NonNegative = 5e-3  # learning rate; not verified for this method
    momentum: Momentum = 0.9  # momentum of SGD; the port's
    weight: NonNegative = 30.0  # weight of the distance in the loss; the port's
    source_images: Annotated[int, Range(least=2)] = 768  # images for the source's statistics; the port's


def norms_after_blocks(model: tta.Classifier) -> list[str]:
    """Names of the norm layers that follow the blocks: one per block, in order."""
    order = list(model.norm_order) or [name for name, _ in tta.norm_modules(model)]
    place = {layer: i for i, layer in enumerate(map(model.get_submodule, order))}
    ran = [[place[m] for m in block.modules() if m in place] for block in tta.transformer_blocks(model)]
    return [order[min(inside)] for inside in ran[1:]] + order[max(ran[-1]) + 1 :][:1]


class ActMADViT(Method[ActMADViTConfig]):
    """Match mean and standard deviation of the class token after every block."""

    name = "actmad_vit"
    paper = references.ACTMAD
    needs = Needs(gradient=True, source_data="images", norm_layers=("layer",), tags=("transformer",))
    Config = ActMADViTConfig
    family = "alignment"
    batch_size = 64
    deviations = (
        "the loss of the port in SPA's repository, not of the paper; 768 source images; lr is not verified"
    )

    def setup(self, source: SourceData | None) -> None:
        cfg = self.config
        self.names = norms_after_blocks(self.model)
        with torch.no_grad():
            batches = tta.source_batches(source, 64, cfg.source_images)
            self.source = torch.std_mean(torch.cat([self.tokens(x)[0] for x in batches]), dim=0)
        self.parameters = tta.norm_affine(self.model)
        self.optimizer = tta.make_optimizer("sgd", self.parameters.values(), cfg.lr, cfg.momentum)

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        tokens, logits = self.tokens(x)
        tta.minimise(self.config.weight * self.distance(tokens), self.optimizer)
        return logits.detach()

    def tokens(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """All c_i, concatenated, (B, blocks · d), and logits (B, C), from one forward pass."""
        summaries: list[Tensor] = []

        def summarise(_name: str, out: Tensor) -> None:
            out = tta.widen(out).flatten(1, -2)
            summaries.append(out[:, 0] if "class_token" in self.model.tags else out.mean(dim=1))

        with tta.on_output({name: self.model.get_submodule(name) for name in self.names}, summarise):
            logits = self.model(x)
        return torch.cat(summaries, dim=1), logits

    def distance(self, tokens: Tensor) -> Tensor:
        """mean (μ − μ̂)² + mean (σ − σ̂)² of tokens (B, blocks · d)."""
        deviation, mean = self.source
        if len(tokens) == 1:
            return (tokens[0] - mean).square().mean()
        s, m = torch.std_mean(tokens, dim=0)
        return (m - mean).square().mean() + (s - deviation).square().mean()

    def adapted(self) -> str:
        return tta.describe(self.model, self.parameters)
