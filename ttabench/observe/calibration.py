"""Calibration: whether a method is right as often as its confidence says, in bins of confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 15
"""Bins of equal width, as in Guo et al., "On Calibration of Modern Neural Networks", ICML 2017."""


def calibration_bins(confidence: NDArray[np.float32], correct: NDArray[np.bool_]) -> dict[str, list[float]]:
    """Sums over the images of each bin, from which reliability diagrams and calibration errors are computed.

    confidence  (n,) the largest softmax probability of each image, 0 … 1.
    correct     (n,) whether the predicted class is right.

    Returns `count`, `confidence` (sum) and `correct` (number), each of length :data:`BINS`. Bin k has the
    confidences in (k/BINS, (k+1)/BINS], and bin 0 also has 0.
    """
    at = np.clip(np.ceil(confidence.astype(np.float64) * BINS) - 1, 0, BINS - 1).astype(np.int64)
    count = np.bincount(at, minlength=BINS)
    right = np.bincount(at, weights=correct, minlength=BINS)
    total = np.bincount(at, weights=confidence, minlength=BINS)
    return {
        "count": count.tolist(),
        "confidence": total.round(3).tolist(),
        "correct": right.astype(np.int64).tolist(),
    }
