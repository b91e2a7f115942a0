"""The tables of the quantile-matching paper, ours beside the paper's: one page, CSV and LaTeX."""

from ttabench_reports.paper.write import write

__all__ = ["write"]
