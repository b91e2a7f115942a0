"""A look at the logits of every batch that does not make the host wait for a GPU."""

from __future__ import annotations

from torch import Tensor

from ttabench.api.late_answer import LateAnswer, LateCheck
from ttabench.errors import UserError

ADVICE = (
    "call reset() to start again from the network as it was. If the method has learned too fast, a smaller "
    "learning rate helps."
)


class LogitCheck(LateCheck):
    """Whether a method's logits are finite. On a GPU, the answer about a batch is read at the next call."""

    def look(self, logits: Tensor, method: str) -> None:
        """Look at logits (B, C). Raises UserError for NaN and infinite values."""
        self._waiting = LateAnswer(logits.detach().isfinite().all())
        if not self._waiting.late:
            self.settle(method, "this batch")

    def settle(self, method: str, batch: str = "the batch before this one") -> None:
        """Read the answer about `batch`. Raises UserError where its logits were not finite."""
        if not self._was_sound():
            raise UserError(f"{method} gives logits that are NaN or infinite for {batch}: {ADVICE}")
