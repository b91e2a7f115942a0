"""BN statistics: batch norm with the statistics of the test batch.

Nado et al., Evaluating Prediction-Time Batch Normalization for Robustness under Covariate Shift, 2020;
Schneider et al., Improving Robustness against Common Corruptions by Covariate Shift Adaptation,
NeurIPS 2020.

| symbol      | name      |                                                                          |
| ----------- | --------- | ------------------------------------------------------------------------ |
| μ_s, σ²_s   | –         | running statistics of the source data                                    |
| μ_t, σ²_t   | –         | mean and biased variance of the test batch, per channel                  |
| α           | alpha     | (μ, σ²) = (1 − α)·(μ_s, σ²_s) + α·(μ_t, σ²_t)                            |
| N           | prior     | α = n/(N + n) for a batch of n images (Schneider et al.)                 |

Scored: the only forward pass. Nothing is learned, and nothing is kept from batch to batch.

Deviations: none. (The official code of TENT also updates running statistics, which it never uses.)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ttabench.method import Method, Needs, NonNegative, Paper, SourceData, UnitInterval
from ttabench.nn import adapt_batch_norm, norm_modules
from ttabench_methods import references


@dataclass(frozen=True, slots=True, kw_only=True)
class BNStatsConfig:
    """With the defaults only the test batch counts (Nado et al.; TENT's `norm`).

    alpha  weight of the test batch; 0.1 is usual with a batch of one.
    prior  N: weight of the source statistics, in images; replaces `alpha`; 0 = off. Schneider et al. use 16
           with few images.
    """

    alpha: UnitInterval = 1.0
    prior: NonNegative = 0.0


class BNStats(Method[BNStatsConfig]):
    """Batch norm with the statistics of the test batch, alone or mixed with those of the source."""

    name = "bn_stats"
    paper = references.BN_STATS
    needs = Needs(norm_layers=("batch",))
    Config = BNStatsConfig
    imagenet_batch_size = 64
    scores = "the only forward pass"
    scores_frozen = scores

    @classmethod
    def papers_of(cls, config: BNStatsConfig) -> tuple[Paper, ...]:
        return (references.BN_STATS_MIXED if config.prior or config.alpha < 1 else references.BN_STATS,)

    def setup(self, source: SourceData | None) -> None:
        adapt_batch_norm(self.model, weight=self.config.alpha, prior=self.config.prior)

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def adapted(self) -> str:
        layers = len(list(norm_modules(self.model, "batch")))
        return f"statistics of {layers} batch-norm layers"
