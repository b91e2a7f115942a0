"""Long streams of images: several test sets one after the other, or one under corruptions on a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ttabench.cell.protocol import Protocol
from ttabench.cell.stream_spec import RAMP
from ttabench.corruptions.fractional import corrupt_between
from ttabench.data.dataset import Dataset, Labelled
from ttabench.measure.image_stream import Batch, ImageStream, Part


class Parts(ImageStream):
    """Test sets one after the other, each in its own order.

    load    the images of part 0, 1 …; only the current part is kept.
    """

    def __init__(self, parts: int, load: Callable[[int], Labelled], protocol: Protocol, seed: int) -> None:
        self._load, self._protocol, self._seed = load, protocol, seed
        self._current: tuple[int, Part] | None = None
        first = self._part(0)
        self.part_length = first.total
        self.total, self.scored = parts * first.total, parts * first.scored

    def read(self, start: int, stop: int) -> Batch:
        read = []
        while start < stop:
            number, first = divmod(start, self.part_length)
            last = min(first + stop - start, self.part_length)
            read.append(self._part(number).read(first, last))
            start += last - first
        return joined(read)

    def _part(self, number: int) -> Part:
        if self._current is None or self._current[0] != number:
            self._current = None  # frees the previous part before the next is read
            self._current = number, Part(self._load(number), self._protocol, part_seed(self._seed, number))
        return self._current[1]


def joined(batches: Sequence[Batch]) -> Batch:
    """One batch of several, in their order."""
    images, labels = zip(*batches, strict=True)
    return Batch(np.concatenate(images), np.concatenate(labels))


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
    return Parts(len(parts), lambda number: dataset.corrupted(*parts[number]), protocol, seed)


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


class PathStream(ImageStream):
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
        self._clean = Parts(passes, lambda number: clean, protocol, seed)
        self._speed, self._seed, self._point_at = spec.speed, seed, point_at
        self.total = self.scored = spec.length

    def follow_path(self) -> Iterator[int]:
        """Ask for every point once, so that reading images has none to find.

        Yields the place of the first image of each pair of corruptions.
        """
        pair: tuple[str, ...] = ()
        for step in range(-(-self.total // self._speed)):
            point = self._point_at(step)
            if pair != (pair := (point.first, point.second)):
                yield step * self._speed

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
