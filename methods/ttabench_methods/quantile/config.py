"""The settings of quantile matching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ttabench.method import Count, Natural, NonNegative, Positive, Range, UnitInterval

__all__ = ["QuantileConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileConfig:
    """Defaults: the paper's, or chosen on the four extra corruptions, as each says.

    Raises ValueError on values that do not go together.
    """

    # Training
    epochs: Count = 10  # N of Algorithm 1; chosen (the paper does not say)
    minibatch: Count = 50  # images per update; chosen (paper: 128 to 512, for 10,000 images)
    lr: Positive = 3e-3  # learning rate of Adam; chosen
    warmup: UnitInterval = 0.2  # part of the updates in which lr rises, to fall to 0 on a cosine; chosen
    clip: Positive = 1.0  # bound on the gradient's norm
    patience: Natural = 0  # epochs without a lower loss before stopping early, 0 = never

    # The decorruptor and what keeps it in bounds
    size: Literal["small", "medium", "paper"] = "small"  # decorruptor's size; chosen; paper: 6.2 M parameters
    regulariser: NonNegative = 1.0  # weight of the channel means and standard deviations (Section 5); chosen
    proximity: NonNegative = 4.0  # weight of the mean of (T(x) − x)²; 0 in the paper; chosen

    start: Literal["identity", "auto"] = "auto"  # auto: or with the channels brought to the source's mean and
    # standard deviation, where that has the lower quantile loss; the paper: identity

    # target: batch norm's statistics are first those of the target images at the start (BNStats); ours, and
    # only for models that have batch norm
    batch_norm: Literal["source", "target"] = "source"

    # The loss
    quantiles_per_class: Count = 100  # points per class whose indices are matched; paper: 1,000 points in all
    confident: Annotated[float, Range(above=0, most=1)] = 0.5  # part of each class that points are from
    standardise: bool = True  # features in units of the source's standard deviation; False in the paper
    source_features: Annotated[int, Range(least=2)] = 10_000  # source images; as in the paper
    per_class: NonNegative = 1.0  # offline: weight of the indices in each predicted class; paper: 0; chosen
    information: NonNegative = 0.1  # weight of information maximisation (SHOT's); 0 in the paper; chosen

    # The bank. Its mean is re-based with every update (step), or at an epoch's end as in the paper (epoch;
    # optimal: and with β* of the appendix). none: no bank, the crude estimator.
    bank: Literal["step", "epoch", "optimal", "none"] = "step"
    bank_on_cpu: bool = False  # keep the bank in host memory, as the paper does

    # Offline, predictions are means over views of the decorrupted image: a pixel off in four directions, and
    # mirrored where that is a symmetry; the paper: the image alone; chosen
    views: bool = True

    # Online, which the paper does not treat
    online_lr: Positive = 3e-4  # learning rate of Adam; chosen
    steps: Count = 1  # updates per batch
    recent: Count = 2048  # features of the stream that are kept

    def __post_init__(self) -> None:
        if self.per_class and self.bank == "optimal":
            raise ValueError(
                "bank is 'optimal', whose β* is for unit vectors; with per_class use step or epoch"
            )
