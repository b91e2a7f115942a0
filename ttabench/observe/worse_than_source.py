"""The alarm for a method that is right on less than half of the images on which the unadapted network is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.data.dataset import Labelled
from ttabench.nn.pixels import to_tensor

LOOKED_AT, BATCH = 100, 50  # images; they cost one forward pass each
ERRORS = 4.0  # standard errors of the paired difference


@torch.no_grad()
def harm_alarm(
    source: Callable[[Tensor], Tensor],
    data: Labelled,
    correct: NDArray[np.bool_],
    device: str = "cpu",
    scored_classes: Sequence[int] = (),
) -> str:
    """The alarm, from some of the images; "" if there is none.

    correct   (n,) of the first n images of `data`: whether the method was right.
    """
    chosen = np.arange(0, len(correct), max(1, -(-len(correct) // LOOKED_AT)))
    before = np.empty(len(chosen), np.bool_)
    for start in range(0, len(chosen), BATCH):
        rows = chosen[start : start + BATCH]
        logits = source(to_tensor(data.images[rows], device))
        scored = logits[:, list(scored_classes)] if scored_classes else logits
        guesses = scored.argmax(dim=1).cpu().numpy()
        guesses = np.asarray(scored_classes, np.int64)[guesses] if scored_classes else guesses
        before[start : start + BATCH] = guesses == data.labels[rows]
    after = correct[chosen]
    lost, gained = int((before & ~after).sum()), int((after & ~before).sum())
    if 2 * after.sum() >= before.sum() or lost - gained <= ERRORS * math.sqrt(lost + gained):
        return ""
    return (
        f"harm: of {len(chosen)} images that were looked at, {int(after.sum())} are right, and "
        f"{int(before.sum())} without the method; too large a learning rate can do that, and so "
        "can batch statistics of few images or few classes"
    )
