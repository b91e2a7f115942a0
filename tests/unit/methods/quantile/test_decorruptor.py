"""The decorruptor: the identity before training, and a map that can learn."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.cases import each
from ttabench_methods.quantile.decorruptor import SIZES, Block, Decorruptor


@each("size", SIZES)
@each("shape", [(2, 3, 32, 32), (1, 3, 9, 7), (1, 3, 64, 64)])
@each("layout", [torch.contiguous_format, torch.channels_last])
@each("half", [False, True])
def test_it_starts_as_the_identity(
    size: str, shape: tuple[int, ...], layout: torch.memory_format, half: bool
) -> None:
    if size == "paper" and (half or shape[-1] == 64):
        shape = (1, 3, 9, 7)  # its arithmetic is the others', and slow
    torch.manual_seed(0)
    x = torch.rand(shape).to(memory_format=layout)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        assert torch.equal(Decorruptor(size)(x), x)


def test_it_brings_channels_from_one_mean_and_std_to_another() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 3, 16, 16)
    have = x.mean((0, 2, 3)), x.std((0, 2, 3), correction=0)
    want = torch.tensor([0.2, 0.5, 0.9]), torch.tensor([0.05, 0.2, 0.6])
    decorruptor = Decorruptor()
    decorruptor.standardise(have, want)
    with torch.no_grad():
        out = decorruptor(x)
    assert torch.equal(out, decorruptor.before(x))
    torch.testing.assert_close(out.mean((0, 2, 3)), want[0])
    torch.testing.assert_close(out.std((0, 2, 3), correction=0), want[1])


def test_between_equal_statistics_it_is_the_identity() -> None:
    """Also where a channel is constant, or almost."""
    torch.manual_seed(0)
    x, decorruptor = torch.rand(2, 3, 8, 8), Decorruptor()
    same = torch.tensor([0.3, 0.5, 0.7]), torch.tensor([0.0, 1e-4, 0.2])
    decorruptor.standardise(same, same)
    with torch.no_grad():
        assert torch.equal(decorruptor(x), x)


def test_a_constant_channel_is_moved_and_not_stretched() -> None:
    decorruptor, flat = Decorruptor(), torch.full((1, 3, 4, 4), 0.5)
    half, none = torch.full((3,), 0.5), torch.zeros(3)
    decorruptor.standardise((half, none), (torch.full((3,), 0.25), none))
    with torch.no_grad():
        torch.testing.assert_close(decorruptor(flat), torch.full((1, 3, 4, 4), 0.25))
        torch.testing.assert_close(decorruptor(flat + 0.1), torch.full((1, 3, 4, 4), 0.35))


def test_every_parameter_comes_to_learn() -> None:
    torch.manual_seed(0)
    decorruptor = Decorruptor("medium")
    x = torch.rand(4, 3, 8, 8)
    optimizer = torch.optim.SGD(decorruptor.parameters(), 1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        (decorruptor(x) - x.flip(0)).square().sum().backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in decorruptor.parameters())


def test_blocks_are_residual() -> None:
    block, x = Block(4), torch.randn(2, 4, 5, 5)
    nn.init.zeros_(block.second.weight)
    nn.init.zeros_(block.second.bias)  # type: ignore[arg-type]
    assert torch.equal(block(x), x)


def test_sizes() -> None:
    counts = {size: sum(p.numel() for p in Decorruptor(size).parameters()) for size in SIZES}
    assert counts["small"] < counts["medium"] < counts["paper"]
    assert counts["paper"] == pytest.approx(6.2e6, rel=0.01)
