"""The adapted network as an nn.Module, and evaluate on batches such as a DataLoader gives."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ttabench
from tests.unit.data_fakes import clean_images, labels_for
from ttabench.api.late_answer import LateAnswer
from ttabench.api.moving import moved_to

METHODS = ("tent", "cotta", "eata", "quantile", "rotta")


def adapted_by(method: str, net: nn.Module, x: Tensor) -> ttabench.Adapted:
    return ttabench.adapt(net, method, source=[x, x.flip(0)])


def tensors(thing: Any, seen: set[int]) -> Iterator[Tensor]:
    """Every tensor that can be reached from an object."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, dict):
        for part in thing.values():
            yield from tensors(part, seen)
    elif isinstance(thing, tuple | list | set):
        for part in thing:
            yield from tensors(part, seen)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        yield from tensors(vars(thing), seen)


@pytest.mark.parametrize("method", METHODS)
def test_a_loop_of_evaluation_changes_no_logits(method: str, net: nn.Module, x: Tensor) -> None:
    plain, used = adapted_by(method, net, x), adapted_by(method, net, x)
    around = nn.Sequential(used).to("cpu").eval()
    for _ in range(2):
        with torch.no_grad():
            assert torch.equal(plain(x), around(x))
        around.train()
        around.float()
    used.reset()
    plain.reset()
    assert torch.equal(plain(x), used(x))
    assert torch.equal(copy.deepcopy(used)(x), plain(x))


