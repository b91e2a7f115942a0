"""The test set with all fifteen corruptions interleaved: one stream, many domains."""

from __future__ import annotations

import numpy as np

from ttabench.corruptions.names import CORRUPTIONS
from ttabench.data.dataset import Dataset, Labelled

MIXED = "mixed"


def mixed(dataset: Dataset, severity: int, seed: int) -> Labelled:
    """Every test image once, each under one of the fifteen corruptions.

    The corruptions take equal shares (to within one image), dealt out at random by `seed`, so that
    a shuffled stream of these images jumps from domain to domain.
    """
    clean = dataset.test()
    deal = np.random.Generator(np.random.PCG64(seed)).permutation(len(clean)) % len(CORRUPTIONS)
    images = np.empty_like(clean.images)
    for number, name in enumerate(CORRUPTIONS):
        mine = np.flatnonzero(deal == number)
        images[mine] = dataset.corrupted(name, severity).images[mine]
    return Labelled(images, clean.labels)
