"""COME: conservatively minimised entropy, a loss for TENT, EATA and SAR (Zhang et al., ICLR 2025).

Subjective logic reads logits as evidence: besides its C classes, an opinion has the outcome "uncertain".

| symbol  | name            |                                                                         |
| ------- | --------------- | ----------------------------------------------------------------------- |
| f(x)    | f               | logits; no gradient flows through their length                          |
| b       | opinion         | belief masses e^f / (Σ e^f + K), one per class                          |
| u       | opinion         | uncertainty mass K / (Σ e^f + K), the last one                          |
| K       | K               | the number of classes                                                   |
| H(b, u) | opinion_entropy | entropy of the C + 1 masses                                             |

(b, u) is the softmax of the logits with ln K as an additional logit. H(b, u) replaces the entropy in all of
the host's uses: loss, weights, margins and averages; EATA's redundancy test and Fisher information keep the
softmax. The host decides what is scored, adapted and restored.

The official code has K = 1000 on every dataset. On ten classes that makes H(b, u) small for *uncertain*
images of small networks: its order is almost the reverse of the softmax entropy's, and margins keep the wrong
images. An alarm reports this if clean images show it.

Deviations: K is the number of classes, as in the paper; there is no 1e-7 in the entropy. With
`official_quirks=True` K is 1000, 1e-7 is added to every mass, and the host SAR has its own quirks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ttabench import nn as tta
from ttabench.method import (
    Architecture,
    Count,
    Method,
    Momentum,
    Natural,
    Needs,
    NonNegative,
    Paper,
    Positive,
    SourceData,
)
from ttabench_methods import references
from ttabench_methods.eata import EATA
from ttabench_methods.sar import SAR
from ttabench_methods.tent import Tent

Host = Tent | EATA | SAR
HOSTS: dict[str, type[Host]] = {"tent": Tent, "eata": EATA, "sar": SAR}
OFFICIAL_K = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class COMEConfig:
    """A setting that is None has the host's value for the dataset and the architecture.

    K  None: the number of classes. `official_quirks` sets it to 1000 and overrides another value.
    """

    host: Literal["tent", "eata", "sar"] = "tent"  # the method whose entropy is replaced
    K: Positive | None = None
    norms: Literal["batch", "all"] | None = None  # None: the host's; which norm layers are adapted
    statistics: Literal["batch", "median"] | None = None  # None: the host's; what batch norm normalises with
    optimizer: Literal["adam", "adamw", "sgd", "nesterov"] | None = None  # None: the host's
    lr: NonNegative | None = None  # None: the host's; learning rate
    momentum: Momentum | None = None  # None: the host's; momentum of SGD, β₁ of Adam
    steps: Count | None = None  # None: the host's; TENT: updates per batch
    e0_factor: NonNegative | None = None  # None: the host's; EATA, SAR: entropy limit, over ln C
    d_margin: NonNegative | None = None  # None: the host's; EATA: limit of |cos| with the average prediction
    fisher_alpha: NonNegative | None = None  # None: the host's; EATA: weight of the Fisher penalty
    fisher_images: Natural | None = None  # None: the host's; EATA: images for the Fisher information, 0 = all
    fisher_batch_size: Count | None = None  # None: the host's; EATA: images per batch for it
    rho: NonNegative | None = None  # None: the host's; SAR: radius of the sharpness-aware step
    reset_constant: NonNegative | None = None  # None: the host's; SAR: average loss below which it resets
    official_quirks: bool = False  # K = 1000, 1e-7 added to every mass, and SAR's own quirks

    def __post_init__(self) -> None:
        if self.official_quirks:
            object.__setattr__(self, "K", OFFICIAL_K)
        host_settings = {field.name for field in fields(HOSTS[self.host].Config)}
        for name in self.given():
            if name not in host_settings:
                raise ValueError(
                    f"{name} is no setting of the host {self.host}; leave it out, or choose the host that "
                    "has it"
                )

    def given(self) -> dict[str, Any]:
        """The host's settings that are not None."""
        excluded = ("host", "K") if self.host == "sar" else ("host", "K", "official_quirks")
        values = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in excluded
        }
        return {name: value for name, value in values.items() if value is not None}


