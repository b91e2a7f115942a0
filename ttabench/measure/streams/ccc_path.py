"""The path of a CCC stream: two corruptions whose severities change in small steps, at constant accuracy.

Press, Schneider, Kümmerer, Bethge, "RDumb: A simple approach that questions our progress in continual
test-time adaptation", NeurIPS 2023. There, the path minimises the distance to the target over precomputed
accuracies of a ResNet-50 on a grid of 21 × 21 severities for each pair. Here, the accuracies are those of
the cell's baseline (its own source classifier if none is named), computed only for the next steps of the
path. The path starts with corruption a alone. Each step changes one severity by 0.25: that of a decreases, or
that of b increases, whichever leaves the accuracy nearer to the target. When b is alone, b and the next
corruption follow in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ttabench.corruptions.fractional import STEP
from ttabench.errors import UnusableModel
from ttabench.measure.streams.images import Point

LAST = 20
"""Severity 5, in steps."""
BOUND = 10.0
"""Percentage points: corruptions that alone miss the target by more are left out."""

Measure = Callable[[Point], float]
"""The baseline's accuracy, in percent, at a point."""


class Path:
    """The points of a CCC stream, computed on request.

    measure      see :data:`Measure`; called once per point.
    target       the accuracy to keep, in percent.
    seed         of the order of the corruptions.
    known        what :meth:`to_json` returned before.
    """

    def __init__(
        self,
        measure: Measure,
        target: float,
        corruptions: Sequence[str],
        seed: int,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self._measure, self._target, self._names = measure, target, tuple(corruptions)
        known = known or {}
        self._alone: dict[str, tuple[int, float]] = {
            name: (int(steps), float(accuracy)) for name, (steps, accuracy) in known.get("alone", {}).items()
        }
        self._legs: dict[str, list[tuple[int, int, float]]] = {
            name: [(int(i), int(j), float(accuracy)) for i, j, accuracy in leg]
            for name, leg in known.get("legs", {}).items()
        }
        self._draw = np.random.Generator(np.random.PCG64(seed))
        self._sequence: list[str] = []  # the corruptions so far
        self._ends: list[int] = []  # the number of steps up to the end of each leg
        self._usable: tuple[str, ...] = ()

    def __call__(self, step: int) -> Point:
        """The point of step 0, 1 … of the stream."""
        leg, inside = self._find(step)
        first, second = self._sequence[leg : leg + 2]
        i, j, _ = self._leg(first, second)[inside]
        return Point(first, i * STEP, second, j * STEP)

    def accuracy(self, step: int) -> float:
        """The baseline's accuracy at step 0, 1 …, on the images that it was measured on."""
        leg, inside = self._find(step)
        return self._leg(*self._sequence[leg : leg + 2])[inside][2]

    def to_json(self) -> dict[str, Any]:
        """All that was computed."""
        return {"alone": self._alone, "legs": self._legs}

    def usable(self) -> tuple[str, ...]:
        """The corruptions that reach the target alone. Raises UnusableModel if there are fewer than two."""
        if not self._usable:
            for name in self._names:
                self._find_alone(name)
            gap = {name: abs(self._alone[name][1] - self._target) for name in self._names}
            self._usable = tuple(name for name in self._names if gap[name] <= BOUND)
            if len(self._usable) < 2:
                reached = ", ".join(f"{name} {self._alone[name][1]:.0f} %" for name in self._names)
                self._usable = ()
                raise UnusableModel(
                    f"a ccc stream of {self._target:g} % needs two corruptions that alone bring this "
                    f"classifier near this accuracy; the nearest are {reached}; choose another accuracy, "
                    "e.g. ccc(60)"
                )
        return self._usable

    def _find(self, step: int) -> tuple[int, int]:
        """The leg that a step is on, and the step's place in it."""
        while not self._ends or self._ends[-1] <= step:
            self._extend()
        leg = int(np.searchsorted(self._ends, step, side="right"))
        return leg, step - (self._ends[leg - 1] if leg else 0)

    def _extend(self) -> None:
        """Append one leg. Corruptions come in random order, each once per round."""
        while len(self._sequence) < len(self._ends) + 2:
            order = [self.usable()[k] for k in self._draw.permutation(len(self.usable()))]
            if self._sequence and order[0] == self._sequence[-1]:
                order = order[1:] + order[:1]
            self._sequence += order
        number = len(self._ends)
        length = len(self._leg(*self._sequence[number : number + 2]))
        self._ends.append((self._ends[-1] if self._ends else 0) + length)

    def _find_alone(self, name: str) -> tuple[int, float]:
        """The severity, in steps, at which a corruption alone is nearest to the target; its accuracy.

        By bisection, since accuracy falls with severity; it need not fall everywhere.
        """
        if name not in self._alone:
            accuracies: dict[int, float] = {}

            def at(steps: int) -> float:
                if steps not in accuracies:
                    accuracies[steps] = self._measure(Point(name, steps * STEP, name, 0.0))
                return accuracies[steps]

            low, high = 1, LAST
            if at(high) < self._target:
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if at(middle) >= self._target else (low, middle)
                at(low)
            best = min(sorted(accuracies), key=lambda steps: abs(accuracies[steps] - self._target))
            self._alone[name] = best, accuracies[best]
        return self._alone[name]

    def _leg(self, first: str, second: str) -> list[tuple[int, int, float]]:
        """Severities, in steps, of two corruptions and the accuracy there; `first` alone comes first."""
        key = f"{first}+{second}"
        if key not in self._legs:
            (i, accuracy), (end, _) = self._find_alone(first), self._find_alone(second)
            j = 0
            leg = [(i, j, accuracy)]
            while (i, j) != (0, end):
                choices = [(i - 1, j)] if i else []
                choices += [(i, j + 1)] if j < end else []
                i, j, accuracy = min(
                    ((a, b, self._measure(Point(first, a * STEP, second, b * STEP))) for a, b in choices),
                    key=lambda choice: abs(choice[2] - self._target),
                )
                leg.append((i, j, accuracy))
            self._legs[key] = leg[:-1]  # its end is the first point of the next leg
        return self._legs[key]
