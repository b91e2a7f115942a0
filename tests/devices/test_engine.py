"""Source training, evaluation, sweeps, the probe and the memory bank on an emulated second device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.devices.emulated import Emulated
from tests.one_set import evaluate
from tests.unit.models.training.test_training import TINY, Bars
from tests.unit.models_by_name import train
from ttabench.api.adapt import adapt
from ttabench.api.evaluate import evaluate as score
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.classifier.probe import probe
from ttabench.conformance.nets import SIZE, ConvNet, Transformer, images, nets
from ttabench.data.dataset import Labelled
from ttabench.errors import UserError
from ttabench.models.clean_accuracy import clean_accuracy
from ttabench.observe import cost
from ttabench_methods.quantile.bank import Bank, StreamBank
from ttabench_methods.source import Source
from ttabench_methods.tent import Tent

BATCH, BATCHES = 16, 4


@pytest.fixture
def gpu() -> Iterator[Emulated]:
    with Emulated() as emulated:
        yield emulated


def labelled() -> Labelled:
    n = BATCH * BATCHES
    pixels = (255 * images(n, seed=2)).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
    return Labelled(pixels, np.arange(n) % 5)


PROTOCOLS = {
    "online": Protocol(batch_size=BATCH),
    "offline": Protocol(mode="offline", batch_size=BATCH),
    "episodic": Protocol(batch_size=BATCH, reset="episodic"),
    "held out": Protocol(batch_size=BATCH, held_out=0.5),
    "contaminated": Protocol(batch_size=BATCH, contamination="noise(0.25)"),
    "dirichlet": Protocol(batch_size=BATCH, order="dirichlet(0.1)"),
    "bfloat16": Protocol(batch_size=BATCH, precision="bfloat16"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_evaluation_reads_each_batch_from_the_device_twice(gpu: Emulated, protocol: Protocol) -> None:
    """Are the logits finite, and which class is predicted? And three waits before clocks are read."""
    method = Tent(nets()["BN CNN"].to("cuda"))
    method.prepare()
    gpu.waits.clear()
    evaluate(method, labelled(), protocol, 0, "cuda")
    foreign = bool(protocol.contamination)  # their logits are left out of each batch
    assert len(gpu.waits) <= (2 + foreign) * (BATCHES + 2 * foreign) + 3, gpu.waits


def test_accuracies_are_those_of_the_host() -> None:
    def accuracies(device: str) -> tuple[float, float]:
        net = nets()["BN CNN"].to(device)
        method = Source(net)
        method.prepare()
        seen = evaluate(method, labelled(), Protocol(batch_size=BATCH), 0, device)
        return seen.accuracy, clean_accuracy(net, labelled(), device)

    with Emulated():
        there = accuracies("cuda")
    assert accuracies("cpu") == there


def test_half_precision_is_that_of_the_host() -> None:
    def logits(device: str) -> list[torch.Tensor]:
        method = Tent(nets()["BN CNN"].to(device))
        method.prepare()
        scored: list[torch.Tensor] = []
        protocol = Protocol(batch_size=BATCH, precision="bfloat16")
        evaluate(method, labelled(), protocol, 0, device, on_logits=lambda x: scored.append(x.to("cpu")))
        return scored

    with Emulated():
        there = logits("cuda")
    for here, moved in zip(logits("cpu"), there, strict=True):
        assert here.dtype == moved.dtype == torch.bfloat16
        torch.testing.assert_close(here, moved)


def test_source_is_timed_after_a_first_pass_that_loads_kernels(
    gpu: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass of a process on a GPU takes seconds, and would be stored as the time of every pass."""
    seconds = iter([3.0, *[0.04] * 9])
    now = 0.0
    net = nets()["BN CNN"].to("cuda")

    def classify(x: torch.Tensor) -> torch.Tensor:
        nonlocal now
        now += next(seconds)
        return net(x)

    monkeypatch.setattr(cost, "clock", lambda device: now)
    images = labelled().images[:4]
    assert cost.source_forward(classify, images, 4, "cuda") == pytest.approx(0.01)  # type: ignore[arg-type]


