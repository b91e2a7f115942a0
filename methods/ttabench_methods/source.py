"""Source: the classifier as it was trained.

Scored: a forward pass in eval mode, with the running statistics of the training data. No update.

Deviations: none.
"""

from __future__ import annotations

from torch import Tensor

from ttabench.method import Method, NoConfig


class Source(Method[NoConfig]):
    """No adaptation: the reference for all other methods."""

    name = "source"
    scores = "the only forward pass, in eval mode"
    scores_frozen = scores

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)
