"""AdaContrast: its losses against the formulas written out, neighbours, queue, slow model and views."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from ttabench.classifier import Classifier
from ttabench.conformance.nets import images, nets
from ttabench_methods.adacontrast import (
    AdaContrast,
    AdaContrastConfig,
    diversity_loss,
    info_nce,
    neighbours_mean,
)
from ttabench_methods.adacontrast_views import blurred, jittered, mirrored, strong_view


@pytest.fixture(scope="module")
def net() -> Classifier:
    return nets()["BN CNN"]


def prepared(net: Classifier, **settings: Any) -> AdaContrast:
    torch.manual_seed(0)
    made = AdaContrast(net, AdaContrastConfig(**{"queue": 40, "lr": 0.01, **settings}))
    made.prepare()
    return made


def test_the_contrast_is_that_of_the_formula_over_keys_of_other_classes() -> None:
    query, key, queue = (normalize(torch.randn(n, 6, dtype=torch.float64), dim=1) for n in (4, 4, 7))
    label, labels = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 1, 2, 0, 2, 1])
    losses = []
    for i in range(4):
        own = math.exp(float(query[i] @ key[i]) / 0.07)
        others = sum(math.exp(float(query[i] @ queue[j]) / 0.07) for j in range(7) if labels[j] != label[i])
        losses.append(-math.log(own / (own + others)))
    loss = info_nce(query, key, queue, label[:, None] == labels[None], 0.07)
    assert float(loss) == pytest.approx(sum(losses) / 4)


def test_a_pseudo_label_is_the_vote_of_the_nearest_by_angle() -> None:
    bank = torch.tensor([[1.0, 0.0], [9.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    p = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.1, 0.9], [0.0, 1.0]])
    mean = neighbours_mean(torch.tensor([[0.1, 0.0], [0.0, 5.0]]), bank, p, 2)
    torch.testing.assert_close(mean, torch.tensor([[0.8, 0.2], [0.4, 0.6]]))


def test_diversity_is_lowest_for_equally_frequent_classes() -> None:
    even, one = 9 * torch.eye(4), torch.tensor([[9.0, 0, 0, 0]]).expand(4, 4)
    assert float(diversity_loss(even)) == pytest.approx(-math.log(4), abs=1e-3)
    assert diversity_loss(one) > diversity_loss(even) + 1


def test_a_step_is_that_of_the_losses_and_the_slow_model_follows_before_its_keys(net: Classifier) -> None:
    method = prepared(net)
    x = images(12, seed=5)
    start = {name: p.detach().clone() for name, p in method.model.named_parameters()}
    method.adapt(x)
    for name, p in method.slow.named_parameters():  # they were equal when it followed
        torch.testing.assert_close(p, start[name], rtol=0, atol=1e-7)
    moved = {name: p.detach().clone() for name, p in method.model.named_parameters()}
    assert any((moved[name] != start[name]).any() for name in moved)
    method.adapt(images(12, seed=6))
    for name, p in method.slow.named_parameters():
        torch.testing.assert_close(p, 0.999 * start[name] + 0.001 * moved[name])


def test_queue_and_bank_are_rings_and_the_first_images_have_their_own_labels(net: Classifier) -> None:
    method = prepared(net, refine_after=24)
    old = method.keys.clone()
    method.weak = lambda x: x  # type: ignore[method-assign,assignment]
    for seed in (1, 2):
        x = images(12, seed=seed)
        method.learning(True)
        expected = method.model(x).argmax(1)
        method.learning(False)
        at = method.places(12)
        method.adapt(x)
        assert (method.labels[at] == expected).all()
    assert (method.keys[:24] != old[:24]).any(dim=1).all()
    assert torch.equal(method.keys[24:], old[24:])
    for seed in (3, 4):
        method.adapt(images(12, seed=seed))
    assert method.seen == 48
    assert method.places(3).tolist() == [8, 9, 10]
    assert (method.keys[24:] != old[24:]).any(dim=1).all()


@pytest.mark.parametrize("quirks", [False, True])
def test_the_keys_that_a_batch_replaces_are_masked_by_their_own_labels(net: Classifier, quirks: bool) -> None:
    method = prepared(net, queue=6, official_quirks=quirks, classify=0.0, diversity=0.0)
    x, label = images(6, seed=5), torch.tensor([0, 1, 2, 3, 4, 0])
    keys = normalize(torch.randn(6, method.model.num_features), dim=1)
    labels = label if quirks else method.labels
    with torch.no_grad():
        query = normalize(method.model.features(x), dim=1)
        expected = info_nce(query, keys, method.keys, label[:, None] == labels[None], 0.07)
        torch.testing.assert_close(method.loss(x, keys, label), expected)


def test_scored_is_a_pass_with_running_statistics_after_the_update(net: Classifier) -> None:
    method = prepared(net)
    x = images(12, seed=5)
    before = method.model.net.layer1[1].running_mean.clone()  # type: ignore[index,union-attr]
    logits = method.adapt(x)
    assert (method.model.net.layer1[1].running_mean != before).any()  # type: ignore[index,union-attr]
    with torch.no_grad():
        assert torch.equal(logits, method.model(x))


def test_views_have_draws_of_their_own_for_each_image() -> None:
    one = images(1, seed=1)
    x = one.expand(32, -1, -1, -1)
    torch.manual_seed(0)
    assert len({tuple(view.flatten().tolist()) for view in mirrored(x)}) == 2
    views = strong_view(x)
    assert views.shape == x.shape
    assert views.min() >= 0
    assert views.max() <= 1
    assert len({tuple(view.flatten().tolist()) for view in views}) > 24


def test_colours_of_a_grey_image_stay_grey_and_blur_keeps_what_is_flat() -> None:
    grey = torch.rand(8, 1, 16, 16).expand(-1, 3, -1, -1)
    torch.testing.assert_close(jittered(grey).std(dim=1), torch.zeros(8, 16, 16), rtol=0, atol=1e-5)
    flat = torch.full((2, 3, 16, 16), 0.3)
    torch.testing.assert_close(blurred(flat, torch.tensor([0.5, 2.0]).view(2, 1, 1, 1)), flat)
    dot = torch.zeros(2, 3, 31, 31)
    dot[..., 15, 15] = 1
    peak = blurred(dot, torch.tensor([1.0, 2.0]).view(2, 1, 1, 1))
    offsets = torch.arange(-6, 7) / 2
    kernel = (-0.5 * offsets**2).exp() / (-0.5 * offsets**2).exp().sum()
    torch.testing.assert_close(peak[1, 2, 9:22, 9:22], torch.outer(kernel, kernel))
    assert peak[0].max() > peak[1].max()
