"""Betting against a distribution: the test martingale of POEM (Bar, Shaer, Romano, NeurIPS 2024).

| symbol | name       |                                                                     |
| ------ | ---------- | ------------------------------------------------------------------- |
| u      | u          | a value in [0, 1], uniform as long as the hypothesis holds          |
| ε      | bet        | size and direction of the bet, 0 at first                           |
| S      | log_wealth | product of 1 + ε (u − ½), a martingale where u is uniform           |
| g      | gradient   | of log S with respect to ε: (u − ½) / (1 + ε (u − ½))               |
| γ      | gamma      | rate of scale-free online gradient ascent: ε ← ε + γ g / √(Σ g²)    |
| Q(u)   | –          | ½ ε u² + (1 − ½ ε) u: the distribution whose density is 1 + ε (u − ½) |
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
RUIN = 1e-300  # wealth factor if all is lost, which only `official_quirks` allows


class CDF:
    """Share of a sample (n,) at or below a value; linear between distinct values, constant outside them.

    The lowest share is 1/n, not 0, so a new value of the same distribution has the mean ½ + 1/(2n).
    """

    def __init__(self, sample: Values) -> None:
        self.values, counts = np.unique(sample, return_counts=True)
        self.shares: Values = counts.cumsum() / len(sample)

    def __call__(self, values: Values) -> Values:
        return np.interp(values, self.values, self.shares)

    def inverse(self, shares: Values) -> Values:
        return np.interp(shares, self.shares, self.values)


class Bettor:
    """Bets on u being above (ε > 0) or below ½, and learns ε; `clip` < 2 limits |ε|, so S stays positive.

    With `official_quirks` the bettor does not learn from the first value, and ε may exceed `clip` by a step.
    """

    def __init__(self, gamma: float, clip: float, official_quirks: bool = False) -> None:
        self.gamma, self.clip, self.quirks = gamma, clip, official_quirks
        self.bet = self.log_wealth = self.squares = 0.0
        self.seen = 0

    def __call__(self, u: float) -> float:
        """Q(u) with the current bet; then u updates S and ε."""
        protected = self.bet * u * u / 2 + (1 - self.bet / 2) * u
        wealth_factor = 1 + self.bet * (u - 0.5)
        self.log_wealth += math.log(max(wealth_factor, RUIN))
        self.seen += 1
        moves_outwards = abs(self.bet) > self.clip and self.bet * (u - 0.5) > 0
        if not moves_outwards and not (self.quirks and self.seen == 1):
            self.learn((u - 0.5) / (wealth_factor or RUIN))
        return protected

    def learn(self, gradient: float) -> None:
        """ε ← ε + γ g/√(Σ g²), within ± clip, with g the gradient of the log wealth."""
        if not gradient:
            return
        self.squares += gradient * gradient
        self.bet += self.gamma * gradient / math.sqrt(self.squares)
        if not self.quirks:
            self.bet = min(self.clip, max(-self.clip, self.bet))
