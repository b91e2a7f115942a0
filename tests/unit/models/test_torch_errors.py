"""Errors of torch that have a meaning for a network and a method are said in a sentence."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ttabench.errors import UserError
from ttabench.measure.source_statistics import quantiles
from ttabench.models.returned_logits import as_classifier
from ttabench.models.soundness.torch_errors import explained


class Net(nn.Module):
    """Its first channel is constant: the weight of its norm layer is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm2d(3), nn.Linear(3, 2)
        with torch.no_grad():
            self.norm.weight[0] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(x).mean((2, 3)))  # type: ignore[no-any-return]


def test_quantiles_of_a_constant_channel() -> None:
    classifier = as_classifier(Net().eval(), 8, name="net")
    images = [torch.rand(4, 3, 8, 8)]
    with pytest.raises(UserError, match="has the same value on all source images"), explained():
        quantiles(classifier, lambda: iter(images), (0.5,))


def test_a_batch_of_one_image() -> None:
    with pytest.raises(UserError, match="a batch of one image has no variance"), explained():
        nn.BatchNorm2d(3)(torch.rand(1, 3, 1, 1))


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(ValueError, match="other"), explained():
        raise ValueError("other")
