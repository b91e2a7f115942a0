"""Accuracy over a long stream, in windows of equal length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 100
"""Windows of a stream, at most."""
LEAST = 100
"""Images of a window, at least: with fewer, its accuracy would be too noisy."""


def window_length(scored: int) -> int:
    """Scored images per window: :data:`LEAST`, or as many as give :data:`MOST` windows."""
    return max(LEAST, -(-scored // MOST))


def windows(correct: NDArray[np.bool_]) -> dict[str, Any]:
    """``{"length": images per window, "accuracy": [percent, …]}`` for correctness (n,) in stream order.

    The last window may be shorter. The length depends on n alone, so that methods with different batch sizes
    have the same windows.
    """
    length = window_length(len(correct))
    accuracy = [
        round(100 * float(correct[start : start + length].mean()), 4)
        for start in range(0, len(correct), length)
    ]
    return {"length": length, "accuracy": accuracy}
