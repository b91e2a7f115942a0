"""The order dirichlet(0): one class after the other, the label shift of SAR (Niu et al., ICLR 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench.data.dataset import Labelled
from ttabench.measure.scoring import Evaluation, evaluate
from ttabench.measure.stream import arrange
from ttabench.protocol import Protocol

__all__ = ["ORDER", "class_by_class", "evaluate_by_class"]

ORDER = "dirichlet(0)"


def class_by_class(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Positions 0 … n−1: all images of a class, then all of another one, both in a seeded order."""
    draw = np.random.Generator(np.random.PCG64(seed))
    classes = draw.permutation(np.unique(labels))
    return np.concatenate([draw.permutation(np.flatnonzero(labels == label)) for label in classes])


def evaluate_by_class(method: Any, data: Labelled, protocol: Protocol, seed: int, *rest: Any) -> Evaluation:
    """:func:`ttabench.measure.scoring.evaluate` with this order; `rest` are its further arguments.

    The images are put where its seeded shuffle brings them class by class. Which of them were right is in the
    order of the test set.
    """
    n = min(protocol.limit or len(data), len(data))
    places = np.empty(n, np.int64)  # which image stands at each position
    places[arrange("iid", data.labels[:n], seed)] = class_by_class(data.labels[:n], seed)
    placed = Labelled(data.images[:n][places], data.labels[:n][places])
    found = evaluate(method, placed, replace(protocol, order="iid"), seed, *rest)
    correct = np.empty(n, bool)
    correct[places] = found.correct
    return replace(found, correct=correct)
