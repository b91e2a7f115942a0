"""``ttabench paper --dry-run``: what would be trained, downloaded and measured."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ttabench.cli._table import table
from ttabench.errors import counted
from ttabench.paper.asked import Asked
from ttabench.paper.plan import Work, work_of

WEIGHTS_MB = {"official/cct_7": 15}
"""Published weights: 3.76 million float32 numbers."""
REHEARSAL = "With --scale 0.01, all of it takes about five minutes on a CPU. A larger share takes longer."


def show(asked: Asked) -> int:
    """Print it; how many tasks cannot be measured. Raises UserError for what the command would refuse."""
    with TemporaryDirectory() as elsewhere:
        work, lacking = work_of(asked, Path(elsewhere))
    _print(work, asked)
    for why in lacking.values():
        print(f"To download first: {why}")
    return len(work.left_out)


def _print(work: Work, asked: Asked) -> None:
    if work.rows:
        table(["table", "dataset", "network", "weights", "cells"], work.rows)
    if asked.experiments:
        whole = counted(len(work.cells) + len(work.stored), "cell")
        print(
            f"{whole}: {len(work.cells)} to measure, {len(work.stored)} stored already. "
            "A cell that several tables share is counted once, in the first of them."
        )
    if asked.figures:
        print(f"Figures: {', '.join(asked.figures)}.")
    for why in work.left_out:
        print(f"Left out: {why}")
    for arch, datasets in work.weights.items():
        size = f", about {WEIGHTS_MB[arch]} MB each" if arch in WEIGHTS_MB else ""
        print(f"Downloaded when they are needed: weights of {arch} for {' and '.join(datasets)}{size}.")
    if asked.small:
        print(REHEARSAL)
    elif work.hours:
        hours = f"About {work.hours:.1f}" if work.hours >= 0.05 else "Less than 0.1"
        print(
            f"{hours} hours on one H200 GPU with --per-gpu 7 --precision tf32, if each "
            "corruption has 10,000 images. Other options take longer, and processors much longer."
        )
