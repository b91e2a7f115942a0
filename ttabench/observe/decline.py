"""The alarm for a method that gets worse along a stream of images in random order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

LEAST_IMAGES = 20  # in the first and in the last part of a stream
FALL = 0.25  # of the accuracy at the beginning
ERRORS = 4.0  # standard errors of the difference; a chance of 1 in 30,000


@dataclass
class Course:
    """The accuracy over the first and the last third of a stream, in whole batches.

    In random order the images are as hard at the end as at the beginning. Where accuracy falls, the method
    does harm, such as with a learning rate that is too large.

    counts   (images scored, right ones among them) after each batch.
    """

    counts: list[tuple[int, int]] = field(default_factory=list)

    def note(self, _seen: int, scored: int, right: int) -> None:
        """Note what holds after a batch: of the whole stream so far, as `measure.scoring.OnBatch` says it."""
        if scored:
            self.counts.append((scored, right))

    def alarm(self) -> str:
        """The alarm; "" if there is none."""
        points = [(0, 0), *self.counts]
        total, right = points[-1]
        first, first_right = next((point for point in points if point[0] >= total / 3), (0, 0))
        rest, rest_right = next(
            (point for point in reversed(points) if point[0] <= total * 2 / 3), (total, right)
        )
        last, last_right = total - rest, right - rest_right
        if first > rest or min(first, last) < LEAST_IMAGES:
            return ""
        p, q = first_right / first, last_right / last
        pooled = (first_right + last_right) / (first + last)
        error = math.sqrt(pooled * (1 - pooled) * (1 / first + 1 / last))
        if p - q <= max(ERRORS * error, FALL * p):
            return ""
        return (
            f"accuracy falls along the stream: {100 * p:.1f} % of the first {first:,} images are right, and "
            f"{100 * q:.1f} % of the last {last:,}"
        )
