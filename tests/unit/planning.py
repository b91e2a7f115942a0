"""Plans of a grid without models, for tests: the sources are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ttabench.method import Architecture
from ttabench.models.model import Model
from ttabench.sweep.grid import Grid
from ttabench.sweep.plan import Planned, Source
from ttabench.sweep.plan import plan as plan_cells
from ttabench.sweep.resolve import Part, Sweep, choose_methods


def plan(asked: Grid, sources: Sequence[Source]) -> list[Planned]:
    """The cells of a grid on these sources; a grid with rules needs those that `resolve` finds."""
    models = tuple(cast("Model", object()) for _ in sources)
    return plan_cells(Sweep((Part(asked, tuple(choose_methods(asked)), models),), models), sources)


def source_of(model: Model) -> Source:
    """What planning knows of an untrained model, without building it."""
    data = model.dataset
    return Source(
        name=model.name, dataset=data.name, num_classes=data.num_classes, fingerprint="f", checkpoint="",
        architecture=Architecture(norm_layers=("batch",), num_classes=data.num_classes),
        corruptions=data.corruptions,
    )  # fmt: skip
