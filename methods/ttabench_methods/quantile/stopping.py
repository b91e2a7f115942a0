"""Early stopping that needs no labels: the quantile loss itself says when to stop and what to keep."""

from __future__ import annotations

import copy

from torch import nn

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """Remembers the parameters of the lowest loss; asks to stop after `patience` epochs without a lower one.

    patience   0 = never stop early.
    loss       before the first epoch.
    """

    def __init__(self, module: nn.Module, patience: int, loss: float) -> None:
        self.module, self.patience = module, patience
        self.best, self.waited = loss, 0
        self.keep()

    def keep(self) -> None:
        self.kept = copy.deepcopy(self.module.state_dict())

    def stop(self, loss: float) -> bool:
        """Note the loss of one epoch; True if it is time to stop."""
        if loss < self.best:
            self.best, self.waited = loss, 0
            self.keep()
        else:
            self.waited += 1
        return 0 < self.patience <= self.waited

    def restore(self) -> None:
        """The best parameters back into the module."""
        self.module.load_state_dict(self.kept)
