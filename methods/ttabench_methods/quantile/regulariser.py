"""The regulariser (Section 5): channel statistics of decorrupted images stay near standard values."""

from __future__ import annotations

from torch import Tensor


def channel_penalty(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """‖mean(x) − mean‖² + ‖std(x) − std‖² over the C channels of a batch (B, C, H, W)."""
    var, centre = x.float().var((0, 2, 3), correction=0), x.float().mean((0, 2, 3))
    # A batch of one uniformly grey image has variance 0, where √ has no gradient.
    return (centre - mean.flatten()).square().sum() + ((var + 1e-8).sqrt() - std.flatten()).square().sum()
