"""The hash over torch operations: what it sees, and what it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ttabench.provenance.operations import Operations

X = torch.linspace(-1, 1, 12).reshape(3, 4)
ZEROS = torch.zeros(4)
ONE, TWO = torch.tensor(1.0), torch.tensor(2.0)


def digest(block: Callable[[], object]) -> str:
    with Operations() as operations:
        block()
    assert len(operations.digest) == 16
    assert operations.digest != Operations().digest
    return operations.digest


def trained(rate: float) -> None:
    weight = torch.ones(4, 2, requires_grad=True)
    torch.nn.functional.cross_entropy(X @ weight, torch.tensor([0, 1, 1])).backward()
    torch.optim.SGD([weight], lr=rate).step()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: X + 1, lambda: X + 1.5),
        (lambda: (X + 1) * 2, lambda: (X * 2) + 1),
        (lambda: X.sum(0), lambda: X.sum(1)),
        (lambda: X[0] * 2, lambda: X[1] * 2),  # views of other places
        (lambda: X.clone().add_(1), lambda: X.clone().add_(2)),
        (lambda: (X == X).any(), lambda: (X != X).any()),
        (lambda: X.to(torch.float64).mul(3), lambda: X.mul(3)),
        (lambda: trained(0.1), lambda: trained(0.1 + 1e-6)),  # the step, after a backward pass
        (lambda: X * 1, lambda: X / 1),  # of which both give X
        (lambda: ZEROS * 2, lambda: ZEROS * 3),
        (lambda: torch.add(X, ZEROS, alpha=2), lambda: torch.add(X, ZEROS, alpha=3)),
        (lambda: ONE.item(), lambda: TWO.item()),  # results that are no tensors
    ],
)
def test_another_computation_has_another_hash(one: Callable[[], object], other: Callable[[], object]) -> None:
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


def test_one_bit_of_an_image_is_seen() -> None:
    image = torch.zeros(5)
    changed = image.clone()
    changed[3] = torch.finfo(torch.float32).smallest_normal
    assert digest(lambda: image * 1) != digest(lambda: changed * 1)


def test_random_numbers_and_memory_that_is_only_reserved() -> None:
    def drawn(seed: int) -> Callable[[], object]:
        return lambda: (torch.manual_seed(seed), torch.empty(1000).normal_())

    assert digest(drawn(0)) == digest(drawn(0))
    assert digest(drawn(0)) != digest(drawn(1))

    def held(value: float) -> Callable[[], object]:
        memory = torch.full((8,), value)
        return lambda: torch.empty(0).set_(memory)

    assert digest(held(1.0)) == digest(held(2.0))


def test_reserved_memory_is_zero_in_every_run() -> None:
    with Operations():
        assert not torch.empty(100_000).any()
        assert not torch.empty_like(X).any()
        storage = X.clone()
        assert (torch.empty(0).set_(storage) == X).all()


def test_operations_get_all_that_they_are_called_with_and_the_address_of_nothing_counts() -> None:
    with Operations():
        assert torch.equal(torch.add(X, X, alpha=2), 3 * X)
        assert torch.equal(X.sum(dim=1, keepdim=True), X.sum(1)[:, None])

    def drawn() -> object:
        return torch.zeros(5).normal_(generator=torch.Generator().manual_seed(3))

    assert digest(drawn) == digest(drawn)
