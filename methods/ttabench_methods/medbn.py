"""MedBN: batch norm with the median in the place of the mean, against malicious samples in the batch.

Park et al., CVPR 2024, https://arxiv.org/abs/2403.19326

| symbol | name    |                                                                           |
| ------ | ------- | ------------------------------------------------------------------------- |
| η      | centre  | lower median over batch, height and width, per channel (`nn.channel_moments`) |
| ρ²     | spread  | mean of (x − η)² over the same                                            |

y = γ (x − η)/√(ρ² + ε) + β. Alone it learns nothing and keeps nothing from batch to batch. Other
methods use it with ``statistics=median``, e.g. ``tent[statistics=median]``.

Scored: the only forward pass. Under TENT, EATA and SAR, the official code scores a second forward pass,
after the update; here those methods score their usual forward pass.

Deviations: none.
"""

from __future__ import annotations

from torch import Tensor

from ttabench.method import Method, Needs, NoConfig, SourceData
from ttabench.nn import norm_modules, use_batch_statistics
from ttabench_methods import references


class MedBN(Method[NoConfig]):
    """Batch norm with the median of the test batch and the mean squared deviation from it."""

    name = "medbn"
    paper = references.MEDBN
    needs = Needs(norm_layers=("batch",))
    scores = "the only forward pass"
    scores_frozen = scores

    def setup(self, source: SourceData | None) -> None:
        use_batch_statistics(self.model, "median")

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def adapted(self) -> str:
        return f"medians of {len(list(norm_modules(self.model, 'batch')))} batch-norm layers"
