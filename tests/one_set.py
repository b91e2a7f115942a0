"""One test set, scored as the single corruption of a cell is."""

from __future__ import annotations

from typing import Any

from ttabench.cell.protocol import Protocol
from ttabench.data.dataset import Labelled
from ttabench.measure import scoring
from ttabench.measure.image_stream import Part
from ttabench.method import Method


def evaluate(
    method: Method[Any], data: Labelled, protocol: Protocol, seed: int, *more: Any, **named: Any
) -> scoring.Evaluation:
    """:func:`ttabench.measure.scoring.evaluate` of a test set; further arguments are handed on."""
    return scoring.evaluate(method, Part(data, protocol, seed), protocol, seed, *more, **named)
