"""A method, ready for its first image."""

from __future__ import annotations

from typing import Any

import torch

from ttabench.classifier import Classifier
from ttabench.method import Method, SourceData


def prepared(
    method: type[Method[Any]], classifier: Classifier, config: Any, seed: int, source: SourceData
) -> Method[Any]:
    """A method around a classifier after its preparation from the source data."""
    torch.manual_seed(seed)
    made = method(classifier, config)
    made.prepare(source)
    return made
