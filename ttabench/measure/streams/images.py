"""The images of a long stream, by position: any part of it can be read, and only that part is in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.fractional import corrupt_between
from ttabench.data.dataset import Dataset, Labelled
from ttabench.measure.scoring import Order, put_in_order
from ttabench.protocol import RAMP, Protocol

FOREIGN = -1


class Batch(NamedTuple):
    """images (b, n, n, 3) uint8; labels (b,), :data:`FOREIGN` for an image that is not scored."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


class LongStream(ABC):
    """A stream of images that is read by position, so that it can be continued anywhere.

    total    images.
    scored   images with a label.
    """

    total: int
    scored: int

    @abstractmethod
    def read(self, start: int, stop: int) -> Batch:
        """The images at positions `start` … `stop` − 1."""


class Parts(LongStream):
    """Test sets one after the other, each in its own order.

    load    the images of part 0, 1 …; only the current part is kept.
    """

    def __init__(
        self, parts: int, load: Callable[[int], Labelled], protocol: Protocol, seed: int, size: int
    ) -> None:
        self._load, self._protocol, self._seed = load, protocol, seed
        self._current: tuple[int, Order] | None = None
        scored_per_part = min(protocol.limit or size, size)
        self.part_length = len(self._part(0).scored)
        self.total, self.scored = parts * self.part_length, parts * scored_per_part

    def read(self, start: int, stop: int) -> Batch:
        images, labels = [], []
        while start < stop:
            number, first = divmod(start, self.part_length)
            last = min(first + stop - start, self.part_length)
            order = self._part(number)
            positions = order.scored[first:last]
            in_test_set = positions < len(order.labels)
            images.append(order.images[positions])
            labels.append(np.full(len(positions), FOREIGN))
            labels[-1][in_test_set] = order.labels[positions[in_test_set]]
            start += last - first
        return Batch(np.concatenate(images), np.concatenate(labels))

    def _part(self, number: int) -> Order:
        if self._current is None or self._current[0] != number:
            self._current = None  # frees the previous part before the next is read
            seed = part_seed(self._seed, number)
            self._current = number, put_in_order(self._load(number), self._protocol, seed)
        return self._current[1]


def part_seed(seed: int, part: int) -> int:
    """The seed of the order of a part."""
    return int(np.random.SeedSequence((seed, part)).generate_state(1, np.uint64)[0] >> 1)


def shifts(kind: str, rounds: int, corruptions: Sequence[str], severity: int) -> list[tuple[str, int]]:
    """(corruption, severity) of the parts of one round of a stream, times the rounds of a recurring one."""
    if kind == "gradual":
        return [(name, step) for name in corruptions for step in RAMP]
    return [(name, severity) for name in corruptions] * rounds


def corrupted_parts(
    dataset: Dataset, corruptions: Sequence[str], severity: int, protocol: Protocol, seed: int
) -> Parts:
    """The stream of a recurring or gradual protocol."""
    spec = protocol.spec
    parts = shifts(spec.kind, spec.rounds, corruptions, severity)
    return Parts(
        len(parts), lambda number: dataset.corrupted(*parts[number]), protocol, seed, dataset.shifted_count()
    )


@dataclass(frozen=True, slots=True)
class Point:
    """Two corruptions at once: `first` is applied before `second`; severities 0 … 5."""

    first: str
    first_severity: float
    second: str
    second_severity: float


def corrupt_at(images: NDArray[np.uint8], point: Point, seed: int, start: int = 0) -> NDArray[np.uint8]:
    """Images under both corruptions of a point; `start` is the position of the first image in the stream."""
    images = corrupt_between(images, point.first, point.first_severity, seed, start)
    return corrupt_between(images, point.second, point.second_severity, seed, start)


class PathStream(LongStream):
    """Clean test sets one after the other, under corruptions that follow a path.

    point_at   the point of step 0, 1 …; each step has `speed` images.
    """

    def __init__(
        self,
        clean: Labelled,
        protocol: Protocol,
        seed: int,
        point_at: Callable[[int], Point],
    ) -> None:
        spec = protocol.spec
        passes = -(-spec.length // min(protocol.limit or len(clean), len(clean)))
        self._clean = Parts(passes, lambda number: clean, protocol, seed, len(clean))
        self._speed, self._seed, self._point_at = spec.speed, seed, point_at
        self.total = self.scored = spec.length

    def read(self, start: int, stop: int) -> Batch:
        images, labels = self._clean.read(start, stop)
        corrupted = np.empty_like(images)
        position = start
        while position < stop:
            end = min(stop, (position // self._speed + 1) * self._speed)
            rows = slice(position - start, end - start)
            corrupted[rows] = corrupt_at(
                images[rows], self._point_at(position // self._speed), self._seed, position
            )
            position = end
        return Batch(corrupted, labels)