def opinion_entropy(logits: Tensor, K: float, added: float = 0.0) -> Tensor:
    """H(b, u) of logits at fixed length: (B, C) → (B,), from 0 to ln(C + 1). Every mass gets `added`."""
    f = tta.widen(logits)
    length = f.norm(dim=1, keepdim=True).clamp_min(torch.finfo(f.dtype).tiny)
    f = f * (length.detach() / length)
    opinion = torch.cat([f, torch.full_like(f[:, :1], K).log()], dim=1)
    if not added:
        return tta.entropy(opinion)
    masses = opinion.softmax(dim=1) + added
    return -(masses * masses.log()).sum(dim=1)


class COME(Method[COMEConfig]):
    """TENT, EATA or SAR with the entropy of an opinion in place of the entropy of the softmax."""

    name = "come"
    paper = references.COME
    needs = Needs(gradient=True, norm_layers=("batch", "group", "layer", "instance"))
    Config = COMEConfig
    batch_size = 64
    restores = "what its host restores: tent and eata nothing; sar all it learned, at a low average entropy"
    deviations = "K is the number of classes (official code: 1000); the hosts' own deviations"

    @classmethod
    def host_of(cls, config: COMEConfig, arch: Architecture | None = None) -> tuple[type[Host], Any]:
        """The host of a configuration, and its own configuration."""
        host, usual = HOSTS[config.host], {}
        if arch is not None:
            usual = {**host.for_dataset("", arch.num_classes), **host.for_architecture(arch)}
        return host, host.Config(**{**usual, **config.given()})

    @classmethod
    def needs_of(cls, config: COMEConfig) -> Needs:
        host, host_config = cls.host_of(config)
        return host.needs_of(host_config)

    @classmethod
    def papers_of(cls, config: COMEConfig) -> tuple[Paper, ...]:
        host, host_config = cls.host_of(config)
        return references.COME, *host.papers_of(host_config)

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        """K, so that every row shows it; norm layers as the hosts have them."""
        K = {"K": float(arch.num_classes)} if arch.num_classes else {}
        return {**K, **Tent.for_architecture(arch)}

    def __init__(self, classifier: tta.Classifier, config: COMEConfig | None = None) -> None:
        super().__init__(classifier, config)
        cfg = self.config
        self.K = cfg.K or float(classifier.num_classes)
        host, host_config = self.host_of(cfg, classifier.architecture())
        self.host = host(self.model, host_config)
        self.host.entropy = partial(opinion_entropy, K=self.K, added=1e-7 if cfg.official_quirks else 0.0)
        self.model, self.host.counts = self.host.model, self.counts

    def setup(self, source: SourceData | None) -> None:
        self.host.setup(source)

    def adapt(self, x: Tensor) -> Tensor:
        return self.host.adapt(x)

    def known_score(self, logits: Tensor) -> Tensor:
        """−ln u, from 0: how little of the opinion is uncertainty."""
        f = tta.widen(logits)
        evidence = torch.cat([f, torch.full_like(f[:, :1], self.K).log()], dim=1)
        return evidence.logsumexp(dim=1) - math.log(self.K)

    def adapted(self) -> str:
        return self.host.adapted()

    def check(self, clean: Tensor) -> str:
        ranks = [h.argsort().argsort().double() for h in (opinion_entropy(clean, self.K), tta.entropy(clean))]
        rho = float(torch.corrcoef(torch.stack(ranks))[0, 1])
        turned = f"K {self.K:g} turns the order of uncertainty round: rank correlation {rho:.2f} with entropy"
        return "; ".join(filter(None, (turned if rho < 0 else "", self.host.check(clean))))

    def alarms(self) -> dict[str, Any]:
        """The host's, and the settings it runs with."""
        return {**self.host.alarms(), "host_settings": asdict(self.host.config)}
