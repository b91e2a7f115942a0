"""What TENT and its successors share: they learn the affine parameters of norm layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import nn

from ttabench.classifier import Architecture
from ttabench.method import Method, Momentum, Needs, NonNegative, Paper
from ttabench.nn.adapted_norms import describe, norm_affine, norm_needs
from ttabench.nn.batch_norm import use_batch_statistics
from ttabench.nn.updates import make_optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class NormSettings:
    """The settings that every :class:`NormAdapter` has; methods inherit them and set defaults of their own.

    norms       which norm layers are adapted: "batch", or "all" kinds.
    statistics  what batch norm normalises with: mean and variance of the "batch", or its "median" (MedBN).
    optimizer   "adam", "adamw", "sgd" (momentum), or "nesterov" (Nesterov momentum).
    lr          learning rate.
    momentum    momentum of SGD, β₁ of Adam.
    """

    norms: Literal["batch", "all"] = "batch"
    statistics: Literal["batch", "median"] = "batch"
    optimizer: Literal["adam", "adamw", "sgd", "nesterov"] = "adam"
    lr: NonNegative = 1e-3
    momentum: Momentum = 0.9


C = TypeVar("C", bound=NormSettings)


class NormAdapter(Method[C]):
    """A method that learns the affine parameters of norm layers, with batch statistics in every pass.

    If a method adapts batch norm only by default, models without batch norm get ``norms="all"``, as in the
    official code of SAR for TENT and EATA.

    vit_lr           the official learning rate for transformers, if it differs from that for ResNets.
    imagenet_vit_lr  the same for 1,000 classes or more, if `vit_lr` is not set.
    median_paper     the paper to cite in addition to `paper` for ``statistics="median"``.
    """

    vit_lr: ClassVar[float] = 0.0
    imagenet_vit_lr: ClassVar[float] = 0.0
    median_paper: ClassVar[Paper | None] = None

    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer

    @classmethod
    def needs_of(cls, config: C) -> Needs:
        return replace(cls.needs, norm_layers=norm_needs(config.norms, config.statistics))

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        kinds = set(arch.norm_layers)
        norms = {} if "batch" in kinds or cls.Config().norms == "all" else {"norms": "all"}
        lr = cls.vit_lr or (cls.imagenet_vit_lr if arch.num_classes >= 1000 else 0.0)
        return norms | ({"lr": lr} if lr and not {"batch", "group"} & kinds else {})

    @classmethod
    def papers_of(cls, config: C) -> tuple[Paper, ...]:
        median = cls.median_paper if config.statistics == "median" else None
        return super().papers_of(config) + ((median,) if median else ())

    def collect(self, skip: Collection[str] = (), weight_decay: float = 0.0) -> None:
        """Set up batch norm, `parameters` (without the layers in `skip`) and their `optimizer`."""
        cfg = self.config
        self.use_statistics()
        self.parameters = norm_affine(self.model, cfg.norms, skip)
        self.optimizer = make_optimizer(
            cfg.optimizer, self.parameters.values(), cfg.lr, cfg.momentum, weight_decay
        )

    def use_statistics(self) -> None:
        """Make batch norm normalise with the statistics of the current batch."""
        use_batch_statistics(self.model, self.config.statistics)

    def adapted(self) -> str:
        return describe(self.model, self.parameters)
