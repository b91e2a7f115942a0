"""RMT: its losses against the formulas written out, prototypes, teacher, warm-up and replay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cases import each
from ttabench import nn as tta
from ttabench.classifier import Classifier
from ttabench.conformance.nets import images, nets
from ttabench_methods.rmt import RMT, RMTConfig, contrastive, symmetric


class Source:
    """64 source images in batches of 16."""

    served: dict[str, int] = {}  # noqa: RUF012

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        yield from images(64, seed=3).split(batch_size)


@pytest.fixture(scope="module")
def net() -> Classifier:
    return nets()["BN CNN"]


def prepared(net: Classifier, **settings: Any) -> RMT:
    torch.manual_seed(0)
    made = RMT(net, RMTConfig(**{"source_batch_size": 16, "warmup_images": 0, **settings}))
    made.prepare(Source())  # type: ignore[arg-type]
    return made


def test_the_symmetric_cross_entropy_is_the_mean_of_both_directions() -> None:
    a, b = torch.randn(2, 5, 4, dtype=torch.float64)
    p, q = a.softmax(1), b.softmax(1)
    expected = [-0.5 * sum(float(q[i, c] * p[i, c].log() + p[i, c] * q[i, c].log()) for c in range(4))
                for i in range(5)]  # fmt: skip
    assert symmetric(a, b).tolist() == pytest.approx(expected)
    assert torch.allclose(symmetric(a, b), symmetric(b, a))


def test_the_contrast_is_that_of_the_formula() -> None:
    z = torch.nn.functional.normalize(torch.randn(3, 4, 6, dtype=torch.float64), dim=2)
    rows = [(kind, image) for kind in range(3) for image in range(4)]

    def similarity(a: tuple[int, int], b: tuple[int, int]) -> float:
        return math.exp(float(z[a] @ z[b]) / 0.1)

    losses = []
    for row in rows:
        others = [other for other in rows if other != row]
        total = sum(similarity(row, other) for other in others)
        own = [other for other in others if other[1] == row[1]]
        losses.append(-sum(math.log(similarity(row, other) / total) for other in own) / len(own))
    assert float(contrastive(z, 0.1)) == pytest.approx(sum(losses) / len(losses))


def test_the_contrast_is_smallest_where_the_kinds_of_an_image_agree() -> None:
    z = torch.eye(4).expand(3, 4, 4)
    assert contrastive(z, 0.1) < contrastive(z.clone().roll(1, dims=1)[:, :], 0.1) + 1e-6
    mixed = torch.stack([torch.eye(4), torch.eye(4).roll(1, 0), torch.eye(4).roll(2, 0)])
    assert contrastive(z, 0.1) < contrastive(mixed, 0.1)


def test_prototypes_are_the_mean_features_of_the_predicted_classes(net: Classifier) -> None:
    method = prepared(net)
    with torch.no_grad():
        labels = net(images(64, seed=3)).argmax(1)
        z = torch.cat([method.model.features(x) for x in images(64, seed=3).split(16)])
    assert (method.labels == labels).all()
    for prototype, label in zip(method.prototypes, labels.unique(), strict=True):
        torch.testing.assert_close(prototype, z[labels == label].mean(0))


def test_the_sum_before_the_update_is_scored_and_the_teacher_is_slow(net: Classifier) -> None:
    method = prepared(net)
    x = images(16, seed=9)
    with torch.no_grad():
        before = method.model(x) + method.teacher(x)
    start = {name: p.detach().clone() for name, p in method.teacher.named_parameters()}
    torch.testing.assert_close(method.adapt(x), before)
    for name, p in method.model.named_parameters():
        teacher = dict(method.teacher.named_parameters())[name]
        torch.testing.assert_close(teacher, 0.999 * start[name] + 0.001 * p.detach())
    assert any((p != start[name]).any() for name, p in method.model.named_parameters())


def test_the_warm_up_moves_the_student_and_ends_at_the_learning_rate(net: Classifier) -> None:
    cold, warm = prepared(net), prepared(net, warmup_images=64)
    moved = [(p - q).abs().max() for p, q in zip(cold.parameters.values(), warm.parameters.values(),
                                                strict=True)]  # fmt: skip
    assert max(moved) > 0
    assert {group["lr"] for group in warm.optimizer.param_groups} == {1e-3}


@each("optimizer", ["adam", "nesterov"])
def test_the_projector_has_its_first_step_after_the_warm_up(net: Classifier, optimizer: Any) -> None:
    """The warm-up gives it no gradient. Its first step is that of an optimiser of its own."""
    warm = prepared(net, warmup_images=64, optimizer=optimizer)
    projector = warm.projector
    before = [p.detach().clone() for p in projector.parameters()]
    warm.adapt(images(16, seed=9))
    alone = [p.clone().requires_grad_() for p in before]
    for p, learned in zip(alone, projector.parameters(), strict=True):
        assert learned.grad is not None
        p.grad = learned.grad
    cfg = warm.config
    tta.make_optimizer(optimizer, alone, cfg.lr, cfg.momentum).step()
    for p, start, learned in zip(alone, before, projector.parameters(), strict=True):
        assert (p != start).any()
        assert torch.equal(p, learned)


def test_without_replay_no_source_image_is_kept(net: Classifier) -> None:
    assert prepared(net).images.shape == (64, *images(1, seed=3).shape[1:])
    free = prepared(net, replay=0.0)
    assert len(free.images) == len(free.labels) == 0
    assert torch.isfinite(free.adapt(images(16, seed=9))).all()


def test_replay_draws_images_as_they_were(net: Classifier) -> None:
    method = prepared(net)
    x, labels = method.draw(8)
    known = images(64, seed=3)
    for image, label in zip(x, labels, strict=True):
        distances = (known - image).abs().amax(dim=(1, 2, 3))
        assert distances.min() <= 0.5 / 255 + 1e-6
        assert method.labels[distances.argmin()] == label
