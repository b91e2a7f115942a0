"""Quantile matching, and the geometric quantiles that it is based on."""

from .config import QuantileConfig
from .geometric import quantile_index, quantile_loss
from .method import Quantile
from .paper import QuantilePaper, QuantilePaperConfig
from .solver import geometric_quantile

__all__ = [
    "Quantile",
    "QuantileConfig",
    "QuantilePaper",
    "QuantilePaperConfig",
    "geometric_quantile",
    "quantile_index",
    "quantile_loss",
]
