"""Whether gradients reach what learns: an error of memory is no answer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.conformance.nets import SIZE, ConvNet
from ttabench.models.soundness.gradient_flow import gradient_problem


class Net(ConvNet):
    problem = ""

    def forward(self, x: Tensor) -> Tensor:
        if self.problem and torch.is_grad_enabled():
            raise RuntimeError(self.problem)
        return super().forward(x)


def test_a_gpu_without_memory_is_not_said_to_give_no_gradients() -> None:
    net = Net(nn.BatchNorm2d)
    classifier = Classifier.wrap(net, image_size=SIZE)
    assert gradient_problem(classifier, SIZE) == ""
    net.problem = "element 0 of tensors does not require grad"
    assert gradient_problem(classifier, SIZE)
    net.problem = "CUDA error: out of memory"
    with pytest.raises(RuntimeError, match="out of memory"):
        gradient_problem(classifier, SIZE)
