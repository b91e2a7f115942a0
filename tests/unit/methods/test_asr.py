"""ASR: when and where it resets, and its regulariser, against a small implementation of its own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.prepared_methods import ready
from ttabench.classifier import Architecture, Classifier
from ttabench.conformance.nets import images, nets
from ttabench_methods.asr import ASR, ASRConfig, concentration
from ttabench_methods.eta import ETA, ETAConfig


@pytest.fixture(scope="module")
def net() -> Classifier:
    return nets()["BN CNN"].double()


SETTINGS: dict[str, Any] = {"lr": 0.05, "d_margin": 0.6, "start": 0.8, "keep_slope": 2.0}


def prepared(net: Classifier, **settings: Any) -> ASR:
    return ready(ASR(net, ASRConfig(**{**SETTINGS, **settings})))


def batches(count: int) -> list[Tensor]:
    return [images(20, seed=30 + i, shift=0.2).double() for i in range(count)]


class Written:
    """The steps of the paper on lists of parameters, with autograd for the regulariser."""

    def __init__(self, net: Classifier) -> None:
        method = prepared(net)
        self.model, self.source = method.model, method.source
        self.parameters = list(method.parameters.values())
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.SGD(self.parameters, 0.05, 0.9)
        self.fisher: list[Tensor] | None = None
        self.mean: list[Tensor] = []
        self.strength, self.resets = 0.0, 0
        self.fresh()

    def fresh(self) -> None:
        self.usual, self.average = math.log(0.8 * 5), None
        self.seen: list[tuple[list[Tensor], list[Tensor]]] = []

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        p = logits.softmax(1)
        h = -(p * p.log()).sum(1)
        kept = h < 0.4 * math.log(5)
        if self.average is not None:
            kept = kept & (torch.cosine_similarity(self.average[None], p, dim=1).abs() < 0.6)
        gradient = [torch.zeros_like(q) for q in self.parameters]
        if kept.any():
            new = p[kept].mean(0).detach()
            self.average = new if self.average is None else 0.9 * self.average + 0.1 * new
            loss = ((0.4 * math.log(5) - h.detach()).exp() * h)[kept].mean()
            gradient = list(torch.autograd.grad(loss, self.parameters, retain_graph=True))
        self.seen.append(([g**2 for g in gradient], [q.detach().clone() for q in self.parameters]))
        if kept.any():
            if self.fisher is not None:
                terms = zip(self.fisher, self.parameters, self.mean, strict=True)
                loss = loss + self.strength * sum((f * (q - m) ** 2).sum() for f, q, m in terms)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.after(x, logits.detach())
        return logits.detach()  # type: ignore[no-any-return]

    @torch.no_grad()
    def after(self, x: Tensor, logits: Tensor) -> None:
        mean = logits.mean(0).softmax(0)
        now = -float((mean * mean.log()).sum())
        flipped = float((self.source(x).argmax(1) != logits.argmax(1)).double().mean())
        self.strength = 5 * flipped**2
        if now >= self.usual:
            share = 0.15 * flipped + 0.85
            self.usual = share * self.usual + (1 - share) * now
            return
        fisher, places = (
            [torch.stack(values).mean(0) for values in zip(*kind, strict=True)]
            for kind in zip(*self.seen, strict=True)
        )
        if self.fisher is None:
            self.fisher, self.mean = fisher, places
        else:
            self.fisher = [0.9 * a + 0.1 * b for a, b in zip(self.fisher, fisher, strict=True)]
            self.mean = [0.9 * a + 0.1 * b for a, b in zip(self.mean, places, strict=True)]
        first = max(0.5 - 2 * (self.usual - now), 0) * len(self.parameters)
        for i, (q, start) in enumerate(zip(self.parameters, self.start, strict=True)):
            if i >= first:
                q.copy_(start)
        self.optimizer = torch.optim.SGD(self.parameters, 0.05, 0.9)
        self.resets += 1
        self.fresh()


def test_batch_by_batch_it_is_the_written_one(net: Classifier) -> None:
    method, written = prepared(net), Written(net)
    for x in batches(16):
        torch.testing.assert_close(method.adapt(x), written(x))
        assert method.usual == pytest.approx(written.usual)
    assert method.counts["resets"] == written.resets
    assert 1 < written.resets < 12  # so that regulariser and average are both at work


def test_without_a_reset_it_is_eta(net: Classifier) -> None:
    method = prepared(net, start=1e-6)
    eta = ready(ETA(net, ETAConfig(lr=0.05, d_margin=0.6)))
    for x in batches(5):
        torch.testing.assert_close(method.adapt(x), eta.adapt(x))
    assert method.counts["resets"] == 0


def test_the_share_that_stays_is_counted_from_the_input(net: Classifier) -> None:
    method = prepared(net)
    for x in batches(2):
        method.adapt(x)
    with torch.no_grad():
        for p in method.parameters.values():
            p.add_(1)
    method.batches = method.batches or 1
    method.restart(0.3)
    back = [torch.equal(p, method.origin[name]) for name, p in method.parameters.items()]
    assert back == [i >= 0.3 * len(back) for i in range(len(back))]
    assert not method.optimizer.state


def test_concentration_is_low_where_one_class_wins() -> None:
    even = concentration(9 * torch.eye(4))
    assert even == pytest.approx(math.log(4), rel=1e-3)
    assert concentration(torch.tensor([[9.0, 0, 0, 0]]).expand(4, 4)) < 0.1 < even


def test_settings_of_vit_b_are_for_a_thousand_classes() -> None:
    def settings(classes: int, *norms: str) -> Any:
        return ASR.for_architecture(Architecture(num_classes=classes, norm_layers=norms))

    assert settings(1000, "layer") == {
        "norms": "all", "adaptivity": 0.99, "start": 0.005, "keep_slope": 50.0,
    }  # fmt: skip
    assert settings(10, "layer") == {"norms": "all"}
    assert settings(1000, "batch") == {}
