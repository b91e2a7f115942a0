"""What moved between two sets of results, and what may have moved it: a gate on accuracy for CI."""

from ttabench_reports.compare.comparison import Comparison, compare
from ttabench_reports.compare.diff import diff, diff_json, render_diff
from ttabench_reports.compare.machine import as_json, github, junit
from ttabench_reports.compare.side_by_side import side_by_side
from ttabench_reports.compare.terminal import render
from ttabench_reports.compare.verdicts import Bounds

__all__ = [
    "Bounds",
    "Comparison",
    "as_json",
    "compare",
    "diff",
    "diff_json",
    "github",
    "junit",
    "render",
    "render_diff",
    "side_by_side",
]
