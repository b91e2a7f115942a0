"""What the harness lends a method leads to no labels, whatever attribute or closure is followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.one_set import evaluate
from ttabench.cell.protocol import Protocol
from ttabench.conformance.nets import nets
from ttabench.data.dataset import Labelled
from ttabench.method import Batches, Method, NoConfig

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 5, 40)
DATA = Labelled(RNG.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8), LABELS)


def reachable(thing: Any, seen: set[int]) -> Iterator[Any]:
    """Everything held by `thing`: attributes, items, bases of array views, and variables of closures."""
    if id(thing) in seen or isinstance(thing, type):
        return
    seen.add(id(thing))
    yield thing
    parts: list[Any] = list(getattr(thing, "__dict__", {}).values())
    parts += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    parts += [getattr(thing, name, None) for name in ("__self__", "base", "_base")]
    if isinstance(thing, dict):
        parts += [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set)):
        parts += thing
    for part in parts:
        yield from reachable(part, seen)


def leads_to_labels(thing: Any) -> bool:
    """In any order: those of a shuffled stream are labels too."""
    return any(
        isinstance(result, Labelled)
        or (
            isinstance(result, np.ndarray | Tensor)
            and result.shape == LABELS.shape
            and np.array_equal(np.sort(np.asarray(result)), np.sort(LABELS))
        )
        for result in reachable(thing, set())
    )


class Curious(Method[NoConfig]):
    """Keeps what it is lent."""

    name = "curious"

    def adapt(self, x: Tensor) -> Tensor:
        self.batch = x
        return self.predict(x)

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        self.lent = batches
        self.batch = next(iter(batches))


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("order", ["iid", "dirichlet(0.1)"])
def test_labels_stay_with_the_evaluation(mode: str, order: str) -> None:
    method = Curious(nets()["GN CNN"])
    method.prepare()
    evaluate(method, DATA, Protocol(mode=mode, order=order, batch_size=16), 0)
    assert not leads_to_labels(method)


def test_the_search_would_find_them() -> None:
    mine = LABELS[::-1].copy()
    view = LABELS.reshape(8, 5)
    for hidden in (lambda: mine, DATA, [mine], view, view.copy().reshape(-1), {"a": torch.from_numpy(mine)}):
        assert leads_to_labels(hidden)
    assert not leads_to_labels([LABELS + 1, LABELS[:-1].copy(), np.arange(40)])
