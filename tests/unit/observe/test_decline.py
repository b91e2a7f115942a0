"""Methods that get worse along a stream in random order, or that do harm, raise an alarm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ttabench
from tests.cases import each
from ttabench.data.dataset import Labelled
from ttabench.observe.decline import Course
from ttabench.observe.worse_than_source import harm_alarm


def course(*accuracies: float, batch: int = 50) -> Course:
    made, right = Course(), 0
    for number, accuracy in enumerate(accuracies, start=1):
        right += round(accuracy * batch)
        made.note(number * batch, number * batch, right)
    return made


def test_a_fall_is_told_with_both_accuracies() -> None:
    assert course(0.6, 0.4, 0.2, 0.1, 0.06).alarm() == (
        "accuracy falls along the stream: 50.0 % of the first 100 images are right, and 8.0 % of the last 100"
    )


def test_both_ends_of_a_stream_need_twenty_images() -> None:
    assert course(1.0, 0.5, 0.0, batch=20).alarm()
    assert course(1.0, 0.5, 0.0, batch=19).alarm() == ""


@each(
    "accuracies",
    [(0.06, 0.1, 0.2, 0.4, 0.6), (0.6, 0.6, 0.5, 0.55, 0.5), (0.72,) * 5, (0.1, 0.02, 0.0), (1.0,), ()],
)
def test_others_raise_none(accuracies: tuple[float, ...]) -> None:
    assert course(*accuracies).alarm() == ""


def test_chance_raises_none() -> None:
    for seed in range(200):
        right = np.random.default_rng(seed).random(300) < 0.5
        made = Course()
        for end in range(10, 301, 10):
            made.note(end, end, int(right[:end].sum()))
        assert made.alarm() == ""


def test_evaluate_marks_a_method_that_gets_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    with torch.no_grad():
        net[2].weight.copy_(torch.eye(3))  # type: ignore[operator]
    images = np.random.default_rng(0).integers(0, 256, (300, 1, 1, 3), np.uint8).repeat(4, 1).repeat(4, 2)
    labels = (images[:, 0, 0] + net[2].bias.detach().numpy() * 255).argmax(1)  # type: ignore[operator]
    adapted = ttabench.adapt(net, "source", image_size=4)
    assert ttabench.evaluate(adapted, images, labels, batch_size=30).alarm == ""
    calls: list[int] = []

    def worse(x: Tensor) -> Tensor:
        calls.append(len(x))
        logits = adapted.method.predict(x)
        return logits.roll(1, 1) if len(calls) > 5 else logits

    monkeypatch.setattr(type(adapted.method), "adapt", lambda _method, x: worse(x))
    alarm = ttabench.evaluate(adapted, images, labels, batch_size=30).alarm
    assert alarm.startswith("accuracy falls along the stream: ")
    calls.clear()
    by_class = ttabench.evaluate(adapted, images, labels, batch_size=30, order="dirichlet(0.1)")
    assert "accuracy falls" not in by_class.alarm  # later images may be of harder classes


def test_a_method_that_loses_more_than_half_of_what_source_has_is_marked() -> None:
    images = np.random.default_rng(0).integers(0, 256, (300, 2, 2, 3), np.uint8)

    def source(x: Tensor) -> Tensor:
        return x.mean((2, 3))  # the class is the brightest channel

    labels = images.mean((1, 2)).argmax(1)
    data, draw = Labelled(images, labels), np.random.default_rng(1).random(300)
    alarm = harm_alarm(source, data, draw < 0.2)
    assert alarm.startswith("harm: of 100 images that were looked at, ")
    assert "are right, and 100 without the method" in alarm
    assert harm_alarm(source, data, draw < 0.6) == ""
    assert harm_alarm(source, Labelled(images, (labels + 1) % 3), draw < 0.05) == ""  # Source is wrong too
    assert harm_alarm(source, data, draw[:5] < 0.2) == ""  # too few
    assert harm_alarm(source, data, np.zeros(16, bool)) == ""  # 16 is four standard errors, and no more
    assert harm_alarm(source, data, np.zeros(17, bool))
    two = Labelled(images, np.where(labels == 2, 0, labels))
    assert "harm" in harm_alarm(source, two, draw < 0.2, scored_classes=(0, 1))
