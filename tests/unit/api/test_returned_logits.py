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


class Deep(nn.Module):
    """A hidden and a last linear layer, and one that never runs; `end` as above."""

    def __init__(self, hidden: int, end: Any = None) -> None:
        super().__init__()
        self.hidden, self.fc, self.idle = nn.Linear(192, hidden), nn.Linear(hidden, 4), nn.Linear(192, 4)
        self.end = end

    def forward(self, x: Tensor) -> Any:
        logits = self.fc(self.hidden(x.flatten(1)).relu())
        return self.end(logits) if self.end else logits


NAMED = {
    "layer 'hidden' of Deep does not make the logits, layer 'fc' does: last='fc'": (4, "hidden", None),
    "layer 'hidden' of Deep has 7 outputs, and Deep returns 4 logits": (7, "hidden", lambda x: 3 * x),
    "layer 'fc' of Deep has 4 outputs, and Deep returns 2 logits": (7, "fc", lambda x: x[:, :2]),
    "layer 'idle' of Deep does not run; name the linear layer": (7, "idle", None),
    "Deep changes the order of the outputs of layer 'fc'": (7, "fc", lambda x: x[:, [1, 0, 2, 3]]),
    "Deep changes the order of the outputs": (7, "fc", lambda x: x - x.mean(0)),
}


@each("says", NAMED)
def test_a_layer_that_does_not_make_the_logits_is_not_the_last_one(says: str) -> None:
    hidden, last, end = NAMED[says]
    with pytest.raises(UserError, match=says):
        ttabench.adapt(Classifier(Deep(hidden, end), last=last), "source", image_size=8)


class Tokens(nn.Module):
    """A layer that classifies each column of an image, whose mean is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1, 2).transpose(1, 2)).mean(1)


def test_a_layer_that_classifies_parts_of_an_image_is_not_the_last_one() -> None:
    with pytest.raises(UserError, match=r"shape \(2, 8, 4\) for 2 images; expected \(2, 4\)"):
        ttabench.adapt(Classifier(Tokens(), last="fc"), "source", image_size=8)


ENDS = {
    "none": None,
    "temperature": lambda x: x / 2,
    "log-softmax": lambda x: x.log_softmax(1),
    "soft cap": lambda x: 5 * (x / 5).tanh(),
}


@each("end", [*ENDS.values()], ids=[*ENDS])
def test_what_follows_the_last_layer_may_change_its_values(end: Any) -> None:
    adapted = ttabench.adapt(Classifier(Deep(7, end), last="fc").train(), "source", image_size=8)
    assert adapted(torch.rand(2, 3, 8, 8)).shape == (2, 4)


def test_the_python_interface_says_what_is_returned_of_a_classifier_too() -> None:
    with pytest.raises(UserError, match="Net returns a value of type tuple"):
        ttabench.adapt(Classifier(Net(lambda x: (x, x)), last="fc"), "source", image_size=8)
