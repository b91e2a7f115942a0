"""The settings of quantile matching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["QuantileConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileConfig:
    """Settings, each with where its value is from: the paper, or "chosen" on the four extra corruptions.

    Raises ValueError on a value out of range.
    """

    # Training
    epochs: int = 10  # N of Algorithm 1; chosen (the paper does not say)
    minibatch: int = 50  # images per update; chosen (paper: 128 to 512, for 10,000 images)
    lr: float = 3e-3  # of Adam; chosen
    warmup: float = 0.2  # part of the updates in which lr rises; then it falls to 0 on a cosine; chosen
    clip: float = 1.0  # bound on the gradient's norm
    patience: int = 0  # epochs without a lower loss before stopping early, 0 = never

    # The decorruptor and what keeps it in bounds
    size: Literal["small", "medium", "paper"] = "small"  # chosen; paper: 6.2 M parameters
    regulariser: float = 1.0  # weight of the channel means and standard deviations (Section 5); chosen
    proximity: float = 4.0  # weight of the mean of (T(x) − x)²; 0 in the paper; chosen

    start: Literal["identity", "auto"] = "auto"  # auto: or with the channels brought to the source's mean and
    # standard deviation, where that has the lower quantile loss; the paper: identity

    # target: batch norm's statistics are first those of the target images at the start (BNStats); ours, and
    # only for models that have batch norm
    batch_norm: Literal["source", "target"] = "source"

    # The loss
    quantiles_per_class: int = 100  # paper: 1,000 points
    confident: float = 0.5  # points are drawn from this most confident part of each class
    standardise: bool = True  # features in units of the source's standard deviation; False in the paper
    source_features: int = 10_000  # paper, runtime and memory analysis
    per_class: float = 0.0  # weight of the indices within each predicted class; 0 in the paper

    # The bank. Its mean is re-based with every update (step), or at an epoch's end as in the paper (epoch;
    # optimal: and with β* of the appendix). none: no bank, the crude estimator.
    bank: Literal["step", "epoch", "optimal", "none"] = "step"
    bank_on_cpu: bool = False  # paper: on the CPU

    # Online, which the paper does not treat
    steps: int = 1  # updates per batch
    recent: int = 2048  # features of the stream that are kept

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatch", "quantiles_per_class", "source_features", "steps", "recent"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        for name in ("regulariser", "proximity", "per_class", "patience", "warmup"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 0")
        for name in ("lr", "clip", "confident"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
        if self.per_class and self.bank == "optimal":
            raise ValueError(
                "bank is 'optimal', whose β* is for unit vectors; with per_class use step or epoch"
            )
