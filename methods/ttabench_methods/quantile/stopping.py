"""Early stopping that needs no labels: the quantile loss itself says when to stop and what to keep."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch import nn

__all__ = ["EarlyStopping"]

# The last epoch is kept without a further pass where there were several, so that the learning rate has come
# down and the estimate settled, and it has this much of the greatest decrease.
SEVERAL = 3
MOST = 0.95


class EarlyStopping:
    """Remembers the parameters of the lowest loss; asks to stop after `patience` epochs without a lower one.

    The losses of epochs may be estimates, such as the bank's, whose features were seen while the parameters
    moved; where they leave a doubt, what is kept is decided by exact ones (:meth:`settle`).

    patience   0 = never stop early.
    loss       before the first epoch, exact.
    kept_last  what :meth:`settle` left is what the last epoch did.
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
        """Leave the module with the lowest loss of start, best epoch and last one; return the loss.

        No exact loss is asked for where the last of several epochs is the best, or almost.
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
