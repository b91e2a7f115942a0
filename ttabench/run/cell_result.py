"""What a method did on the images of a cell, and the result that is stored of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ttabench.cell import Cell, Result, canonical
from ttabench.data.dataset import Dataset
from ttabench.measure.scoring import Evaluation
from ttabench.method import Method
from ttabench.models.checkpoints.cache import Loaded
from ttabench.observe.decline import Course
from ttabench.observe.few_per_class import few_of_each_alarm
from ttabench.observe.label_free_scores import Collected
from ttabench.observe.unknown_classes import Certainties
from ttabench.observe.worse_than_source import harm_alarm
from ttabench.run.cell_images import CellImages

LARGEST_REPORT = 1 << 20
"""Characters that `Method.alarms` may fill: results are read again and again."""
OF_SOME_CELLS = ("windows", "unknown")
"""Details that some cells have. No method can say them of itself, as reports take them for measured."""


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """A method after it scored all images of a cell.

    collected        its logits; of a contaminated stream, also its :class:`Certainties`.
    foreign          (N,) which images of a contaminated stream are foreign; None in others.
    course           its accuracy along the stream.
    cost             see :meth:`Meter.cost`.
    label_imports    modules that know the labels, and that it imported meanwhile.
    settings_alarm   what `Method.check` said.
    """

    cell: Cell
    method: Method[Any]
    dataset: Dataset
    source: Loaded
    images: CellImages
    device: str
    evaluation: Evaluation
    collected: Collected
    foreign: NDArray[np.bool_] | None
    course: Course
    cost: Mapping[str, Any]
    label_imports: Sequence[str]
    settings_alarm: str

    def result(self, unlabelled: Mapping[str, Any]) -> Result:
        """The result; `unlabelled` are its label-free scores."""
        evaluation, kind = self.evaluation, type(self.method)
        reported = _storable(plain(dict(self.method.alarms())))
        own = {name: value for name, value in reported.items() if name not in OF_SOME_CELLS}
        alarm = "; ".join(filter(None, (*self._alarms(), str(own.pop("alarm", "")))))
        unknown = self._unknown()
        return Result(
            cell=self.cell,
            status="ok",
            accuracy=evaluation.accuracy,
            clean_accuracy=self.source.clean_accuracy,
            n_images=len(evaluation.correct),
            seconds=evaluation.seconds,
            correct=np.packbits(evaluation.correct).tobytes(),
            details={
                **own,  # first: what is measured here counts
                "adapted": self.method.adapted(),
                "scored_classes": of_classes(self.dataset),
                "scores": kind.scores_frozen if self.cell.protocol.frozen else kind.scores,
                "source_warning": self.source.note.get("warning", ""),
                **self._weights_from(),
                "restores": kind.restores,
                "source_data": kind.needs_of(self.method.config).source_data,
                "source_used": "; ".join(f"{what} ({n:,} images)" for what, n in self.method.served.items()),
                "alarm": alarm,
                "calibration": evaluation.calibration,
                **({"windows": evaluation.windows} if evaluation.windows else {}),
                **({"unknown": unknown} if unknown else {}),
                "unlabelled": unlabelled,
                "cost": self.cost,
            },
        )

    def _weights_from(self) -> dict[str, str]:
        """Tag, revision or file of weights from elsewhere, where more than the network's name says it."""
        origin = str(self.source.note.get("origin", ""))
        return {"weights_from": origin} if origin.startswith(f"{self.cell.arch} (") else {}

    def _alarms(self) -> tuple[str, ...]:
        """What casts doubt on the number; "" for what does not."""
        protocol, classes = self.cell.protocol, len(self.dataset.scored_classes) or self.dataset.num_classes
        return (
            f"the method imports {self.label_imports[0]}, which knows the labels"
            if self.label_imports
            else "",
            self.evaluation.alarm,
            self.course.alarm() if protocol.order == "iid" and not protocol.stream else "",
            self._harm(),
            few_of_each_alarm(type(self.method).per_class, len(self.evaluation.correct), classes),
            self.settings_alarm,
            self.collected.alarm() if isinstance(self.collected, Certainties) else "",
        )

    def _harm(self) -> str:
        """The alarm for harm; of methods without gradients, its pass would be a large part of the cost."""
        data, needs = self.images.data, type(self.method).needs_of(self.method.config)
        if data is None or not needs.gradient or self.cell.protocol.held_out:
            return ""
        source, classes = self.source.classifier, self.dataset.scored_classes
        return harm_alarm(source, data, self.evaluation.correct, self.device, classes)

    def _unknown(self) -> Mapping[str, Any]:
        """How well certainties tell the foreign images of a contaminated stream; {} without any."""
        if not isinstance(self.collected, Certainties) or self.foreign is None:
            return {}
        return self.collected.figures(self.foreign, self.images.streamed(self.evaluation.correct))


def of_classes(data: Dataset) -> str:
    """``200 of 1000 classes`` where predictions are chosen from some of a classifier's classes, or ""."""
    return f"{len(data.scored_classes)} of {data.num_classes} classes" if data.scored_classes else ""


def _storable(reported: dict[str, Any]) -> dict[str, Any]:
    """What a method reports of itself; an alarm in place of more than a line of a results file may have."""
    try:
        size = len(canonical(reported))
    except ValueError:  # a whole number of thousands of digits
        return {"alarm": "what alarms() returns cannot be stored"}
    if size <= LARGEST_REPORT:
        return reported
    return {"alarm": f"what alarms() returns has {size:,} characters, and is not stored"}


def plain(value: Any) -> Any:
    """A reported value as JSON data: NumPy and torch numbers as Python numbers, NaN as text."""
    if isinstance(value, np.generic | torch.Tensor | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
