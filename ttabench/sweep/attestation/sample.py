"""The sample: which stored cells run, in which turn, and what they show."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ttabench.cell.protocol import parse_contamination
from ttabench.run.progress_events import CellProgress
from ttabench.store import Record
from ttabench.store.attestations import digest
from ttabench.sweep.attestation.groups import Group, Key, Shown, Way
from ttabench.sweep.attestation.image_sets import of_each_image_set, with_other_images

MOST = 5
"""Turns: cells of one group that run so that all changed branches run."""

Drawn = list[tuple[Group, Record]]


class Sample:
    """Cells of groups that run until everything that changed has run, or for `MOST` turns.

    seed    of the draw: from the code and from what is stored, so that it cannot be chosen.
    failed  the groups of which something differs, or could not run → a cell that shows it.
    alike   (id, operations) of the cells that are the same, in the order in which they ran.
    """

    def __init__(self, groups: Sequence[Group], way: Way, seed: int) -> None:
        self.seed = seed
        self.failed: dict[Key, Shown] = {}
        self.alike: list[tuple[str, str]] = []
        self._groups, self._way = groups, way
        self._group_of: dict[str, Key] = {}
        self._shown: dict[str, Shown] = {}

    def run(self) -> Iterator[Shown | CellProgress]:
        first = self._draw(0)
        if not self._way.compares_images:
            first += of_each_image_set(self._groups, first)
        yield from self._run(first, 0)
        for turn in range(1, MOST):
            for group, record in self._draw(turn, self._way.missing()):
                if group.changed & self._way.missing().keys():  # no other cell of this turn ran it
                    yield from self._run([(group, record)], turn)
        if not self._way.compares_images:
            self.failed = with_other_images(self._groups, self._shown) | self.failed

    def disagreed(self) -> dict[Key, str]:
        """The groups of which a cell ran and has other numbers → how they differ."""
        return {key: shown.why for key, shown in self.failed.items() if shown.ran}

    def of(self, groups: Sequence[Group]) -> list[tuple[str, str]]:
        """`alike`, of these groups alone."""
        keys = {group.key for group in groups}
        return [each for each in self.alike if self._group_of[each[0]] in keys]

    def _run(self, drawn: Drawn, turn: int) -> Iterator[Shown | CellProgress]:
        self._group_of |= {record.cell_id: group.key for group, record in drawn}
        for event in self._way.run([record for _, record in drawn], turn):
            if isinstance(event, Shown):
                self._note(event)
            yield event

    def _note(self, shown: Shown) -> None:
        cell_id = shown.cell.cell_id
        self._shown[cell_id] = shown
        if shown.why:
            self.failed[self._group_of[cell_id]] = shown
        else:
            self.alike.append((cell_id, shown.operations))

    def _draw(self, turn: int, missing: Mapping[str, str] | None = None) -> Drawn:
        """The next cells of each group: of those that adapt most often, one of the cheapest.

        First one for each kind of last batch; later one where branches are missing.
        """
        drawn = []
        for group in self._groups:
            left = [record for record in group.records if record.cell_id not in self._group_of]
            if self._way.varies and turn == 1:
                left = left or list(group.records)
            shown = missing is not None and not group.changed & missing.keys()
            if not left or group.key in self.failed or shown:
                continue
            chance = random.Random(f"{self.seed} {turn} {group.key}")
            for alike in [left] if turn else _by_last_batch(left):
                often = _adapting_most_often(alike)
                cheap = often[: max(1, len(often) // 4)]
                drawn.append((group, chance.choice(cheap)))
        return sorted(drawn, key=lambda pair: pair[1].result.seconds)


def seed_of(groups: Sequence[Group]) -> int:
    text = "".join(
        f"{group.key}{[digest(record.result.correct) for record in group.records]}" for group in groups
    )
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)


def _by_last_batch(records: Sequence[Record]) -> list[list[Record]]:
    """The records whose last batch has as many images as the others, one image, or another number.

    Cells of one kind may have other numbers of images: of foreign ones, or of those of a domain.
    """
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        protocol, images = record.result.cell.protocol, record.result.n_images
        _, share = parse_contamination(protocol.contamination) or ("", 0.0)
        whole = images + round(images * share / (1 - share))
        found[min(whole % protocol.batch_size, 2)].append(record)
    return [alike for _, alike in sorted(found.items())]


def _adapting_most_often(records: Sequence[Record]) -> list[Record]:
    """Those with the fewest batches per adaptation: a slow method skips most steps."""
    every = [record.result.cell.protocol.adapts_every for record in records]
    fewest = min(every)
    return [record for record, batches in zip(records, every, strict=True) if batches == fewest]
