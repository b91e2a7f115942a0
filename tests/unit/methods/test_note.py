"""NOTE: instance-aware batch norm and its memory against the formulas of the paper."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.methods.kept_for_gradients import most_kept
from ttabench import nn as tta
from ttabench.conformance.nets import images, nets
from ttabench_methods.memory import PBRS, Item
from ttabench_methods.note import NOTE, NOTEConfig, softshrink, use_instance_aware_batch_norm


def layer(alpha: float = 4.0, channels: int = 3) -> tuple[nn.Module, nn.BatchNorm2d]:
    """Instance-aware batch norm, and the plain layer that it replaced."""
    plain = nn.BatchNorm2d(channels).eval().double()
    with torch.no_grad():
        plain.weight.uniform_(0.5, 2)
        plain.bias.normal_()
        plain.running_mean.normal_()
        plain.running_var.uniform_(0.5, 2)
    model = nn.Sequential(nn.Identity(), nn.BatchNorm2d(channels).eval().double())
    model[1].load_state_dict(plain.state_dict())
    use_instance_aware_batch_norm(model, alpha, 0.01)
    return model, plain


@torch.no_grad()
def by_hand(x: Tensor, plain: nn.BatchNorm2d, alpha: float) -> Tensor:
    """The equations of the paper, channel by channel."""
    out, places = torch.empty_like(x), x[0, 0].numel()
    for b in range(len(x)):
        for c in range(x.shape[1]):
            values = x[b, c].flatten().tolist()
            mean, var = float(plain.running_mean[c]), float(plain.running_var[c])
            own_mean = sum(values) / places
            own_var = sum((v - own_mean) ** 2 for v in values) / places

            def psi(d: float, limit: float) -> float:
                return d - limit if d > limit else d + limit if d < -limit else 0.0

            mu = mean + psi(own_mean - mean, alpha * math.sqrt(var / places))
            sigma2 = var + psi(own_var - var, alpha * var * math.sqrt(2 / (places - 1)))
            scale = float(plain.weight[c]) / math.sqrt(sigma2 + plain.eps)
            out[b, c] = (x[b, c] - mu) * scale + float(plain.bias[c])
    return out


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0])
def test_images_are_normalised_as_in_the_paper(alpha: float) -> None:
    model, plain = layer(alpha)
    x = 3 * torch.randn(4, 3, 5, 5, dtype=torch.float64) + torch.randn(4, 3, 1, 1, dtype=torch.float64) * 4
    assert torch.allclose(model(x), by_hand(x, plain, alpha))


def test_without_trust_in_the_source_it_is_instance_norm_and_with_all_it_is_batch_norm() -> None:
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64) * 2 + 1
    model, plain = layer(alpha=0.0)
    own = nn.functional.instance_norm(x, weight=plain.weight, bias=plain.bias, eps=plain.eps)
    assert torch.allclose(model(x), own)
    model, plain = layer(alpha=1e9)
    assert torch.allclose(model(x), plain(x))


def test_one_location_has_no_statistics_of_its_own() -> None:
    model, plain = layer(alpha=0.0)
    x = torch.randn(4, 3, 1, 1, dtype=torch.float64) * 5
    assert torch.allclose(model(x), plain(x))


def test_a_step_learns_and_moves_the_running_statistics_as_torch_does() -> None:
    model, plain = layer(alpha=1e9)
    tta.set_norm_mode(model, train=True)
    plain.momentum = 0.01
    plain.train()
    x = torch.randn(8, 3, 4, 4, dtype=torch.float64) + 2
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected, direction = model(ours), plain(theirs), torch.randn_like(x)
    assert torch.allclose(out, expected)
    made = model[1]
    assert torch.allclose(made.running_mean, plain.running_mean)
    assert torch.allclose(made.running_var, plain.running_var)
    out.backward(direction)
    expected.backward(direction)
    assert torch.allclose(ours.grad, theirs.grad)
    assert torch.allclose(made.weight.grad, plain.weight.grad)
    assert torch.allclose(made.bias.grad, plain.bias.grad)


def test_activations_are_kept_once_for_the_gradient() -> None:
    model, _ = layer()
    tta.set_norm_mode(model, train=True)
    x = torch.randn(8, 3, 32, 32, dtype=torch.float64).requires_grad_()
    assert x.nbytes <= most_kept(lambda: model(x)) < 1.1 * x.nbytes


def test_softshrink_is_that_of_torch() -> None:
    x = torch.randn(100) * 3
    assert torch.allclose(softshrink(x, torch.tensor(0.7)), nn.functional.softshrink(x, 0.7))


# ---- the memory


def filled(labels: list[int], capacity: int, classes: int) -> PBRS:
    memory = PBRS(capacity, classes)
    for arrival, label in enumerate(labels):
        memory.insert(Item(torch.zeros(1), arrival), label)
    return memory


def test_the_memory_becomes_balanced_in_a_sorted_stream() -> None:
    torch.manual_seed(0)
    memory = filled([label for label in range(4) for _ in range(200)], 16, 4)
    assert [len(held) for held in memory.classes] == [4, 4, 4, 4]


def test_an_item_of_a_small_class_always_enters_and_one_of_a_largest_class_leaves() -> None:
    torch.manual_seed(0)
    memory = filled([0] * 6 + [1] * 2, 8, 3)
    memory.insert(Item(torch.zeros(1), 99), 2)
    assert [len(held) for held in memory.classes] == [5, 2, 1]
    assert memory.classes[2][0].arrival == 99


def test_items_of_one_class_are_a_uniform_sample_of_all_that_came() -> None:
    """Reservoir sampling: every item of a single class stays with the chance capacity / arrivals."""
    torch.manual_seed(0)
    stays: Counter[int] = Counter()
    for _ in range(1500):
        stays.update(item.arrival for item in filled([0] * 20, 5, 2).items())
    assert sum(stays.values()) == 1500 * 5
    expected, sd = 1500 * 5 / 20, (1500 * 0.25 * 0.75) ** 0.5
    assert all(abs(stays[arrival] - expected) < 4.5 * sd for arrival in range(20))


# ---- the method


def prepared(**settings: Any) -> NOTE:
    method = NOTE(nets()["BN CNN"], NOTEConfig(**settings))
    method.prepare()
    return method


X = images(40, seed=2, shift=0.4)


def test_an_image_is_scored_without_the_others_of_its_batch() -> None:
    method = prepared()
    together = method.predict(X)
    alone = torch.cat([method.predict(x) for x in X.split(1)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [[40], [7, 20, 13], [1] * 40])
def test_the_sizes_of_batches_change_nothing(sizes: list[int]) -> None:
    logits = []
    for split in ([8] * 5, sizes):
        method = prepared(update_every=16, capacity=16, lr=0.05)
        torch.manual_seed(0)
        logits.append(torch.cat([method.adapt(x) for x in X.split(split)]))
    torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-4)


def test_a_step_lowers_the_entropy_of_the_memory_and_learns_affine_parameters_alone() -> None:
    method = prepared(update_every=40, capacity=40, lr=0.05)
    before = {name: value.clone() for name, value in method.model.named_parameters()}
    first = float(tta.entropy(method.predict(X)).mean())
    for _ in range(6):
        method.adapt(X)
    assert float(tta.entropy(method.predict(X)).mean()) < first
    changed = {
        name for name, value in method.model.named_parameters() if not torch.equal(value, before[name])
    }
    assert changed == set(method.parameters)
