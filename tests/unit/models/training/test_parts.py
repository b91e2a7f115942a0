"""The gradient of a batch in parts: that of the whole batch, and the same bits for any number of threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.cases import each
from tests.unit.models.training.test_training import TINY
from ttabench.models.architectures.build import build
from ttabench.models.training.parts import DrawFrom, Parts
from ttabench.models.training.train import make_optimizer

IMAGES = 10


def transformer(arch: str = "cct_2_3x2_32") -> nn.Module:
    torch.manual_seed(0)
    return build(arch, dataset="x", num_classes=10, image_size=32, mean=(0.5,) * 3, std=(0.25,) * 3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gradients(net: nn.Module, size: int, threads: int, seed: int = 0) -> list[Tensor]:
    """The gradients of all parameters, and at the end what the parts report: sums of losses and images."""
    parameter = next(net.parameters())
    x = torch.rand(IMAGES, 3, 32, 32, generator=generator(1), dtype=torch.float64).to(parameter.dtype)
    labels = torch.arange(IMAGES) % 10

    def loss_of(part: slice) -> tuple[Tensor, Tensor]:
        loss = F.cross_entropy(net(x[part]), labels[part], reduction="sum") / IMAGES
        return loss, torch.stack((loss.detach(), torch.tensor(float(len(x[part])))))

    noted = Parts(net, size, threads).backward(loss_of, IMAGES, (seed, 0))
    return [*(p.grad for p in net.parameters() if p.grad is not None), noted]


@pytest.fixture(scope="module")
def whole() -> tuple[tuple[Tensor, ...], float]:
    """The gradient of the whole batch, and its loss."""
    net = transformer().eval().double()
    x = torch.rand(IMAGES, 3, 32, 32, generator=generator(1), dtype=torch.float64)
    loss = F.cross_entropy(net(x), torch.arange(IMAGES) % 10)
    return torch.autograd.grad(loss, [p for p in net.parameters() if p.requires_grad]), loss.item()


@each("size", [1, 3, 5, 16])
@each("threads", [1, 3])
def test_parts_add_up_to_the_gradient_of_the_whole_batch(
    whole: tuple[tuple[Tensor, ...], float], size: int, threads: int
) -> None:
    gradient, loss = whole
    *ours, noted = gradients(transformer().eval().double(), size, threads)
    assert len(ours) == len(gradient)
    for one, other in zip(ours, gradient, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(noted.tolist(), [loss, float(IMAGES)])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_of_the_optimiser_is_that_of_the_whole_batch(optimizer: str) -> None:
    """Our convolutions lie in memory as channels-last, and fused optimisers need gradients that do too."""
    recipe = replace(TINY, optimizer=optimizer)
    weights = []
    for parts in (False, True):
        net = transformer().eval().double()
        step = make_optimizer(recipe, net, torch.device("cpu"))
        if parts:
            gradients(net, 3, 2)
        else:
            x = torch.rand(IMAGES, 3, 32, 32, generator=generator(1), dtype=torch.float64)
            F.cross_entropy(net(x), torch.arange(IMAGES) % 10).backward()
        trained = [p for p in net.parameters() if p.grad is not None]
        assert any(not p.is_contiguous() for p in trained)
        assert all(p.grad is not None and p.grad.stride() == p.stride() for p in trained)
        step.step()
        weights.append(trained)
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("arch", ["cct_2_3x2_32", "cvt_2_4_32", "vit_2_4_32"])
def test_threads_change_no_bit_of_what_is_trained_with_dropout(arch: str) -> None:
    net = transformer(arch).train()
    one, *others = [gradients(net, 3, threads) for threads in (1, 2, 4, 4)]
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_is_dropped_depends_on_the_seed_and_the_part_alone() -> None:
    net = transformer().train()
    before = torch.get_rng_state()
    first = gradients(net, 5, 2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)  # of torch's own generator
    assert torch.equal(gradients(net, 5, 2)[-1], first[-1])
    assert not torch.equal(gradients(net, 5, 2, seed=1)[-1], first[-1])

    seen: list[Tensor] = []

    def loss_of(part: slice) -> tuple[Tensor, Tensor]:
        seen.append(torch.empty(20).bernoulli_(0.5))
        return next(net.parameters()).sum(), torch.zeros(1)

    Parts(net, 5, 1).backward(loss_of, IMAGES, (0, 0))
    assert len(seen) == 2
    assert not torch.equal(*seen)


def test_a_parameter_that_no_part_uses_has_no_gradient() -> None:
    net = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(2, 1)})
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    x = torch.ones(4, 2)
    Parts(net, 2, 1).backward(lambda part: (net["used"](x[part]).sum(), torch.zeros(1)), 4, (0,))
    assert net["idle"].weight.grad is None
    assert net["used"].weight.grad.tolist() == [[4.0, 4.0]]


def test_a_mistake_in_a_part_is_raised() -> None:
    def loss_of(part: slice) -> tuple[Tensor, Tensor]:
        raise ValueError("no such image")

    with pytest.raises(ValueError, match="no such image"):
        Parts(transformer(), 5, 2).backward(loss_of, IMAGES, (0,))


def test_attention_without_dropout_is_that_of_torch() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=generator(), dtype=torch.float64)
    with DrawFrom(generator()):
        ours = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v), rtol=1e-12, atol=1e-12)


def test_attention_drops_the_weights_at_the_given_rate_and_keeps_their_mean() -> None:
    tokens = 200
    q = k = torch.zeros(1, 1, tokens, 4)
    v = torch.eye(tokens)[None, None]  # so the output is the weights, all equal without dropout
    with DrawFrom(generator()):
        weights = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
    kept = weights[weights > 0]
    share = len(kept) / tokens**2
    assert abs(share - 0.9) < 5 * (0.9 * 0.1) ** 0.5 / tokens  # five standard deviations
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / tokens / 0.9))
