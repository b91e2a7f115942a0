"""dirichlet(0): one class after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.one_set import evaluate
from tests.unit.data_fakes import clean_images
from ttabench.cell.protocol import Protocol
from ttabench.data.dataset import Labelled
from ttabench.measure.image_stream import class_by_class


def test_one_class_comes_after_the_other() -> None:
    labels = np.random.default_rng(0).integers(0, 7, 300)
    orders = [class_by_class(labels, seed) for seed in range(5)]
    for order in orders:
        assert sorted(order) == list(range(300))
        assert (np.diff(labels[order]) != 0).sum() == 6  # seven runs
    assert len({tuple(labels[order][np.flatnonzero(np.diff(labels[order]))]) for order in orders}) > 1
    assert (orders[0] == class_by_class(labels, 0)).all()
    assert not (np.diff(orders[0]) > 0).all()  # the members of a class are shuffled


class Noting:
    """A method that notes its images; it is right about the first half of the classes."""

    def __init__(self, labels_of: dict[bytes, int]) -> None:
        self.labels_of, self.seen, self.counts = labels_of, [], {}
        self.model = type("Model", (), {"num_classes": 4})()

    def adapt(self, x: torch.Tensor) -> torch.Tensor:
        images = (x.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
        labels = [self.labels_of[image.tobytes()] for image in images]
        self.seen += labels
        predicted = torch.tensor([label if label < 2 else (label + 1) % 4 for label in labels])
        return torch.nn.functional.one_hot(predicted, 4).float()


def test_images_come_class_by_class_and_correctness_is_in_the_order_of_the_test_set() -> None:
    images, labels = clean_images(40), np.random.default_rng(1).integers(0, 4, 40)
    method = Noting({image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)})
    protocol = Protocol(order="dirichlet(0)", batch_size=7)
    found = evaluate(method, Labelled(images, labels), protocol, 3)
    assert (np.diff(method.seen) != 0).sum() == 3
    assert (found.correct == (labels < 2)).all()


@pytest.mark.parametrize("other", [{"stream": "gradual"}, {"contamination": "noise(0.2)"}, {"held_out": 0.5}])
def test_it_goes_with_nothing_that_has_an_order_of_its_own(other: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="one class after the other"):
        Protocol(order="dirichlet(0)", **other)  # type: ignore[arg-type]
