"""The test images of a cell that is not a long stream."""

from __future__ import annotations

from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.mixed import MIXED, mixed


def test_set(dataset: Dataset, corruption: str, severity: int, seed: int) -> Labelled:
    """The images under a corruption, or those of all corruptions in one set, mixed for this seed."""
    if corruption == MIXED:
        return mixed(dataset, severity, seed)
    return dataset.corrupted(corruption, severity)
