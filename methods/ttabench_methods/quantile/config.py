"""The settings of quantile matching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ttabench.method import Count, Natural, NonNegative, Positive, Range, UnitInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileConfig:
    """Defaults: the paper's, or chosen on the four extra corruptions, as the comments say.

    Raises ValueError on settings that exclude each other.
    """

    # Training
    epochs: Count = 10  # N of Algorithm 1; chosen (the paper does not say)
    minibatch: Count = 50  # images per update; chosen (paper: 128 to 512, for 10,000 images)
    lr: Positive = 3e-3  # learning rate of Adam; chosen
    warmup: UnitInterval = 0.2  # share of updates in which lr rises; then it falls to 0 as a cosine; chosen
    clip: Positive = 1.0  # bound on the gradient's norm
    patience: Natural = 0  # epochs without a lower loss before stopping early, 0 = never

    # The decorruptor and its regularisation
    size: Literal["small", "medium", "paper"] = "small"  # decorruptor's size; chosen; paper: 6.2 M parameters
    regulariser: NonNegative = 1.0  # weight of the channel means and standard deviations (Section 5); chosen
    proximity: NonNegative = 4.0  # weight of the mean of (T(x) − x)²; 0 in the paper; chosen

    start: Literal["identity", "auto"] = "auto"  # auto: the identity, or channels mapped to the source's mean
    # and standard deviation, whichever has the lower quantile loss; the paper: identity

    # target: before training, the statistics of batch norm become those of the target images (BNStats). This
    # is our addition, for models with batch norm only.
    batch_norm: Literal["source", "target"] = "source"

    # The loss
    quantiles_per_class: Count = 100  # points per class whose indices are matched; paper: 1,000 points in all
    confident: Annotated[float, Range(above=0, most=1)] = 0.5  # points are from this share of each class,
    # the most confident predictions
    standardise: bool = True  # features in units of the source's standard deviation; False in the paper
    source_features: Annotated[int, Range(least=2)] = 10_000  # source images; as in the paper
    per_class: NonNegative = 1.0  # offline: weight of the indices in each predicted class; paper: 0; chosen
    information: NonNegative = 0.1  # weight of information maximisation (SHOT's); 0 in the paper; chosen

    # When the mean of the bank is re-based. step: with every update. epoch: at the end of an epoch, as in the
    # paper. optimal: as epoch, with β* of the appendix. none: no bank, the crude estimator.
    bank: Literal["step", "epoch", "optimal", "none"] = "step"
    bank_on_cpu: bool = False  # keep the bank in host memory, as the paper does

    # Offline: predictions are averaged over views of the decorrupted image: the image, its shifts by one
    # pixel in four directions, and their mirror images if mirroring is a symmetry. The paper: the image
    # alone. Chosen.
    views: bool = True

    # Online, which the paper does not treat
    online_lr: Positive = 3e-4  # learning rate of Adam; chosen
    steps: Count = 1  # updates per batch
    recent: Count = 2048  # number of recent features that are kept

    def __post_init__(self) -> None:
        if self.per_class and self.bank == "optimal":
            raise ValueError(
                "bank is 'optimal', whose β* holds for unit vectors only, and per_class is above 0; set "
                "per_class to 0, or use step or epoch"
            )
