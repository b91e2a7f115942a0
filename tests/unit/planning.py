"""Plans of a grid without models, for tests: the sources are given."""

from __future__ import annotations

from collections.abc import Sequence

from ttabench.sweep.grid import Grid
from ttabench.sweep.plan import Planned, Source
from ttabench.sweep.plan import plan as plan_cells
from ttabench.sweep.resolve import Sweep, choose_methods


def plan(asked: Grid, sources: Sequence[Source]) -> list[Planned]:
    return plan_cells(Sweep(asked, tuple(choose_methods(asked)), ()), sources)
