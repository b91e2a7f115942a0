"""Tell how far a classifier is with many images, before the first cell of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from ttabench.system.progress import OnProgress

__all__ = ["following"]


@contextmanager
def following(classifier: nn.Module, what: str, total: int, progress: OnProgress) -> Iterator[None]:
    """Tell `progress` after each batch that `classifier` is run on: `what`, done, `total`.

    Both are bytes of 8-bit pixels, as the callback is told of downloads in bytes; a total of 0 is unknown.
    """
    done = 0

    def add(_network: nn.Module, batch: tuple[Tensor, ...], _logits: Tensor) -> None:
        nonlocal done
        done += batch[0].numel()
        progress(what, done, total)

    hook = classifier.register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()