def test_images_that_were_left_on_the_host_are_one_sentence(gpu: Emulated) -> None:
    adapted = adapt(nets()["BN CNN"].to("cuda"), "tent", image_size=SIZE)
    x = torch.rand(4, 3, SIZE, SIZE)
    with pytest.raises(
        UserError, match=r"^images are on cpu, the network is on cuda:0; move one to the other\.$"
    ):
        adapted(x)
    assert adapted(x.to("cuda")).is_cuda


def test_labels_on_the_device_are_one_sentence(gpu: Emulated) -> None:
    adapted = adapt(nets()["BN CNN"].to("cuda"), "tent", image_size=SIZE)
    images = labelled().images
    labels = torch.arange(len(images)) % 5
    with pytest.raises(UserError, match=r"^labels are on cuda:0; pass labels\.cpu\(\)\.$"):
        score(adapted, images, labels.to("cuda"))  # type: ignore[arg-type]
    assert score(adapted, images, labels, batch_size=BATCH).correct.shape == (len(images),)  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", ["resnet18_w8", "cct_2"])
def test_a_source_classifier_is_trained(
    gpu: Emulated, arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "ttabench.models.training.weights_identity.recipe_for", lambda *_: replace(TINY, epochs=1)
    )
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("ttabench.models.training.train.REPORT_EVERY", 1e9)
    loaded = train(arch, Bars(), device="cuda", precision="float32")
    assert np.isfinite(loaded.clean_accuracy)
    in_steps = [wait for wait in gpu.waits if "training/train.py" in wait]
    assert len(in_steps) <= 1, in_steps  # the sums of an epoch


@pytest.mark.parametrize("arch", ["resnet18_w8", "cct_2"])
@pytest.mark.parametrize("recipe", ["fast", "paper"])
def test_the_network_of_every_recipe_is_compiled(
    gpu: Emulated, recipe: str, arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled: list[nn.Module] = []
    batches: list[int] = []

    def compiling(net: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        compiled.append(net)
        return lambda x: batches.append(len(x)) or net(x)

    monkeypatch.setattr(torch, "compile", compiling)
    monkeypatch.setattr("ttabench.models.training.train.find_spec", lambda name: name == "triton")
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    train(arch, Bars(), device="cuda", precision="float32", recipe=recipe, epochs=1)
    assert len(compiled) == 1
    assert len({*batches}) == 1  # another size would be compiled anew


@pytest.mark.parametrize("make", [lambda: ConvNet(nn.BatchNorm2d), Transformer], ids=["CNN", "ViT"])
def test_a_network_is_probed_where_it_is(gpu: Emulated, make: Callable[[], nn.Module]) -> None:
    net = make().eval()
    here = probe(net, SIZE)
    assert probe(net.to("cuda"), SIZE) == here
    assert Classifier.wrap(net, image_size=SIZE)(torch.rand(2, 3, SIZE, SIZE, device="cuda")).is_cuda


@pytest.mark.parametrize("beta", [1.0, 0.0, None], ids=["paper", "crude", "optimal"])
@pytest.mark.parametrize("home", ["cpu", "cuda"])
def test_the_memory_bank_keeps_features_where_it_is_told_to(
    gpu: Emulated, home: str, beta: float | None
) -> None:
    torch.manual_seed(0)
    points, features = (torch.randn(n, 6, device="cuda") for n in (5, 20))
    bank = Bank(points, features.to(home), beta=beta, every_step=True)
    for positions in torch.randperm(20).split(4):
        now = (features[positions] + 0.1).requires_grad_()
        estimate = bank.estimate(positions, now)
        estimate.square().sum().backward()
        assert estimate.is_cuda
        assert now.grad is not None
        assert now.grad.is_cuda
    bank.rebase()
    assert bank.features.device.type == home


def test_the_bank_of_a_stream_wraps_around(gpu: Emulated) -> None:
    bank = StreamBank(torch.randn(5, 6, device="cuda"), capacity=10)
    for _ in range(4):
        features = torch.randn(4, 6, device="cuda")
        assert bank.estimate(features).is_cuda
        bank.push(features)
    assert bank.size == 10
