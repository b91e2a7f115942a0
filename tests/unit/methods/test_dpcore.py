"""DPCore: known and new shifts, the coreset and the source's moments, against a small implementation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.conformance.nets import images, nets
from ttabench.nn import entropy
from ttabench_methods.dpcore import DPCore, DPCoreConfig, moments
from ttabench_methods.prompts import Prompted

SETTINGS: dict[str, Any] = {
    "steps": 4, "prompts": 2, "source_images": 20, "e0_factor": 0.6, "temperature": 0.5, "threshold": 0.97,
}  # fmt: skip


class Source:
    """64 source images in batches."""

    served: dict[str, int] = {}  # noqa: RUF012

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        yield from images(64, seed=3).double().split(batch_size)


@pytest.fixture(scope="module")
def net() -> Classifier:
    return nets()["LN ViT"].double()


def prepared(net: Classifier, **settings: Any) -> DPCore:
    torch.manual_seed(0)
    made = DPCore(net, DPCoreConfig(**{**SETTINGS, **settings}))
    made.prepare(Source())  # type: ignore[arg-type]
    return made


class Written:
    """The steps of the paper, with a list for the coreset."""

    def __init__(self, method: DPCore) -> None:
        self.model, self.start = method.model, method.start
        self.mean, self.spread = method.source
        self.core: list[list[Tensor]] = []
        self.known = 0

    def look(self, x: Tensor, prompts: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        with Prompted(self.model, prompts):
            z, logits = self.model.features_and_logits(x)
        mean, spread = z.mean(0), z.std(0)
        return logits, mean, spread, (mean - self.mean).norm() + (spread - self.spread).norm()

    def learn(self, x: Tensor, prompts: Tensor, steps: int) -> tuple[Tensor, ...]:
        learned = nn.Parameter(prompts.clone())
        optimizer = torch.optim.AdamW([learned], 0.1, weight_decay=0.01)
        for _ in range(steps):
            logits, mean, spread, distance = self.look(x, learned)
            optimizer.zero_grad()
            distance.backward()
            optimizer.step()
        return logits.detach(), mean.detach(), spread.detach(), learned.detach()

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            _, mean, spread, plain = self.look(x)
            if self.core:
                far = torch.stack([(mean - m).norm() + (spread - s).norm() for m, s, _ in self.core])
                weights = (-far / 0.5).exp() / (-far / 0.5).exp().sum()
                prompts = sum(w * p for w, (_, _, p) in zip(weights, self.core, strict=True))
                known = self.look(x, prompts)[-1] < 0.97 * plain  # type: ignore[arg-type]
        if not self.core or not known:
            logits, _, _, learned = self.learn(x, self.start, 4)
            self.core.append([mean, spread, learned])
            return logits
        self.known += 1
        logits, mean, spread, learned = self.learn(x, prompts, 1)  # type: ignore[arg-type]
        for w, element in zip(weights, self.core, strict=True):
            element[0] = element[0] + 0.999 * w * (mean - element[0])
            element[1] = element[1] + 0.999 * w * (spread - element[1]).clamp(min=0)
            element[2] = element[2] + 0.999 * w * (learned - element[2])
        return logits


def stream() -> list[Tensor]:
    return [images(12, seed=50 + i, shift=(0.0, 0.5, 0.9)[i // 3 % 3]).double() for i in range(10)]


def test_batch_by_batch_it_is_the_written_one(net: Classifier) -> None:
    method = prepared(net)
    written = Written(method)
    for x in stream():
        torch.testing.assert_close(method.adapt(x), written(x))
    assert method.counts == {"known": written.known, "new": len(written.core)}
    assert min(method.counts.values()) >= 2
    for i, (mean, spread, prompts) in enumerate(written.core):
        torch.testing.assert_close(method.means[i], mean)
        torch.testing.assert_close(method.spreads[i], spread)
        torch.testing.assert_close(method.core[i], prompts)


def test_moments_of_the_source_are_those_of_its_sure_images(net: Classifier) -> None:
    x = images(64, seed=3).double()
    with torch.no_grad():
        z, logits = net.features_and_logits(x)
    sure = z[entropy(logits) < 0.6 * math.log(5)][:20]
    assert len(sure) == 20
    mean, spread = prepared(net).source
    torch.testing.assert_close(mean, sure.mean(0))
    torch.testing.assert_close(spread, sure.std(0))
    mean, _ = prepared(net, e0_factor=0.0).source  # none is sure
    torch.testing.assert_close(mean, z.mean(0))


def test_a_full_coreset_gives_up_its_nearest_element(net: Classifier) -> None:
    method = prepared(net, capacity=2, threshold=0.0)  # each batch is a new shift
    first, second, third = stream()[0], stream()[3], stream()[4]
    for x in (first, second, third):
        method.adapt(x)
    assert method.filled == 2
    with torch.no_grad():
        torch.testing.assert_close(method.means[0], method.model.features(first).mean(0))
        torch.testing.assert_close(method.means[1], method.model.features(third).mean(0))


def test_prediction_takes_the_weighted_prompts_and_one_image_has_no_deviation(net: Classifier) -> None:
    method = prepared(net)
    x = stream()[0]
    with torch.no_grad():
        assert torch.equal(method.predict(x), method.model(x))
    method.adapt(x)
    with Prompted(method.model, method.core[0]), torch.no_grad():
        expected = method.model(x)
    torch.testing.assert_close(method.predict(x), expected)
    assert (moments(torch.randn(1, 5))[1] == 0).all()
