"""Source data that serve the statistics which a method declares, and refuse others."""

from __future__ import annotations

from typing import Any

from ttabench.errors import UserError
from ttabench.method import Needs, SourceData

STATISTICS = {
    "channels": "mean and standard deviation of the image channels",
    "norm_statistics": "mean and variance of the outputs of norm layers",
    "quantiles": "quantiles of the outputs of norm layers",
    "gaussian": "mean and covariance of features",
    "class_gaussians": "mean and covariance of features per predicted class",
    "entropies": "entropies of predictions",
}
"""The functions of :class:`ttabench.method.SourceData` that serve statistics, and what they serve."""


class DeclaredSource:
    """`source` for a method with these `needs`: a statistic that they do not name raises PermissionError.

    Tables say which source data a method was given, so none may be given that it does not declare.
    """

    def __init__(self, source: SourceData, needs: Needs) -> None:
        self._source, self._needs = source, needs

    def __getattr__(self, name: str) -> Any:
        if name in STATISTICS and name not in self._needs.source_statistics:
            raise PermissionError(undeclared(self._needs, name))
        return getattr(self._source, name)

    def __reduce_ex__(self, protocol: object) -> Any:
        """Raises UserError: a reset copies all that a method keeps, and source data cannot be copied."""
        raise UserError(
            "the method keeps `source` after setup(), and reset() cannot restore it; keep the tensors that "
            "adapt() needs"
        )


def undeclared(needs: Needs, name: str) -> str:
    """What a method asked for without declaring it, and how it declares it."""
    named = (*needs.source_statistics, name)
    return (
        f"source data: {name}(), which its Needs do not declare; "
        f"set Needs(source_data={needs.source_data or 'statistics'!r}, source_statistics={named!r})"
    )
