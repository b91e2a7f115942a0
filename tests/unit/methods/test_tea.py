"""TEA: energy, Langevin dynamics, buffer and the order of its steps, against the formulas written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ttabench import nn as tta
from ttabench.classifier import Classifier
from ttabench.conformance.nets import images, nets
from ttabench_methods.tea import TEA, TEAConfig, energy, newest


@pytest.fixture(scope="module")
def net() -> Classifier:
    return nets()["BN CNN"].double()


def prepared(net: Classifier, **settings: Any) -> TEA:
    made = TEA(net, TEAConfig(**{"buffer": 30, "sgld_steps": 3, "restart": 0.0, "sgld_std": 0.0, **settings}))
    made.prepare()
    return made


def test_energy_is_minus_the_logarithm_of_the_sum() -> None:
    logits = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(energy(logits), -logits.exp().sum(1).log())


def test_without_noise_langevin_dynamics_goes_down_the_gradient(net: Classifier) -> None:
    method = prepared(net)
    x = images(8, seed=2).double()
    here = x.clone()
    for _ in range(3):
        here.requires_grad_(True)
        (slope,) = torch.autograd.grad(-method.model(here).logsumexp(1).sum(), here)
        here = (here - 0.1 * slope).detach()
    torch.testing.assert_close(method.sgld(x), here)
    assert energy(method.model(here)).mean() < energy(method.model(x)).mean()


def test_noise_has_its_deviation(net: Classifier) -> None:
    method = prepared(net, sgld_lr=0.0, sgld_std=0.5, sgld_steps=4)
    x = images(64, seed=2).double()
    assert float((method.sgld(x) - x).std()) == pytest.approx(0.5 * 2, rel=0.02)


def test_a_batch_is_one_step_on_the_difference_of_energies_and_then_scored(net: Classifier) -> None:
    method, twin = prepared(net), prepared(net)
    x = images(12, seed=4).double()
    method.buffer = torch.rand(30, 3, 16, 16, dtype=torch.float64)
    twin.buffer = method.buffer.clone()
    torch.manual_seed(7)
    logits = method.adapt(x)
    torch.manual_seed(7)
    imagined = twin.imagine(x)
    optimizer = torch.optim.Adam(twin.parameters.values(), lr=1e-3)
    real, fake = twin.model(x).logsumexp(1).mean(), twin.model(imagined).logsumexp(1).mean()
    (fake - real).backward()
    optimizer.step()
    torch.testing.assert_close(logits, twin.model(x).detach())
    assert twin.buffer is not None
    torch.testing.assert_close(method.buffer, twin.buffer)


def test_the_buffer_goes_on_where_it_was_and_starts_anew_at_times(net: Classifier) -> None:
    method = prepared(net, sgld_steps=0)
    x = images(8, seed=4).double()
    method.buffer = torch.full((30, 3, 16, 16), 0.25, dtype=torch.float64)
    assert (method.imagine(x) == 0.25).all()
    anew = prepared(net, sgld_steps=0, restart=1.0)
    anew.buffer = method.buffer.clone()
    imagined = anew.imagine(x)
    assert imagined.min() < -0.9  # U(−1, 1)
    assert imagined.max() > 0.9
    assert 22 <= int((anew.buffer == 0.25).flatten(1).all(1).sum()) < 30


def test_of_images_with_one_place_the_last_is_kept() -> None:
    places, kept = newest(torch.tensor([3, 1, 3, 0]), torch.arange(4.0))
    assert places.tolist() == [0, 1, 3]
    assert kept.tolist() == [3, 1, 2]


def test_with_a_thousand_classes_the_buffer_is_small() -> None:
    assert TEA.for_dataset("any", 100) == {}
    assert TEA.for_dataset("any", 1000)["buffer"] == 1000
    assert isinstance(TEAConfig(), tta.NormSettings)
