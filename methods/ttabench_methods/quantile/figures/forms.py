"""Which form of the method a figure shows: the paper's, or the one with our additions."""

from __future__ import annotations

from ttabench.errors import unknown
from ttabench_methods.quantile import Quantile, QuantilePaper

__all__ = ["FORMS", "form"]

FORMS = ("quantile", "quantile_paper")


def form(name: str, ours: type[Quantile]) -> type[Quantile]:
    """The method by its name; `ours` is ``quantile``. Raises UserError for another name."""
    if name not in FORMS:
        raise unknown("method of this figure", name, FORMS)
    return QuantilePaper if name == "quantile_paper" else ours
