"""Two methods side by side on the same batches, and the first difference by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ttabench.conformance.run import told
from ttabench.errors import UserError, exit_is_an_error
from ttabench.method import Method
from ttabench.models.soundness.torch_errors import explained
from ttabench.run.other_generators import seeded_generators

Named = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class BatchCompared:
    """What two methods did with one batch.

    number      of the batch, from 1; 0 is before the first one.
    images      how many it has; 0 before the first batch.
    logits      the largest difference of two logits, over the largest logit, if that is above 1.
    differing   images whose predicted classes differ.
    difference  the first thing that differs by more than the tolerance; "" if nothing does.
    predictions  of the first method and of the second (images,).
    """

    number: int
    images: int
    logits: float
    differing: int
    difference: str
    predictions: tuple[Tensor, Tensor]


@contextmanager
def failures_named(method: str, where: str) -> Iterator[None]:
    """In the block, what the code of a method raises is a UserError with the line; its `exit()` too."""
    try:
        with explained(), exit_is_an_error():
            yield
    except UserError:
        raise
    except Exception as problem:
        raise UserError(f"{method} {told(problem)} {where}.") from problem


def compare(
    first: Method[Any], second: Method[Any], batches: Iterable[Tensor], tolerance: float, seed: int = 0
) -> Iterator[BatchCompared]:
    """Adapt two prepared methods to the same batches (B, 3, H, W), and compare them after each.

    Before each batch, random generators have the same state for both, so equal draws are equal.
    Parameters and logits differ if |a − b| > tolerance · max(1, max |a|). What both have under the same name
    is compared; in addition, before the first batch, which parameters are trained.

    Raises UserError where a method fails, or returns no logits.
    """
    before = _trained(first, second) or _parameters(first, second, tolerance)
    none = torch.empty(0, dtype=torch.int64)
    yield BatchCompared(0, 0, 0.0, 0, before and f"before the first batch, {before}", (none, none))
    for number, x in enumerate(batches, 1):
        outputs = []
        for method in (first, second):
            torch.manual_seed(seed + number)
            with seeded_generators(seed + number):
                outputs.append(_logits(method, x.clone(), number))
        a, b = outputs
        predictions = (a.argmax(1), b.argmax(1))
        differing = int((predictions[0] != predictions[1]).sum())
        distance = _distance(a, b)
        found = ""
        if distance > tolerance:
            image = int((a - b).abs().amax(1).argmax())
            found = f"logits of image {image + 1} differ, by up to {(a - b).abs().max():.2g}"
        elif after := _parameters(first, second, tolerance):
            found = f"the logits agree; after the update, {after}"
        yield BatchCompared(number, len(x), distance, differing, found, predictions)


def _logits(method: Method[Any], x: Tensor, number: int) -> Tensor:
    """What a method returns for batch `number`, (B, C). Raises UserError."""
    with failures_named(method.name, f"in batch {number}"):
        returned: object = method.adapt(x)
    expected = len(x), method.model.num_classes
    if isinstance(returned, Tensor) and returned.shape == expected:
        return returned.detach().clone()
    shape = tuple(returned.shape) if isinstance(returned, Tensor) else type(returned).__name__
    raise UserError(f"{method.name} returned {shape} in batch {number}; expected logits {expected}.")


def _distance(a: Tensor, b: Tensor) -> float:
    """max |a − b| over max(1, max |a|); infinite where shapes differ, or one has NaN."""
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    distance = float((a.double() - b.double()).abs().max() / max(1.0, float(a.abs().max())))
    return distance if distance == distance else float("inf")


def _named(method: Method[Any]) -> Named:
    return {name: p.detach() for name, p in method.model.named_parameters()}


def _trained(first: Method[Any], second: Method[Any]) -> str:
    """Which parameter one trains and the other does not; "" if there is none."""
    ours, theirs = (
        {name for name, p in method.model.named_parameters() if p.requires_grad} for method in (first, second)
    )
    for here, there, one, other in ((ours, theirs, first, second), (theirs, ours, second, first)):
        if only := sorted(here - there):
            more = f" and {len(only) - 1} more parameters" if len(only) > 1 else ""
            return f"{one.name} trains {only[0]}{more}, {other.name} does not"
    return ""


def _parameters(first: Method[Any], second: Method[Any], tolerance: float) -> str:
    """The parameter that differs most; "" if none differs by more than the tolerance."""
    ours, theirs = _named(first), _named(second)
    distances = {name: _distance(p, theirs[name]) for name, p in ours.items() if name in theirs}
    name = max(distances, key=distances.__getitem__, default="")
    if not name or distances[name] <= tolerance:
        return ""
    count = sum(distance > tolerance for distance in distances.values())
    return (
        f"{count} of {len(distances)} parameters differ, most of all {name}, by up to {distances[name]:.2g}"
    )
