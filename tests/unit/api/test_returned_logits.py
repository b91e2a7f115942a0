"""Networks of the user that return something other than logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttabench
from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.models.returned_logits import as_classifier


class Net(nn.Module):
    """A linear network; what it returns of its logits is up to `end`."""

    def __init__(self, end: Any = None) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(3 * 8 * 8, 4)
        self.end = end

    def forward(self, x: Tensor) -> Any:
        logits = self.fc(self.drop(x.flatten(1)))
        return self.end(logits) if self.end else logits


WRONG = {
    "returns a value of type tuple; expected logits": lambda logits: (logits, logits),
    "returns a value of type dict; expected logits": lambda logits: {"logits": logits},
    r"returns a tensor of shape \(2,\) for 2 images": lambda logits: logits.argmax(1),
    "returns probabilities; .* leave out the softmax": lambda logits: logits.softmax(1),
    "returns probabilities; .* leave out": lambda logits: logits.softmax(1).bfloat16(),
}


@each("says", WRONG)
@each("wrapped", [False, True])
def test_what_is_returned_is_named(says: str, wrapped: bool) -> None:
    net: nn.Module = Net(WRONG[says])
    with pytest.raises(UserError, match=f"mine:net {says}"):
        as_classifier(Classifier(net, last="fc") if wrapped else net, 8, name="mine:net")


def test_the_python_interface_says_the_same() -> None:
    with pytest.raises(UserError, match="Net returns a value of type tuple"):
        ttabench.adapt(Net(WRONG["returns a value of type tuple; expected logits"]), "source", image_size=8)


def test_logits_of_any_values_pass() -> None:
    scaled = Classifier(Net(lambda logits: 3 * logits), last="fc")
    assert as_classifier(scaled, 8, name="mine:net") is scaled
    assert (
        as_classifier(Classifier(Net(lambda x: x.log_softmax(1)), last="fc"), 8, name="mine:net").last == "fc"
    )
    assert as_classifier(Net(), 8, mean=(0.5,) * 3, name="mine:net").normalize.mean.flatten()[0] == 0.5


def test_other_outputs_keep_the_answer_about_the_last_layer() -> None:
    with pytest.raises(UserError, match="Net does not end in a linear layer"):
        as_classifier(Net(lambda logits: 3 * logits), 8, name="mine:net")


def test_the_trial_changes_neither_the_network_nor_the_random_numbers() -> None:
    net = Classifier(Net(), last="fc").train()
    net.net.drop.eval()
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    as_classifier(net, 8, name="mine:net")
    assert torch.equal(torch.rand(1), expected)
    assert net.training
    assert not net.net.drop.training
