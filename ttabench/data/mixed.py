"""The test set with all fifteen corruptions interleaved: one stream, many domains."""

from __future__ import annotations

import numpy as np

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.dataset import Dataset, Labelled

MIXED = "mixed"


def mixed(dataset: Dataset, severity: int, seed: int) -> Labelled:
    """Every test image once, under one of the fifteen corruptions.

    Each corruption gets the same number of images, to within one. `seed` decides which image gets which
    corruption, so that consecutive images of a shuffled stream come from different domains.
    """
    clean = dataset.test()
    corruption_of = np.random.Generator(np.random.PCG64(seed)).permutation(len(clean)) % len(CORRUPTIONS)
    images = np.empty_like(clean.images)
    for number, name in enumerate(CORRUPTIONS):
        rows = np.flatnonzero(corruption_of == number)
        images[rows] = dataset.corrupted(name, severity).images[rows]
    return Labelled(images, clean.labels)
