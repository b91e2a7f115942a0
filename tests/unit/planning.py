"""Plans of a grid without models, for tests: the sources are given."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, BAR_CORRUPTIONS, NATURAL
from ttabench.method import Architecture
from ttabench.models.model import Model
from ttabench.sweep.chosen_methods import choose_methods
from ttabench.sweep.grid import Grid
from ttabench.sweep.plan import Planned, RatioOf, SourceFacts
from ttabench.sweep.plan import plan as plan_cells
from ttabench.sweep.resolve import Sweep, SweepPart
from ttabench.sweep.shifts import shifts_of

HAS = {"cifar10-c-bar": BAR_CORRUPTIONS, "cifar10.1": (NATURAL,)}
"""The corruptions of datasets; of all others the nineteen."""
IMAGES = 10_000
"""The test images of every dataset."""


def plan(asked: Grid, sources: Sequence[SourceFacts], ratio_of: RatioOf = lambda cell: 1.0) -> list[Planned]:
    """The cells of a grid on these sources; a grid with rules needs those that `resolve` finds."""
    methods = tuple(choose_methods(asked))
    data = SimpleNamespace(shifted_count=lambda: IMAGES)
    models = tuple(cast("Model", SimpleNamespace(dataset=data, measured=data)) for _ in sources)
    parts = tuple(
        SweepPart(methods, (model,), shifts_of(HAS.get(source.dataset, ALL_CORRUPTIONS), asked))
        for model, source in zip(models, sources, strict=True)
    )
    return plan_cells(Sweep(parts, models), sources, ratio_of)


def source_of(model: Model) -> SourceFacts:
    """What planning knows of an untrained model, without building it."""
    data = model.dataset
    return SourceFacts(
        name=model.name, dataset=data.name, num_classes=data.num_classes, fingerprint="f", checkpoint="",
        architecture=Architecture(norm_layers=("batch",), num_classes=data.num_classes),
    )  # fmt: skip
