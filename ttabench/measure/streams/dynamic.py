"""Continual dynamic change (CDC): corruptions come back, and each visit has a length of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttabench.cell.protocol import Protocol
from ttabench.data.dataset import Labelled
from ttabench.measure.image_stream import Batch, ImageStream, Part
from ttabench.measure.streams.images import joined, part_seed


class Visit(NamedTuple):
    """The images `first` … `last` − 1, in the order of their corruption, under corruption number `part`."""

    part: int
    first: int
    last: int


def visits(parts: int, images: int, concentration: float, rounds: int, seed: int) -> list[Visit]:
    """Every image of every part once, in visits.

    In each round, every part is visited once, in random order. The shares of a part's images in the rounds
    are drawn from a Dirichlet distribution: with a small concentration a part has few long visits, with a
    large one they are of equal length. Visits without images are left out.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    shares = draw.dirichlet(np.full(rounds, concentration), parts)  # (parts, rounds)
    ends = np.round(np.cumsum(shares, axis=1) * images).astype(int)
    ends[:, -1] = images
    starts = np.concatenate([np.zeros((parts, 1), int), ends[:, :-1]], axis=1)
    found = [
        Visit(int(part), int(starts[part, turn]), int(ends[part, turn]))
        for turn in range(rounds)
        for part in draw.permutation(parts)
    ]
    return [visit for visit in found if visit.first < visit.last]


class DynamicStream(ImageStream):
    """Test sets in visits, each in its own order; only the current one is in memory.

    load    the images of part 0, 1 …
    size    images in each.
    """

    def __init__(
        self, parts: int, load: Callable[[int], Labelled], protocol: Protocol, seed: int, size: int,
        concentration: float, rounds: int,
    ) -> None:  # fmt: skip
        self._load, self._seed = load, seed
        images = min(protocol.limit or size, size)
        self._protocol = replace(protocol, limit=images)
        self._visits = visits(parts, images, concentration, rounds, seed)
        self._ends: NDArray[np.int64] = np.cumsum([visit.last - visit.first for visit in self._visits])
        self._current: tuple[int, Part] | None = None
        self.total = self.scored = parts * images

    def read(self, start: int, stop: int) -> Batch:
        read = []
        while start < stop:
            number = int(np.searchsorted(self._ends, start, side="right"))
            visit, end = self._visits[number], int(self._ends[number])
            last = min(stop, end)
            part = self._part(visit.part)
            read.append(part.read(visit.last - (end - start), visit.last - (end - last)))
            start = last
        return joined(read)

    def _part(self, number: int) -> Part:
        if self._current is None or self._current[0] != number:
            self._current = None  # frees the previous part before the next is read
            self._current = number, Part(self._load(number), self._protocol, part_seed(self._seed, number))
        return self._current[1]
