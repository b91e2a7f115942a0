"""Which form of the method a figure shows: the one with our additions, or one of the paper's two."""

from __future__ import annotations

from ttabench.errors import unknown
from ttabench_methods.quantile import Quantile, QuantilePaper
from ttabench_methods.quantile.strict import QuantileStrict

FORMS: dict[str, type[Quantile]] = {each.name: each for each in (Quantile, QuantilePaper, QuantileStrict)}


def form(name: str) -> type[Quantile]:
    """The method by its name. Raises UserError for another name."""
    if name not in FORMS:
        raise unknown("method of this figure", name, FORMS)
    return FORMS[name]
