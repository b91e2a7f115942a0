"""Early stopping that needs no labels: the quantile loss decides when to stop and what to keep."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch import nn

# The last epoch is kept without computing its exact loss if there were SEVERAL epochs, so that the learning
# rate is low and the estimate accurate, and if its decrease is at least this share (MOST) of the greatest
# one.
SEVERAL = 3
MOST = 0.95


class EarlyStopping:
    """Keeps the parameters of the lowest loss; asks to stop after `patience` epochs without a lower one.

    The losses of epochs may be estimates, such as the bank's, whose features are from different parameters.
    If these are not decisive, exact losses decide (:meth:`settle`).

    patience   0 = never stop early.
    loss       before the first epoch, exact.
    kept_last  whether :meth:`settle` kept the parameters of the last epoch.
    """

    def __init__(self, module: nn.Module, patience: int, loss: float) -> None:
        self.module, self.patience = module, patience
        self.best, self.last, self.waited, self.epochs = loss, loss, 0, 0
        self.start = loss, self._state()
        self.kept = self.start[1]

    def stop(self, loss: float) -> bool:
        """Note the loss of one epoch; True if it is time to stop."""
        self.epochs, self.last = self.epochs + 1, loss
        if loss < self.best:
            self.best, self.waited = loss, 0
            self.kept = self._state()
        else:
            self.waited += 1
        return 0 < self.patience <= self.waited

    def settle(self, exact: Callable[[], float]) -> float:
        """Put the parameters of lowest loss (start, best or last epoch) into the module; return the loss.

        No exact loss is computed if the last of several epochs is the best, or almost.
        """
        start, self.kept_last = self.start[0], True
        if self.epochs >= SEVERAL and start - self.last >= MOST * (start - self.best) > 0:
            return self.last
        candidates = [self.start, (exact(), self._state())]
        if self.waited and self.kept is not self.start[1]:
            self.module.load_state_dict(self.kept)
            candidates.append((exact(), self.kept))
        loss, state = min(candidates, key=lambda pair: pair[0])
        self.kept_last = state is candidates[1][1]
        self.module.load_state_dict(state)
        return loss

    def _state(self) -> dict[str, object]:
        return copy.deepcopy(self.module.state_dict())
