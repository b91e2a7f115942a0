"""The contract that a figure fulfils."""

from ttabench.figure.contract import KINDS, Bench, at_least, figure_style, options, takes_bench, write

__all__ = ["KINDS", "Bench", "at_least", "figure_style", "options", "takes_bench", "write"]
