"""Whether a network does better on clean images prepared in another way, or under other class numbers.

A network that gets its images wrongly is often still far above chance: a ResNet20 of 91.5 % has 85 % with the
channels in reverse, and 40 % without its normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.classifier import Classifier, Normalize
from ttabench.data.dataset import Labelled
from ttabench.measure.order_and_batches import Stream

TRIAL_IMAGES = 1000
LARGE, TRIAL_LARGE = 64, 250
"""Images of more than `LARGE` pixels a side are tried in smaller number."""
BATCH, BATCH_LARGE = 500, 50  # images
ERRORS = 2.5  # standard errors of a paired difference
LEAST = 5  # images of a class, before its predictions are taken for those of another class
SHOWN = 6  # classes that are named
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "the channels in the order blue, green, red": lambda x: x.flip(1),
    "the images upside down": lambda x: x.flip(2),
    "the images turned by 90°": lambda x: x.rot90(1, (2, 3)),
    "the images turned by 270°": lambda x: x.rot90(3, (2, 3)),
}
"""How images may have been stored that a network sees in another way, (B, 3, H, W)."""


@torch.no_grad()
def predictions(model: Callable[[Tensor], Tensor], data: Labelled, device: str = "cpu") -> NDArray[np.int64]:
    """The predicted class of each image: (n,)."""
    stream = Stream(data.images, np.arange(len(data)), _batch_size(data), device)
    return torch.cat([model(x).argmax(dim=1).cpu() for x in stream]).numpy()


@torch.no_grad()
def probabilities(
    model: Callable[[Tensor], Tensor], data: Labelled, device: str = "cpu"
) -> NDArray[np.float32]:
    """The softmax of the logits of each image: (n, C)."""
    stream = Stream(data.images, np.arange(len(data)), _batch_size(data), device)
    return torch.cat([model(x).float().softmax(dim=1).cpu() for x in stream]).numpy()


def _batch_size(data: Labelled) -> int:
    """Activations of one layer of 500 images of 224 pixels may need gigabytes."""
    return BATCH_LARGE if data.images.shape[1] > LARGE else BATCH


def some_of(data: Labelled) -> Labelled:
    """At most `TRIAL_IMAGES` of the images, from everywhere in the set."""
    count = TRIAL_LARGE if data.images.shape[1] > LARGE else TRIAL_IMAGES
    step = max(1, math.ceil(len(data) / count))
    return Labelled(data.images[::step], data.labels[::step])


def better_input(
    classifier: Classifier,
    test: Labelled,
    normalisations: dict[str, tuple[tuple[float, ...], tuple[float, ...]]],
    device: str,
    views: Mapping[str, Callable[[Tensor], Tensor]] = VIEWS,
) -> str:
    """What else the network does better with, as the end of a sentence; "" where nothing is clearly better.

    Clearly: by 2 points, and by `ERRORS` standard errors of a paired difference. Each way is tried on a
    quarter of the images first, and on all of them where it is not worse there by `ERRORS` standard errors.
    """
    some = some_of(test)
    tried: dict[str, NDArray[np.bool_]] = {}
    before = _right(classifier, some, device)

    def attempt(name: str, model: Callable[[Tensor], Tensor]) -> None:
        few = Labelled(some.images[::4], some.labels[::4])
        lost = before[::4].astype(int) - _right(model, few, device)
        if lost.sum() <= ERRORS * math.sqrt(np.count_nonzero(lost)):
            tried[name] = _right(model, some, device)

    original = classifier.normalize
    try:
        for name, (mean, std) in normalisations.items():
            classifier.normalize = Normalize(mean, std).to(device)
            attempt(f"--normalize {name}", classifier)
    finally:
        classifier.normalize = original
    for name, view in views.items():
        attempt(name, lambda x, view=view: classifier(view(x)))  # type: ignore[misc]
    if not tried:
        return ""
    percent = {name: 100 * float(right.mean()) for name, right in tried.items()}
    best = max(percent, key=lambda name: percent[name])
    gained, changed = int(tried[best].sum()) - int(before.sum()), int((tried[best] ^ before).sum())
    if gained < 0.02 * len(some) or gained <= ERRORS * math.sqrt(changed):
        return ""
    share = percent[best] / 100
    error = 100 * math.sqrt(max(0.01, share * (1 - share)) / len(some))
    close = sorted(
        (name for name in tried if percent[name] >= percent[best] - 2 * error),
        key=lambda name: -percent[name],
    )
    options = " or ".join(f"{name} ({percent[name]:.1f} %)" for name in close)
    was = 100 * float(before.mean())
    return f"; it is {was:.1f} % on {len(some):,} of the images, where {options} does better"


def _right(model: Callable[[Tensor], Tensor], data: Labelled, device: str) -> NDArray[np.bool_]:
    right: NDArray[np.bool_] = predictions(model, data, device) == data.labels
    return right


def better_classes(guesses: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    """Which classes seem to have each other's numbers, as the end of a sentence; "" for none.

    A class counts as moved where most of its images, of at least `LEAST`, are predicted as one other class.
    The moved classes have to be a permutation, or all be moved by the same number.

    guesses, labels   (n,)
    """
    count = int(max(guesses.max(initial=0), labels.max(initial=0))) + 1
    found = np.zeros((count, count), np.int64)
    np.add.at(found, (labels, guesses), 1)
    target, images = found.argmax(axis=1), found.sum(axis=1)
    most = (images >= LEAST) & (found.max(axis=1) > images / 2)
    moved = np.flatnonzero(most & (target != np.arange(count)))
    to = target[moved]
    by_one_number = len(moved) > most.sum() / 2 and len(set((to - moved).tolist())) == 1
    if len(moved) < 2 or not (by_one_number or sorted(to.tolist()) == moved.tolist()):
        return ""
    numbers = np.arange(count)
    numbers[moved] = to
    then = 100 * float((numbers[labels] == guesses).mean())
    pairs = ", ".join(f"{label} as {guess}" for label, guess in zip(moved[:SHOWN], to[:SHOWN], strict=True))
    more = f" and {len(moved) - SHOWN} more" if len(moved) > SHOWN else ""
    return (
        f"; it predicts most images of class {pairs}{more}, and would be right on {then:.1f} % if these "
        "class numbers were exchanged: compare the order of its classes with that of the labels"
    )
