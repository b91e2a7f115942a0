"""RDumb: ETA that returns to the source at regular intervals (Press et al., NeurIPS 2023).

| symbol | name        |                                                                              |
| ------ | ----------- | ---------------------------------------------------------------------------- |
| T      | reset_every | batches between resets of weights, optimiser and average prediction          |

Loss, filters and scored forward pass are ETA's: see `eta` and `eata`. A reset comes after every T batches;
batches without an update count. On a stream of at most T batches, RDumb equals ETA: CIFAR-10-C has 157
batches of 64 images per corruption, so with T = 1000 and a reset per corruption both rows agree.

Margins: the official code uses ImageNet's 0.4 ln 1000 and 0.05 for every dataset. With ten classes, the first
is above ln 10, the largest entropy, so all images are reliable. The second is below 1/√10, the cosine of a
certain prediction and a uniform average, so all certain images are redundant. Ours are ETA's: E₀ = 0.4 ln C;
ε = 0.05 from 1,000 classes on, 0.1 from 200 on, 0.4 for CIFAR, 0.4 √(10/C) below ten classes. Learning rate:
the official 2.5e-4 on ImageNet, ETA's 5e-3 elsewhere.

Deviations: the margins, unless `official_quirks=True`, which sets E₀, ε and the learning rate to ImageNet's
for any number of classes; without batch norm all norm layers are adapted, while the official code adapts
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from ttabench import nn as tta
from ttabench.method import Count, SourceData
from ttabench_methods import references
from ttabench_methods.eta import ETA, ETAConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RDumbConfig(ETAConfig):
    """ETA's, and T from the paper. `official_quirks` overrides ε and the learning rate."""

    reset_every: Count = 1000
    official_quirks: bool = False  # E₀, ε and the learning rate of ImageNet

    def __post_init__(self) -> None:
        if self.official_quirks:
            object.__setattr__(self, "d_margin", 0.05)
            object.__setattr__(self, "lr", 2.5e-4)


class RDumb(ETA):
    """Entropy of reliable samples, with a reset to the source every T batches."""

    name = "rdumb"
    paper = references.RDUMB
    Config = RDumbConfig
    restores = "all it learned, every reset_every batches"
    deviations = (
        "margins depend on the number of classes (official_quirks: ImageNet's); without batch norm, all norm "
        "layers are adapted (official code: none)"
    )

    config: RDumbConfig

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        if self.config.official_quirks:
            self.e0 = self.config.e0_factor * math.log(1000)
        self.source = tta.snapshot(self.parameters)
        self.batches = 0

    def adapt(self, x: Tensor) -> Tensor:
        if self.batches and self.batches % self.config.reset_every == 0:
            self.restart()
        self.batches += 1
        return super().adapt(x)

    def restart(self) -> None:
        """Bitwise back to the source: weights, optimiser, average prediction."""
        self.counts["resets"] += 1
        tta.pull(self.parameters, self.source)
        self.optimizer.state.clear()
        self.average = None

    def alarms(self) -> dict[str, object]:
        return {**super().alarms(), "resets": self.counts["resets"]}
