"""The random generators of Python and NumPy, which official code of methods may draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def kept_generators() -> Iterator[None]:
    """The block leaves both as they were before."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """In the block, both start from `seed`, as torch's does; it leaves them as they were before.

    So the seed of a cell decides its number, whatever other cells or the program of a user have drawn.
    """
    with kept_generators():
        random.seed(int(seed))
        np.random.seed(int(seed) % 2**32)  # noqa: NPY002
        yield
