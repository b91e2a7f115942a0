"""What the gate lets pass."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ttabench.errors import UserError


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the gate lets pass.

    max_drop       points that a cell may fall.
    max_mean_drop  points that a mean over corruptions and seeds may fall.
    alpha          a fall beyond its bound fails only if a paired test, corrected for the number of tests,
                   confirms it at this level; where a side has no per-image correctness, the bound alone
                   decides. 1: no test.
    subset         whether the candidate may lack cells of the baseline.

    Raises UserError for a bound below 0 or infinite, and for an alpha outside (0, 1].
    """

    max_drop: float = 1.0
    max_mean_drop: float = 0.3
    alpha: float = 0.05
    subset: bool = False

    def __post_init__(self) -> None:
        for option, value in (("--max-drop", self.max_drop), ("--max-mean-drop", self.max_mean_drop)):
            if not value >= 0 or math.isinf(value):
                raise UserError(f"{option} is {value}; expected a number of points, 0 or more.")
        if not 0 < self.alpha <= 1:
            raise UserError(f"--alpha is {self.alpha}; expected a level above 0 and up to 1, e.g. 0.05.")