def test_one_thread_computes_gradients_that_would_overwrite_memory_in_several(x: Tensor) -> None:
    seen: set[int] = set()
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 1, stride=2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    net[2].register_full_backward_hook(lambda *_: seen.add(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        adapted = ttabench.adapt(net, "rmt", source=[x, x.flip(0)])
        adapted(x)
        ttabench.evaluate(adapted, clean_images(16), labels_for(16, 10))
        ttabench.adapt(net, "memo", views=2).predict(x[:1])  # by a step on its views
        assert (seen, torch.get_num_threads()) == ({1}, 4)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("method", METHODS)
def test_moving_takes_every_tensor_along_and_changes_none(method: str, net: nn.Module, x: Tensor) -> None:
    adapted = adapted_by(method, net, x)
    adapted(x)
    moved = moved_to(torch.device("cpu"), adapted.method)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        ours = adapted.method.adapt(x)
        torch.manual_seed(3)
        assert torch.equal(moved.adapt(x), ours)
    elsewhere = moved_to(torch.device("meta"), adapted.method)
    assert {tensor.device.type for tensor in tensors(elsewhere, set())} == {"meta"}
    adapted.to("meta")
    assert {parameter.device.type for parameter in adapted.parameters()} == {"meta"}


@pytest.mark.parametrize("method", METHODS)
def test_layers_that_made_the_images_learn_nothing(method: str, net: nn.Module, x: Tensor) -> None:
    before = nn.Conv2d(3, 3, 1)
    made = before(x).sigmoid()
    adapted, plain = adapted_by(method, net, made), adapted_by(method, net, made.detach())
    for _ in range(2):  # a graph can be gone through once
        assert torch.equal(adapted(made), plain(made.detach()))
    assert torch.equal(adapted.predict(made), plain.predict(made.detach()))
    assert before.weight.grad is None
    assert not adapted(made).requires_grad


def test_the_state_is_that_of_the_networks_as_they_are_now(net: nn.Module, x: Tensor) -> None:
    adapted = ttabench.adapt(net, "tent", lr=0.1)
    before = copy.deepcopy(adapted.state_dict())
    for _ in range(2):
        logits = adapted(x)
        adapted.reset()  # gives the method other networks
    adapted(x)
    learned = copy.deepcopy(adapted.state_dict())
    assert not torch.equal(before["model.net.1.weight"], learned["model.net.1.weight"])
    other = ttabench.adapt(net, "tent", lr=0.1)
    other.load_state_dict(learned)
    assert torch.equal(other.predict(x), adapted.predict(x))
    other.load_state_dict(before)
    assert torch.equal(other(x), logits)
    assert {name.split(".")[0] for name in adapted_by("cotta", net, x).state_dict()} >= {"model", "student"}


def test_logits_that_are_not_finite_are_refused_until_a_reset(net: nn.Module, x: Tensor) -> None:
    adapted = ttabench.adapt(net, "tent", lr=1e-3)
    first = adapted(x)
    learned = adapted.method.model.net[1].weight
    with torch.no_grad():
        learned.fill_(float("nan"))
    says = r"tent gives logits that are NaN or infinite for this batch: call reset\(\)"
    for used in (adapted, adapted.predict):
        with pytest.raises(ttabench.UserError, match=says):
            used(x)
    adapted.reset()
    assert torch.equal(adapted(x), first)


@pytest.mark.parametrize("fault", ["pixels", "logits"])
def test_where_the_host_does_not_wait_a_batch_is_refused_at_the_next_call(
    net: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    made = LateAnswer.__init__

    def on_a_gpu(self: LateAnswer, value: Tensor) -> None:
        made(self, value)
        self.late = True

    monkeypatch.setattr(LateAnswer, "__init__", on_a_gpu)
    adapted = ttabench.adapt(net, "tent", lr=1e-3)
    first = adapted(x)

    def fail() -> None:
        if fault == "logits":
            torch.nn.init.constant_(adapted.method.model.net[1].weight, float("nan"))
        adapted(x * float("nan") if fault == "pixels" else x)

    fail()
    copied = copy.deepcopy(adapted)
    for each in (adapted, copied):
        with pytest.raises(ttabench.UserError, match="batch before this one"):
            each(x)
    adapted.reset()
    assert torch.equal(adapted(x), first)
    fail()
    adapted.reset()  # what was learned from the batch is gone
    assert torch.equal(adapted(x), first)


def test_what_a_method_decides_is_refused(net: nn.Module, x: Tensor) -> None:
    adapted = ttabench.adapt(net, "tent")
    with pytest.raises(ttabench.UserError, match=r"convert the network to torch\.float64 before"):
        adapted.double()
    with pytest.raises(ttabench.UserError, match="decides which parameters learn"):
        adapted.requires_grad_(False)

    class Local(nn.Sequential):
        pass

    stuck = ttabench.adapt(Local(*net), "tent")
    with pytest.raises(ttabench.UserError, match=r"move the network there before ttabench\.adapt"):
        stuck.to("meta")


# ---- batches


@pytest.fixture
def images() -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (48, 32, 32, 3), dtype=np.uint8)


def loader(images: Any, labels: Any, **options: Any) -> DataLoader[Any]:
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255  # what ToTensor makes
    return DataLoader(TensorDataset(pixels, torch.as_tensor(labels)), batch_size=20, **options)


def test_a_loader_is_scored_as_its_arrays_are(net: nn.Module, images: Any) -> None:
    labels = np.arange(48) % 10
    adapted = ttabench.adapt(net, "tent", lr=0.1)
    arrays = ttabench.evaluate(adapted, images, labels, batch_size=16)
    state = torch.get_rng_state()
    batches = ttabench.evaluate(adapted, loader(images, labels), batch_size=16)
    assert torch.equal(state, torch.get_rng_state())
    assert batches.correct.tolist() == arrays.correct.tolist()
    whole = [(torch.from_numpy(images).permute(0, 3, 1, 2), labels.tolist())]
    assert ttabench.evaluate(adapted, whole, batch_size=16).correct.tolist() == arrays.correct.tolist()
    shuffled = loader(images, labels, shuffle=True)
    one, two = (ttabench.evaluate(adapted, shuffled, batch_size=16) for _ in range(2))
    assert one.correct.tolist() == two.correct.tolist()


def test_batches_that_cannot_be_scored_are_refused(net: nn.Module, images: Any) -> None:
    adapted = ttabench.adapt(net, "source")
    pixels = torch.rand(4, 3, 32, 32)
    bytes_ = (pixels * 255).round() / 255
    for given, says in (
        (images, "images without labels; expected batches"),
        (7, "images without labels; expected batches"),
        ([], "there are no images to score"),
        ([bytes_], "a batch is a Tensor; expected batches"),
        ([(pixels, [0] * 4)], "do not have pixels of 8 bits in [0, 1]: leave out Normalize"),
        ([((bytes_ - 0.5) / 0.25, [0] * 4)], "do not have pixels of 8 bits"),
        ([(bytes_ * float("nan"), [0] * 4)], "do not have pixels of 8 bits"),
        ([(bytes_[:, :1], [0] * 4)], "a batch of images is of shape (4, 1, 32, 32)"),
        ([(bytes_[..., :0], [0] * 4)], "images are 0×32 pixels; expected at least one pixel"),
        ([(bytes_[:0], [])], "labels of a batch are float64"),
        ([(bytes_[:0], torch.zeros(0, dtype=int))], "there are no images to score"),
        ([(bytes_, [0] * 3)], "a whole number for each of its 4 images"),
        ([(bytes_, [0.5] * 4)], "labels of a batch are float64"),
        ([(bytes_, [0] * 4), (bytes_[..., :16], [0] * 4)], "images have sizes"),
        ([(bytes_, [11] * 4)], "labels are from 11 to 11"),
    ):
        with pytest.raises(ttabench.UserError, match=re.escape(says)):
            ttabench.evaluate(adapted, given)
