"""The settings of quantile matching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["QuantileConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileConfig:
    """Raises ValueError on a value out of range."""

    epochs: int = 15  # N of Algorithm 1; chosen on the extra corruptions
    minibatch: int = 50  # images per update; chosen on the extra corruptions (the paper: 128 to 512)
    lr: float = 3e-3  # of Adam, down to 0 on a cosine; chosen on the extra corruptions
    warmup: float = (
        0.2  # part of the updates in which the learning rate rises; chosen on the extra corruptions
    )
    clip: float = 1.0  # bound on the gradient's norm; ours, for stability
    size: Literal["small", "medium", "paper"] = "medium"  # of the decorruptor; paper: 6.2 M parameters
    quantiles_per_class: int = 100  # paper: 1,000 points for the 10 classes of CIFAR10-C
    confident: float = (
        0.5  # HUS draws from this most confident fraction of a class; ours, the paper gives none
    )
    regulariser: float = (
        1.0  # weight of the channel means and standard deviations; ours, the paper gives none
    )
    standardise: bool = True  # features in units of the source's standard deviation; ours
    source_features: int = 10_000  # paper, runtime and memory analysis
    # When the bank's mean is re-based: at an epoch's end (epoch, the paper; optimal with β* of the appendix)
    # or with every update (step, ours). none: no bank, the crude estimator.
    bank: Literal["step", "epoch", "optimal", "none"] = "step"
    bank_on_cpu: bool = False  # paper: on the CPU
    patience: int = 0  # epochs without a lower loss before stopping early, 0 = never; ours
    steps: int = 1  # online: updates per batch; ours
    recent: int = 2048  # online: features of the stream that are kept; ours

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatch", "quantiles_per_class", "source_features", "steps", "recent"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        for name in ("regulariser", "patience", "warmup"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 0")
        for name in ("lr", "clip", "confident"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
