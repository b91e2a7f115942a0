"""Separable Gaussian filter and central zoom, on arrays with the image axes first: (n, n, …)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ttabench.corruptions.layout import Float


def gaussian_weights(sigma: float, radius: int) -> NDArray[np.float64]:
    """(radius + 1,): the centre's weight, then one weight per distance; the whole filter sums to 1."""
    distance = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (sigma * sigma) * distance**2)
    return np.asarray((weights / weights.sum())[radius:])


def gaussian_filter(x: Float, sigma: float) -> Float:
    """Gaussian filter of the first axis, then of the second; edge pixels replicated.

    The radius is int(4 sigma + 0.5). Terms are added from the centre, then from the farthest pair inwards,
    as SciPy does: results are truncated to grey levels later, where the last bit decides in flat areas.
    """
    radius = int(4 * sigma + 0.5)
    weights = gaussian_weights(sigma, radius)
    for axis in (0, 1) if radius else ():
        x = _correlate_symmetric(x, weights, axis)
    return x


def _correlate_symmetric(x: Float, weights: NDArray[np.float64], axis: int) -> Float:
    n, radius = x.shape[axis], len(weights) - 1
    padded = np.take(x, np.clip(np.arange(-radius, n + radius), 0, n - 1), axis=axis)
    lead = (slice(None),) * axis

    def shifted(by: int) -> Float:
        view: Float = padded[(*lead, slice(radius + by, radius + by + n))]
        return view

    total: Float = shifted(0) * weights[0]
    pair = np.empty_like(total)
    for distance in range(radius, 0, -1):
        np.add(shifted(-distance), shifted(distance), out=pair)
        pair *= weights[distance]
        total += pair
    return total.astype(x.dtype)


@lru_cache(maxsize=256)
def central_zoom(n: int, factor: float) -> sparse.csr_array:
    """(n², n²): bilinear zoom by `factor` around the centre, as weights of the original's pixels."""
    along = zoom_matrix(n, factor)
    return sparse.csr_array(sparse.kron(along, along))


def zoom_matrix(n: int, factor: float) -> NDArray[np.float64]:
    """(n, n): the zoom along one axis.

    The central ceil(n / factor) pixels are stretched to round(that × factor) by linear interpolation with
    corners aligned, of which the central n are kept.
    """
    crop = int(np.ceil(n / factor))
    stretched = round(crop * factor)
    first = (stretched - n) // 2
    position = (first + np.arange(n)) * ((crop - 1) / (stretched - 1))
    left = np.minimum(position.astype(int), crop - 2)
    matrix = np.zeros((n, n))
    rows, top = np.arange(n), (n - crop) // 2
    matrix[rows, top + left] = 1 - (position - left)
    matrix[rows, top + left + 1] = position - left
    return matrix
