"""Some of the images of a dataset, as many of each class as of any other: ``cifar100-c[1000]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench.cell.subset_names import DRAW, split_subset
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.files.fingerprint import combine
from ttabench.errors import UserError


def balanced_rows(
    classes: Sequence[Any] | NDArray[Any], count: int, seed: int, what: str
) -> NDArray[np.int64]:
    """`count` places in `classes`, as many of each class as of any other, or one more; ascending.

    Where a class has too few, others give more. With one seed, a larger draw contains a smaller one.

    classes  (n,) the class of each image, in an order that is the same everywhere.
    what     whose images these are. Raises UserError, which names it, unless 0 < count ≤ n.
    """
    if not 0 < count <= len(classes):
        raise UserError(f"{what}: {len(classes):,} images are here; expected 1 to {len(classes):,}.")
    shuffled = np.random.Generator(np.random.PCG64(seed)).permutation(len(classes))
    _, of = np.unique(np.asarray(classes)[shuffled], return_inverse=True)
    sizes = np.bincount(of)
    by_class = np.argsort(of, kind="stable")
    turn = np.empty_like(shuffled)  # how many images of its class come before an image
    turn[by_class] = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows: NDArray[np.int64] = np.sort(shuffled[np.argsort(turn, kind="stable")[:count]])
    return rows


class Drawn(Dataset):
    """`count` images of each corrupted set of `whole`, a balanced draw; the training images are all there.

    Each set is drawn by its own labels, so images that have one place in all sets keep that. Of clean test
    images, there are as many, or all where there are fewer.
    """

    def __init__(self, whole: Dataset, count: int, seed: int = 0) -> None:
        """Raises UserError where `whole` has fewer images, or is a subset itself."""
        self.whole, self.count, self.seed = whole, count, seed
        self.name = f"{whole.name}[{count}@{seed}]" if seed else f"{whole.name}[{count}]"
        self.num_classes, self.image_size = whole.num_classes, whole.image_size
        self.mean, self.std, self.corruptions = whole.mean, whole.std, whole.corruptions
        self.scored_classes = whole.scored_classes
        there = whole.shifted_count()
        if not 0 < count <= there:
            raise UserError(f"{self.name}: {whole.name} has {there:,} test images; expected 1 to {there:,}.")

    def fingerprint(self) -> str:
        return combine({"whole": self.whole.fingerprint(), "draw": f"{self.count}@{self.seed}"})

    def train(self) -> Labelled:
        return self.whole.train()

    def test(self) -> Labelled:
        clean = self.whole.test()
        return self._of(clean, min(self.count, len(clean)))

    def shifted_count(self) -> int:
        return self.count

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        return self._of(self.whole.corrupted(corruption, severity), self.count)

    def _of(self, data: Labelled, count: int) -> Labelled:
        rows = balanced_rows(data.labels, count, self.seed, self.name)
        return Labelled(data.images[rows], data.labels[rows])


def drawn(whole: Dataset, draw: str) -> Drawn:
    """The draw ``1000`` or ``1000@3`` of a dataset. Raises UserError if that is a draw, or has too few."""
    match = DRAW.fullmatch(draw)
    assert match is not None
    if DRAW.fullmatch(split_subset(whole.name)[1]):
        raise UserError(f"{whole.name}[{draw}]: {whole.name} is a subset already; name one number of images.")
    return Drawn(whole, int(match[1]), int(match[2] or 0))


def undrawn(data: Dataset) -> Dataset:
    """The dataset that a draw is of; another one as it is."""
    return data.whole if isinstance(data, Drawn) else data
