"""The memory bank (Section 4.2): low-variance estimates of quantile indices from small batches.

| symbol     | name          |                                                       |
| ---------- | ------------- | ----------------------------------------------------- |
| h_r(xᵢ; θ) | –             | unit vector from feature i to point r                 |
| f_θ(xᵢ)    | Bank.features | feature of image i when it was last seen              |
| S          | Bank.mean     | mean of h over these features, the snapshot           |
| B          | positions     | the images of a batch                                 |
| β          | beta          | weight of the control variate                         |
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .geometric import unit_sum


def control_variate(a: Tensor, s: Tensor, mean_s: Tensor, beta: float | Tensor = 1.0) -> Tensor:
    """a + β(S − s) (Section 4.2): `a`, `s` are batch means of h, now and at the snapshot; S is `mean_s`."""
    return a + beta * (mean_s - s)


def best_beta(c: Tensor, mean_a: Tensor, mean_s: Tensor) -> Tensor:
    """β* = (c − A·S)/(1 − ‖S‖²) per point (Q, 1), in [0, 1] (appendix); c (Q,) is the mean of a_i·s_i."""
    covariance = c - (mean_a * mean_s).sum(-1)
    return (covariance / (1 - mean_s.square().sum(-1)).clamp_min(1e-6)).clamp(0, 1).unsqueeze(-1)


def cosines(points: Tensor, now: Tensor, then: Tensor) -> Tensor:
    """Σ a_i·s_i (Q,): sums of cosines between the directions to features (b, k) now and at the snapshot.

    The law of cosines gives them from distances, so no tensor of size Q × b × k is needed.
    """
    distance_now, distance_then = torch.cdist(points, now), torch.cdist(points, then)
    squared_shift = (now - then).square().sum(-1)
    product = (2 * distance_now * distance_then).clamp_min(torch.finfo(now.dtype).tiny)
    return ((distance_now.square() + distance_then.square() - squared_shift) / product).sum(-1)


Weigh = Callable[[Tensor], Tensor]  # features (b, k) → the weight of each at each point (Q, b)


def mean_unit(points: Tensor, features: Tensor, weigh: Weigh | None = None) -> Tensor:
    """The mean of h_r over the features (n, k): (Q, k). Weights are part of h_r; the divisor is always n."""
    total = torch.zeros_like(points)
    for part in torch.split(features, 1024):
        part = part.to(points.device)
        total += unit_sum(points, part, None if weigh is None else weigh(part.detach()))[0]
    return total / len(features)


class Bank:
    """The last seen features of n images, and the mean S of h over them for each of Q points.

    points     (Q, k), where indices are matched.
    features   (n, k), at the start all for the same θ. Later overwritten. Any device, e.g. the CPU.
    every_step True: every update of a feature also updates S. False, as in the paper: only :meth:`rebase`
               updates S, at the end of an epoch.
    beta       1 (the paper), 0 (the crude estimator, without a bank), or None for β*. β* is estimated from
               the batches since the last re-base. The current batch is not used: it would bias the estimate.
               For the first batch, β* is 1.
    """

    def __init__(
        self,
        points: Tensor,
        features: Tensor,
        *,
        every_step: bool = False,
        beta: float | None = 1.0,
        weigh: Weigh | None = None,
    ) -> None:
        self.points, self.features = points, features
        self.every_step, self.beta, self.weigh = every_step, beta, weigh
        self.rebase()

    def rebase(self) -> None:
        """Compute S again from the stored features."""
        self.mean = mean_unit(self.points, self.features, self.weigh)
        self.seen, self.cosines = 0, self.points.new_zeros(len(self.points))
        self.moved = torch.zeros_like(self.points)  # Σ (a_i − s_i)

    def estimate(self, positions: Tensor, features: Tensor) -> Tensor:
        """Estimated indices (Q, k) at the current θ, with a gradient for the batch's `features` (b, k).

        The estimate is unbiased over batches drawn from the n images. Afterwards the bank stores `features`
        at `positions` (b,).
        """
        mean_now = mean_unit(self.points, features, self.weigh)
        with torch.no_grad():
            rows = positions.to(self.features.device)
            snapshot = self.features[rows].to(features)
            mean_snapshot = mean_unit(self.points, snapshot, self.weigh)
        estimate = control_variate(
            mean_now, mean_snapshot, self.mean, self._best() if self.beta is None else self.beta
        )
        if self.beta is None:
            self.cosines += cosines(self.points, features.detach(), snapshot)
            self.moved += len(features) * (mean_now.detach() - mean_snapshot)
            self.seen += len(features)
        self.features[rows] = features.detach().to(self.features)
        if self.every_step:
            self.mean = self.mean + (mean_now.detach() - mean_snapshot) * (len(features) / len(self.features))
        return estimate

    def _best(self) -> float | Tensor:
        """β*; A is S plus the mean change of h in the batches since the last re-base."""
        if not self.seen:
            return 1.0
        return best_beta(self.cosines / self.seen, self.mean + self.moved / self.seen, self.mean)


class StreamBank:
    """The most recent `capacity` features of a stream, and the sum of h over them for each of Q points.

    Each image comes once, so there is no snapshot for a correction. The estimate is the mean over the stored
    features and the batch.
    """

    def __init__(self, points: Tensor, capacity: int, weigh: Weigh | None = None) -> None:
        self.points, self.weigh = points, weigh
        self.features = points.new_zeros(capacity, points.shape[1])
        self.total = torch.zeros_like(points)
        self.seen = 0

    @property
    def size(self) -> int:
        return min(self.seen, len(self.features))

    def estimate(self, features: Tensor) -> Tensor:
        """Estimated indices (Q, k) over bank and batch; the gradient is that of the batch (b, k) mean."""
        batch = mean_unit(self.points, features, self.weigh)
        mean = (self.total + len(features) * batch.detach()) / (self.size + len(features))
        return batch + (mean - batch).detach()

    def push(self, features: Tensor) -> None:
        """Store the features (b, k) of a batch in place of the oldest ones."""
        latest = features.detach()[-len(self.features) :].to(self.features)
        slots = (self.seen + torch.arange(len(latest))) % len(self.features)  # on the CPU: a mask follows
        for sign, part in ((-1, self.features[slots[slots < self.size]]), (1, latest)):
            if len(part):
                self.total += sign * len(part) * mean_unit(self.points, part, self.weigh)
        self.features[slots] = latest
        self.seen += len(latest)
