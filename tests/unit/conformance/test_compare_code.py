"""Two methods side by side: what the code of others may do wrong is one sentence."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import each
from ttabench.conformance.compare_code import compare, failures_named
from ttabench.conformance.nets import CLASSES, images, nets
from ttabench.errors import UserError
from ttabench.method import Method, NoConfig


class Returns(Method[NoConfig]):
    """Returns what a function makes of the logits."""

    name = "theirs"
    make: Any = staticmethod(lambda logits: logits)

    def adapt(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            returned: Tensor = self.make(self.model(x))
        return returned


def trouble(logits: Tensor) -> Tensor:
    raise ValueError("my own trouble")


def method(make: Any = None) -> Returns:
    made = Returns(nets()["BN CNN"])
    made.prepare(None)
    if make:
        made.make = make
    return made


@each(
    ("make", "says"),
    [
        (lambda y: (y, 1), rf"theirs returned tuple in batch 1; expected logits \(4, {CLASSES}\)"),
        (lambda y: y[:, :2], rf"theirs returned \(4, 2\) in batch 1; expected logits \(4, {CLASSES}\)"),
        (lambda y: y.argmax(1), r"theirs returned \(4,\) in batch 1; expected logits"),
        (trouble, r"theirs raised ValueError: my own trouble \(.*, line \d+\) in batch 1\."),
        (lambda y: sys.exit(0), r"theirs raised RuntimeError: its code calls exit\(0\), .* in batch 1\."),
    ],
)
def test_code_that_fails_or_returns_no_logits_is_named(make: Any, says: str) -> None:
    batches = [images(4, seed=0)]
    for pair in ((method(), method(make)), (method(make), method())):
        with pytest.raises(UserError, match=says):
            list(compare(*pair, batches, 1e-4))


def test_logits_that_are_not_finite_are_a_difference() -> None:
    found = list(compare(method(), method(lambda y: y * float("nan")), [images(4, seed=0)], 1e-4))
    assert found[1].logits == float("inf")


@each("draw", [lambda: torch.rand(()), np.random.rand, random.random])
def test_equal_draws_are_equal(draw: Any) -> None:
    pair = (method(lambda y: y + float(draw())) for _ in range(2))
    assert not any(batch.difference for batch in compare(*pair, [images(4, seed=0)] * 2, 1e-4))


def test_a_failure_before_the_first_batch_is_named() -> None:
    when = "when prepared"
    with (
        pytest.raises(UserError, match=rf"^theirs raised .*trouble.* {when}\.$"),
        failures_named("theirs", when),
    ):
        trouble(torch.empty(0))
    with pytest.raises(UserError, match=r"^as it is$"), failures_named("theirs", when):
        raise UserError("as it is")
