from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader

import ttabench
from tests.cases import each
from tests.one_set import evaluate
from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS
from ttabench.data.dataset import Labelled
from ttabench.method import Method, NoConfig
from ttabench.models.resolve import resolve_model
from ttabench.nn.pixels import to_tensor
from ttabench.public_names import HOMES
from ttabench.store import Store
from ttabench_methods.tent import Tent

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"


def test_every_public_name_is_there_and_nothing_else_is_promised() -> None:
    for name in ttabench.__all__:
        assert getattr(ttabench, name).__doc__, name
    assert set(ttabench.__all__) == set(HOMES)
    with pytest.raises(AttributeError, match="no attribute 'adpat'"):
        ttabench.adpat  # type: ignore[attr-defined]  # noqa: B018


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    exec("\n".join(blocks), {})


def test_the_network_is_never_changed_and_adapts_as_the_method_does(net: nn.Module, x: Tensor) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    adapted = ttabench.adapt(net, "tent", lr=0.1)
    first = adapted(x)
    second = adapted(x)
    assert not torch.equal(first, second)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    adapted.reset()
    assert torch.equal(adapted(x), first)


def test_normalisation_is_inside(net: nn.Module, x: Tensor) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    adapted = ttabench.adapt(net, "source", mean=mean, std=std)
    normalised = (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(adapted(x), net.eval()(normalised))


def test_settings_and_those_of_the_dataset_reach_the_method(net: nn.Module) -> None:
    assert ttabench.adapt(net, "tent", lr=0.25).method.config.lr == 0.25
    assert ttabench.adapt(net, "tent", lr=1 / 3).method.config.lr == 1 / 3  # every digit
    size = np.array([32])[0]  # a number of NumPy
    assert ttabench.adapt(net, "cotta", image_size=size).method.config.threshold == 0.92
    wide = nn.Sequential(*list(net)[:-1], nn.Linear(8, 100))
    assert ttabench.adapt(wide, "cotta", dataset="cifar100-c").method.config.threshold == 0.72
    source = [torch.rand(8, 3, 32, 32)]
    rates = [
        ttabench.adapt(net, "actmad", dataset=name, source=source).method.config.lr
        for name in ("cifar10-c", "digits-c", "digits-c[100]")
    ]
    assert rates == [1e-2, 1e-4, 1e-4]


@each(
    ("method", "options", "says"),
    [
        ("tnet", {}, "unknown method 'tnet'; did you mean"),
        ("tent", {"ler": 1}, "unknown setting of tent 'ler'; did you mean 'lr'"),
        ("tent", {"lr": -1.0}, "lr is -1.0"),
        ("eata", {}, "eata needs source images: pass source="),
        ("foa", {"source": [torch.rand(4, 3, 32, 32)]}, "foa cannot run on Sequential: not a transformer"),
        ("eata", {"source": [torch.rand(4, 3, 32, 32) * 255]}, r"source images have values outside \[0, 1\]"),
        ("eata", {"source": []}, "source holds no images"),
        ("eata", {"source": [np.zeros((4, 32, 32, 3))]}, "a batch of source images is ndarray"),
        ("eata", {"source": 3}, "source is of type int; expected batches of source images"),
        ("tent", {"image_size": "32"}, "image_size='32': expected the side of the images"),
        ("tent", {"image_size": -2}, "image_size=-2: expected the side of the images"),
        ("tent", {"mean": (0.5, 0.5)}, r"mean=\(0.5, 0.5\): expected three numbers"),
        ("tent", {"std": (0.2, 0.2, 0.0)}, "expected three numbers, one per channel, above 0"),
        ("tent", {"std": "a"}, "std='a': expected three numbers"),
        (
            "tent",
            {"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375)},
            r"divide both by 255: mean=\(0.485, 0.456, 0.406\), std=\(0.229, 0.224, 0.225\)",
        ),
        ("tent", {"mean": 127.5, "std": 127.5}, r"divide both by 255: mean=\(0.5, 0.5, 0.5\), std=\(0.5"),
        ("tent", {"std": (58.4, 57.1, 57.4)}, "are for pixels of 0 to 255"),
        ("tent", {"dataset": object()}, "dataset is of type object; expected its name, e.g. cifar100-c"),
        ("tent", {"seed": -1}, "seed=-1: expected a whole number, 0 or larger"),
        ("tent", {"seed": "x"}, "seed='x': expected a whole number"),
        ("tent", {"seed": 2**64}, r"seed=18446744073709551616: expected .* below 2\*\*64"),
        ("eata", {"source": [[]]}, "a batch of source images is an empty list"),
        (
            "eata",
            {"source": [torch.rand(2, 3, 32, 32), torch.rand(2, 3, 16, 16)]},
            r"source images have sizes \(16, 16\) and \(32, 32\); expected one size",
        ),
    ],
)
def test_mistakes_are_one_sentence(
    net: nn.Module, method: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.adapt(net, method, **options)  # type: ignore[arg-type]


def test_source_images_of_another_size_than_the_images_are_a_warning(net: nn.Module) -> None:
    """Once, and only where a method has read them."""
    images, small = torch.rand(4, 3, 32, 32), [torch.rand(8, 3, 24, 24)]
    says = "source images have 24×24 pixels and these images 32×32: what coral knows of the source"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for method in ("coral", "tent"):
            adapted = ttabench.adapt(net, method, source=small)
            adapted(images), adapted(images)
        ttabench.adapt(net, "coral", source=[images])(images)
    assert [str(each.message).startswith(says) for each in caught] == [True]


def test_labels_in_a_loader_are_not_read(net: nn.Module, x: Tensor) -> None:
    class Trap:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError("labels were read")

    with_labels = ttabench.adapt(net, "eata", source=[(x, Trap())])
    assert torch.equal(with_labels(x), ttabench.adapt(net, "eata", source=[x])(x))


def test_a_loader_leaves_the_draws_of_a_method_as_a_list_of_its_batches_does(
    net: nn.Module, x: Tensor
) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), 8)
    states = []
    for source in (loader, [x[:8], x[8:]]):
        ttabench.adapt(net, "quantile", source=source, seed=1)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_only_the_scored_classes_are_chosen(net: nn.Module) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    adapted = ttabench.adapt(net, "source")
    labels = np.full(40, 7)
    assert ttabench.evaluate(adapted, images, labels, scored_classes=(7,)).accuracy == 100
    assert ttabench.evaluate(adapted, images, labels).accuracy < 100
    wrong: Any
    for wrong, says in (
        ((10,), "10 classes"), ((3,), "labels"), ((7, 7), "more than once"), ((7.5,), "whole numbers"),
        ("7", "whole numbers"),
    ):  # fmt: skip
        with pytest.raises(ttabench.UserError, match=says):
            ttabench.evaluate(adapted, images, labels, scored_classes=wrong)


def test_a_precision_that_the_device_does_not_have_is_refused_as_in_a_sweep(net: nn.Module) -> None:
    with pytest.raises(ttabench.UserError, match="precision tf32 is for NVIDIA GPUs; on cpu, use float32"):
        ttabench.evaluate(ttabench.adapt(net, "source"), IMAGES, np.zeros(2, np.int64), precision="tf32")


def test_a_score_depends_on_its_seed_and_not_on_what_was_adapted_to_before(net: nn.Module, x: Tensor) -> None:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    images = (images * draw.random((60, 1, 1, 3))).astype(np.uint8)  # of many colours
    labels = ttabench.adapt(net, "tent").predict(to_tensor(images)).argmax(1).numpy()

    def right(seed: int, before: int = 0) -> list[bool]:
        adapted = ttabench.adapt(net, "tent", lr=0.5)
        for _ in range(before):
            adapted(x)
        return ttabench.evaluate(adapted, images, labels, seed=seed, batch_size=10).correct.tolist()

    as_in_a_sweep = ttabench.adapt(net, "tent", lr=0.5).method
    scored = evaluate(as_in_a_sweep, Labelled(images, labels), ttabench.Protocol(batch_size=10), 3)
    assert right(3) == right(3, before=4) == scored.correct.tolist() != right(0)


def test_order_dirichlet_0_is_one_class_after_the_other(net: nn.Module) -> None:
    labels = np.random.default_rng(0).integers(0, 8, 30)
    images = np.broadcast_to(labels.astype(np.uint8)[:, None, None, None], (30, 32, 32, 3))
    seen: list[Tensor] = []

    class Spy(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x[:, 0, 0, 0])
            return super().forward(x)

    adapted = ttabench.adapt(Spy(*net), "source")
    seen.clear()
    ttabench.evaluate(adapted, images, labels, order="dirichlet(0)", batch_size=7)
    of_images = torch.cat(seen).mul(255).round()
    assert len(of_images) == 30
    assert len(of_images.unique_consecutive()) == len(np.unique(labels))


def test_what_a_method_draws_depends_on_the_seed_of_adapt(net: nn.Module, x: Tensor) -> None:
    def logits(seed: int) -> Tensor:
        adapted = ttabench.adapt(net, "cotta", restore=0.5, lr=0.5, seed=seed)
        adapted(x)
        return adapted(x)

    assert torch.equal(logits(1), logits(1))
    assert not torch.equal(logits(1), logits(0))


def test_the_batch_size_is_that_of_the_mode_that_is_asked_for(
    net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    adapt = Tent.adapt
    monkeypatch.setattr(Tent, "adapt", lambda self, x: (sizes.append(len(x)), adapt(self, x))[1])
    monkeypatch.setattr(Tent, "mode", "offline")
    monkeypatch.setattr(Tent, "online_batch_size", 16)
    images, labels = np.zeros((40, 32, 32, 3), np.uint8), np.zeros(40, int)
    ttabench.evaluate(ttabench.adapt(net, "tent"), images, labels, mode="online")
    assert sizes == [16, 16, 8]


def test_a_score_is_printed_in_one_line(net: nn.Module) -> None:
    images, labels = np.zeros((2_000, 32, 32, 3), np.uint8), np.full(2_000, 3)
    labels[:500] = 4
    with torch.no_grad():
        net[-1].bias.copy_(torch.eye(10)[3] * 100)  # type: ignore[index]
    result = ttabench.evaluate(ttabench.adapt(net, "source"), images, labels)
    assert isinstance(result, ttabench.Evaluation)
    start = f"Evaluation(75.00 %, 1,500 of 2,000 images right, {result.seconds:.1f} s"
    assert str(result).startswith(start)
    assert result.alarm
    assert str(result) == f"{start}, alarm: {result.alarm})"


def test_a_score_is_that_of_the_sweep(net: nn.Module) -> None:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    adapted = ttabench.adapt(net, "source")
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    labels = adapted.predict(x).argmax(1).numpy()
    labels[:10] = (labels[:10] + 1) % 10
    result = ttabench.evaluate(adapted, images, labels, batch_size=16)
    assert result.accuracy == 75.0
    assert not result.correct[:10].any()
    with pytest.raises(ttabench.UserError, match="order is 'sorted'"):
        ttabench.evaluate(adapted, images, labels, order="sorted")


@each(
    ("images", "labels", "protocol", "says"),
    [
        (np.zeros((4, 32, 32, 3)), [0] * 4, {}, "images are float64; expected uint8: pixels of 0 to 255"),
        (DataLoader([1]), [0] * 4, {}, "images are DataLoader; .* and then no labels beside them"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0.5] * 4, {}, "labels are float64; expected whole numbers"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0, 1, 2, 10], {}, "labels are from 0 to 10; the network"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0, 1, 2, -1], {}, "labels are from -1 to 2; the network"),
        (np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, int), {}, "there are no images to score"),
        (np.zeros((4, 0, 0, 3), np.uint8), [0] * 4, {}, "images are 0×0 pixels; expected at least one"),
        (np.zeros((4, 0, 32, 3), np.uint8), [0] * 4, {}, "images are 32×0 pixels"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"batchsize": 2}, "did you mean 'batch_size'"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"batch_size": "2"}, "wrong type: batch_size='2'"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"batch_size": 2.5}, "wrong type: batch_size=2.5"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"limit": 5}, "limit=5, but there are 4 images"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"seed": -1}, "seed=-1: expected a whole number"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"reset": "continual"}, "reset continual goes on"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"pace": 2.0}, "pace needs pace_ratio"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"stream": "mixed"}, "stream='mixed': a stream is"),
        (np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, {"stream": "gradual"}, "use ttabench.run_sweep for it"),
        (np.full((4, 32, 32, 3), 300, np.uint16), [0] * 4, {}, "images are uint16; expected uint8"),
        ([[1], [1, 2]], [0] * 4, {}, "images do not have one shape"),
        (np.zeros((4, 3, 32, 32), np.uint8), [0] * 4, {}, "Channels first: images.transpose"),
        (np.zeros((4, 32, 32), np.uint8), [0] * 4, {}, "Gray images: numpy.stack"),
        (np.zeros((4, 32, 32, 3), bool), [0] * 4, {}, "images are bool; expected uint8"),
        (np.zeros((4, 32, 32, 3), np.uint8), [True] * 4, {}, "labels are bool; expected whole numbers"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_refused(
    net: nn.Module, images: object, labels: object, protocol: dict[str, object], says: str
) -> None:
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.evaluate(ttabench.adapt(net, "source"), images, labels, **protocol)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "protocol", "why"),
    [
        ("bn_stats", {"pace_ratio": 3.0}, "all its work is part of each prediction"),
        ("lame", {"pace_ratio": 3.0}, "all its work is part of each prediction"),
        ("tent", {"pace_ratio": 3.0, "mode": "offline"}, "an offline method sees all images"),
    ],
)
def test_a_pace_that_changes_nothing_is_refused_as_in_a_sweep(
    net: nn.Module, method: str, protocol: dict[str, Any], why: str
) -> None:
    adapted, images, labels = ttabench.adapt(net, method), np.zeros((4, 32, 32, 3), np.uint8), [0] * 4
    with pytest.raises(ttabench.UserError, match=f"{method} cannot have pace 1: {why}"):
        ttabench.evaluate(adapted, images, labels, pace=1.0, **protocol)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (torch.full((4, 3, 32, 32), 200.0), r"images have values outside \[0, 1\]"),
        (torch.full((4, 3, 32, 32), float("nan")), r"images have values outside \[0, 1\] or NaN"),
        (torch.rand(4, 3, 32, 32).double(), "images are torch.float64, the network is torch.float32"),
        (torch.rand(4, 1, 32, 32), r"a batch of images is torch.float32 of shape \(4, 1, 32, 32\)"),
        (torch.zeros(4, 3, 32, 32, dtype=torch.uint8), "a batch of images is torch.uint8"),
        (np.zeros((4, 3, 32, 32)), "a batch of images is ndarray; expected a tensor"),
    ],
)
def test_a_batch_that_is_no_images_in_0_to_1_is_refused(net: nn.Module, batch: object, says: str) -> None:
    adapted = ttabench.adapt(net, "tent")
    with pytest.raises(ttabench.UserError, match=says):
        adapted(batch)  # type: ignore[arg-type]
    with pytest.raises(ttabench.UserError, match=says):
        adapted.predict(batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["folder", "draw"])
def test_any_foreign_set_of_a_sweep_contaminates_a_stream(
    net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Their names have dots and brackets, which the measuring code does not read."""
    size = 32 if kind == "folder" else ttabench.get_dataset("digits-c").image_size
    folder = tmp_path / "Textures v1.2"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(np.full((size, size, 3), 50 * number, np.uint8)).save(folder / f"{number}.png")
    images, labels = np.zeros((8, size, size, 3), np.uint8), [0, 1] * 4
    seen: list[int] = []
    adapt = Tent.adapt
    monkeypatch.setattr(Tent, "adapt", lambda self, x: (seen.append(len(x)), adapt(self, x))[1])
    name = str(folder) if kind == "folder" else "digits-c[100]"
    result = ttabench.evaluate(
        ttabench.adapt(net, "tent"), images, labels, contamination=f"{name}(0.50)", batch_size=4
    )
    assert (sum(seen), len(result.correct)) == (16, 8)
    with pytest.raises(ttabench.UserError, match=f"those of the stream {size + 1}; contaminate with"):
        ttabench.evaluate(
            ttabench.adapt(net, "tent"),
            np.zeros((8, size, size + 1, 3), np.uint8),
            labels,
            contamination=f"{name}(0.5)",
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("./no folder/(0.2)", "there is no folder ./no folder/."),
        ("nothing-c(0.2)", "unknown contamination 'nothing-c'"),
        ("noise(1.2)", "expected NAME"),
        ("noise(0.005)", r"noise\(0.005\) adds no image to a stream of 8 images; give a larger share"),
        (3, "wrong type: contamination=3"),
    ],
)
def test_what_contaminates_no_stream_is_refused(net: nn.Module, text: Any, says: str) -> None:
    images, labels = np.zeros((8, 32, 32, 3), np.uint8), [0, 1] * 4
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.evaluate(ttabench.adapt(net, "tent"), images, labels, contamination=text)


def test_a_network_with_one_output_is_refused() -> None:
    one = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1))
    with pytest.raises(ttabench.UserError, match="Sequential has one output; expected one for each class"):
        ttabench.adapt(one, "source")


def test_pixels_that_were_divided_by_255_twice_are_warned_of_once(net: nn.Module, x: Tensor) -> None:
    adapted = ttabench.adapt(net, "tent")
    with pytest.warns(UserWarning, match=r"images have no value above 0\.0039: .* divided by 255 twice"):
        adapted(x / 255)
    with warnings.catch_warnings(action="error"):
        adapted(x / 255)
        ttabench.adapt(net, "tent")(x)
        ttabench.adapt(net, "tent")(0 * x)
    with pytest.warns(UserWarning, match="source images have no value above"):
        ttabench.adapt(net, "eata", source=[x / 255])


def test_what_is_no_network_or_no_name_is_refused(net: nn.Module) -> None:
    with pytest.raises(ttabench.UserError, match="model is of type str; expected"):
        ttabench.adapt("resnet18", "tent")  # type: ignore[arg-type]
    with pytest.raises(ttabench.UserError, match="method is of type int; expected"):
        ttabench.adapt(net, 3)  # type: ignore[arg-type]
    with pytest.raises(ttabench.UserError, match=r"'tent\[lr=1\]': settings are arguments here"):
        ttabench.adapt(net, "tent[lr=1]")
    with pytest.raises(ttabench.UserError, match="evaluate got a Sequential; expected what"):
        ttabench.evaluate(net, np.zeros((1, 32, 32, 3), np.uint8), [0])  # type: ignore[arg-type]
    with pytest.raises(ttabench.UserError, match="load_results got a NoneType; expected the path"):
        ttabench.load_results(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_network_without_finite_weights_is_refused(net: nn.Sequential, value: float) -> None:
    torch.nn.init.constant_(net[0].bias, value)  # type: ignore[arg-type]
    with pytest.raises(ttabench.UserError, match=r"weights that are NaN or infinite, first in 0\.bias"):
        ttabench.adapt(net, "tent")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"archs": [nn.Linear(2, 2)]}, "archs holds a Linear; .* package.module:callable"),
        ({"archs": nn.Sequential()}, "archs holds a Sequential"),
        ({"methods": [nn.Module]}, "methods holds the class Module; .* name of its entry point"),
        ({"datasets": [np.zeros(3)]}, "datasets holds a ndarray; .* -C folder"),
        ({"config": {"limit": 20}}, "config is of type dict; expected a path"),
        ({"out": 5}, "out is of type int; expected a path"),
        ({"set": 5}, "the settings are 5; expected .* or texts"),
        ({"set": [("tent.lr", 0.1)]}, "the settings are .* expected .* or texts"),
    ],
)
def test_objects_in_place_of_names_and_paths_are_one_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.run_sweep(**{"methods": ["source"], "corruptions": "fog", **options})


@pytest.mark.parametrize("lr", [0.5, [0.5], (0.5,), "0.5"])
def test_settings_are_tables_as_in_a_sweep_file(tmp_path: Path, lr: object) -> None:
    cells = ttabench.run_sweep(
        "tent",
        "resnet18",
        set={"tent": {"lr": lr}},
        corruptions="fog",
        limit=20,
        workers=0,
        out=tmp_path / "r",
    )
    assert set(cells["method"]) == {"source", "tent[lr=0.5]"}


def test_a_table_of_settings_has_a_table_for_each_method(tmp_path: Path) -> None:
    with pytest.raises(ttabench.UserError, match=r"the settings of tent are 0.5; expected a table"):
        ttabench.run_sweep("tent", "resnet18", set={"tent": 0.5}, out=tmp_path / "r")


def test_a_sweep_file_and_arguments_that_win_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my.toml"
    file.write_text(
        f'methods = ["bn_stats", "tent"]\narchs = ["resnet18"]\ncorruptions = ["fog"]\nlimit = 9\n'
        f'out = "{tmp_path}/from-file"\nworkers = 0\n[set.tent]\nlr = 0.5\n'
    )
    cells = ttabench.run_sweep("tent", config=file, limit=20)
    assert set(cells["method"]) == {"source", "tent[lr=0.5]"}
    assert set(cells["corruption"]) == {"fog"}
    assert set(cells["arch"]) == {"resnet18"}
    assert set(cells["limit"]) == {20}
    assert len(ttabench.load_results(tmp_path / "from-file")) == 2
    err = capsys.readouterr().err
    assert "--methods tent replaces methods = bn_stats,tent." in err
    assert "--limit 20 replaces limit = 9." in err
    with pytest.raises(ttabench.UserError, match="unknown option of run_sweep 'limt'; did you mean 'limit'"):
        ttabench.run_sweep(config=file, limt=1)
    with pytest.raises(ttabench.UserError, match="cannot be read"):
        ttabench.run_sweep(config=tmp_path / "nowhere.toml")


def test_the_corruptions_of_cifar10_c_bar_are_listed_and_run() -> None:
    assert ttabench.list_corruptions()[-10:] == list(BAR_CORRUPTIONS)
    images = np.zeros((2, 32, 32, 3), np.uint8)
    assert (ttabench.corrupt(images, "brownish_noise", 5) != images).any()


def test_a_program_and_a_method_draw_from_generators_of_their_own(net: nn.Module, x: Tensor) -> None:
    def run(*, draws: int) -> tuple[Tensor, Tensor]:
        """Logits of CoTTA, and what the program draws after it; the program draws between the batches too."""
        torch.manual_seed(5)
        adapted = ttabench.adapt(net, "cotta", seed=3, views=2)
        for _ in range(2):
            torch.rand(draws)
            logits = adapted(x)
        ttabench.evaluate(adapted, np.zeros((4, 32, 32, 3), np.uint8), [0] * 4)
        return logits, torch.rand(3)

    (one, after), (other, _) = run(draws=0), run(draws=7)
    assert torch.equal(one, other)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))


class Drawing(Method[NoConfig]):
    """Draws from Python's and NumPy's generators, as some official code does."""

    name = "drawing"

    def setup(self, source: object) -> None:
        self.drawn = [random.random(), np.random.rand()]  # noqa: NPY002

    def adapt(self, x: Tensor) -> Tensor:
        self.drawn = [*self.drawn, random.random(), np.random.rand()]  # noqa: NPY002
        return self.predict(x)


def test_the_seed_decides_draws_of_other_generators_too(
    net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.api.adapt.get_method", lambda name: Drawing)

    def drawn(seed: int) -> list[float]:
        adapted = ttabench.adapt(net, "drawing", seed=seed)
        random.random()
        np.random.rand()  # noqa: NPY002
        ttabench.evaluate(adapted, np.zeros((4, 32, 32, 3), np.uint8), [0] * 4, seed=seed)
        return [*adapted.method.drawn]

    assert drawn(0) == drawn(0)
    assert not set(drawn(0)) & set(drawn(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_evaluate_says_which_networks_it_takes(net: nn.Module, dtype: torch.dtype) -> None:
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.zeros(4, np.int64)
    adapted = ttabench.adapt(net.to(dtype), "source", image_size=8)
    with pytest.raises(ttabench.UserError, match=f"the network is {dtype}, .* convert the network"):
        ttabench.evaluate(adapted, images, labels)
    adapted = ttabench.adapt(net.float(), "source", image_size=8)
    assert ttabench.evaluate(adapted, images, labels, precision="bfloat16").accuracy in (0.0, 100.0)


def test_short_types_of_numbers_have_a_warning_where_they_learn(net: nn.Module) -> None:
    with pytest.warns(UserWarning, match=r"tent: adapted .* torch.bfloat16, .* updates away; .*\.$"):
        ttabench.adapt(net.bfloat16(), "tent")
    with warnings.catch_warnings(action="error"):
        ttabench.adapt(net, "source")
        ttabench.adapt(net.double(), "tent")


IMAGES = np.zeros((2, 32, 32, 3), np.uint8)


@each(
    ("arguments", "says"),
    [
        ((IMAGES.tolist(), "fog", 3), "images are of type list; expected a NumPy array"),
        ((torch.zeros(2, 32, 32, 3), "fog", 3), "images are of type Tensor; expected a NumPy array"),
        ((IMAGES.transpose(0, 3, 1, 2), "fog", 3), r"expected N×H×W×3: use images\.transpose\(0, 2, 3, 1\)"),
        ((IMAGES, None, 3), "corruption is of type NoneType; expected a name"),
        ((IMAGES, "fog", "3"), "severity='3': expected a whole number, 1 to 5"),
        ((IMAGES, "fog", 2.0), "severity=2.0: expected a whole number, 1 to 5"),
        ((IMAGES, "fog", True), "severity=True: expected a whole number, 1 to 5"),
        ((IMAGES, "fog", 6), "severity 6 of fog; expected an integer"),
        ((IMAGES, "fog", 3, "a"), "seed='a': expected a whole number"),
        ((IMAGES, "fog", 3, -1), "seed=-1: expected a whole number"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.corrupt(*arguments)


def test_a_dataset_has_a_name_or_a_path(tmp_path: Path) -> None:
    with pytest.raises(ttabench.UserError, match="dataset is of type int; expected a name or a path"):
        ttabench.get_dataset(3)  # type: ignore[arg-type]
    with pytest.raises(ttabench.UserError, match="missing-C"):
        ttabench.get_dataset(tmp_path / "missing-C")


def test_adapt_and_evaluate_give_the_numbers_of_a_sweep(tmp_path: Path) -> None:
    data = ttabench.get_dataset("digits-c")
    net, fog = resolve_model("resnet18", data).load().classifier, data.corrupted("fog", 5)
    ttabench.run_sweep(
        "quantile[size=small]", ["resnet18"], corruptions="fog", seeds="3", limit=30, workers=0,
        out=tmp_path / "results",
    )  # fmt: skip
    latest = Store.at(tmp_path / "results").latest().values()
    (stored,) = [record.result for record in latest if record.result.cell.method == "quantile"]
    source = [to_tensor(data.train().images)]
    adapted = ttabench.adapt(net, "quantile", source=source, dataset="digits-c", seed=3, size="small")
    done = ttabench.evaluate(adapted, fog.images, fog.labels, seed=3, limit=30)
    assert np.packbits(done.correct).tobytes() == stored.correct
    assert adapted.method.alarms()["quantile_loss"] == stored.details["quantile_loss"]


def test_at_another_batch_size_the_rate_of_a_sweep_is_named_and_gives_its_number(tmp_path: Path) -> None:
    data = ttabench.get_dataset("digits-c")
    net, fog = resolve_model("resnet18", data).load().classifier, data.corrupted("fog", 5)
    cells = ttabench.run_sweep(
        "tent,eata", ["resnet18"], corruptions="fog", batch_size=16, limit=64, workers=0,
        out=tmp_path / "results",
    )  # fmt: skip
    accuracy = dict(zip(cells["method"].str.partition("[")[0], cells["accuracy"], strict=True))
    for method, lr in (("tent", 0.0005), ("eata", 0.0025)):
        source = [to_tensor(data.train().images)]

        def scored(**options: Any) -> float:
            adapted = ttabench.adapt(net, method, dataset="digits-c", source=source, **options)  # noqa: B023
            return ttabench.evaluate(adapted, fog.images, fog.labels, batch_size=16, limit=64).accuracy

        with pytest.warns(UserWarning, match=f"{method}: at batch size 16, a sweep uses lr={lr}; eval"):
            scored()
        with warnings.catch_warnings(action="error"):
            assert scored(lr=lr) == accuracy[method]


def test_cells_that_were_measured_with_other_code_meanwhile_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.sweep.conduct.with_other_code", lambda cells, *_: len(cells))
    usual = {"corruptions": "fog,snow", "limit": 20, "workers": 0, "out": tmp_path / "results"}
    ttabench.run_sweep("source", "resnet18", **usual)
    assert "2 of these cells were measured with other code, by another sweep" in capsys.readouterr().err
    ttabench.run_sweep("source", "resnet18", **usual)
    assert "other code" not in capsys.readouterr().err


def test_a_classifier_has_its_normalisation_and_takes_no_other(net: nn.Module) -> None:
    classifier = ttabench.adapt(net, "source").method.model
    for given in ({"mean": (0.5, 0.5, 0.5)}, {"std": (0.2, 0.2, 0.2)}):
        with pytest.raises(ttabench.UserError, match="a Classifier contains its normalisation; leave out"):
            ttabench.adapt(classifier, "tent", **given)  # type: ignore[arg-type]


def test_inference_mode_changes_nothing(net: nn.Module, x: Tensor) -> None:
    usual, inside = ttabench.adapt(net, "tent"), ttabench.adapt(net, "tent")
    usual.reset()
    expected = [usual(x), usual(x), usual.predict(x)]
    with torch.inference_mode():
        made_inside = x + 0
        inside.reset()
        logits = [inside(made_inside), inside(x), inside.predict(made_inside)]
    for ours, theirs in zip(logits, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    torch.testing.assert_close(inside(x), usual(x), rtol=0, atol=0)


@pytest.mark.parametrize("method", ["source", "tent", "eata"])
def test_a_network_may_have_another_precision(net: nn.Module, x: Tensor, method: str) -> None:
    plain = ttabench.adapt(net, method, source=[x], mean=(0.5, 0.4, 0.3))
    double = ttabench.adapt(net.double(), method, source=[x], mean=(0.5, 0.4, 0.3))
    assert double(x.double()).dtype == torch.double
    plain(x)
    torch.testing.assert_close(double.predict(x.double()).float(), plain.predict(x), atol=1e-3, rtol=0)


def test_networks_that_cannot_be_used_are_one_sentence(net: nn.Module) -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    with pytest.raises(ttabench.UserError, match="Sequential has lazy layers without sizes"):
        ttabench.adapt(lazy, "source")
    net.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(ttabench.UserError, match=r"Sequential cannot be copied .*lock"):
        ttabench.adapt(net, "tent")


def test_a_network_for_several_gpus_is_taken_out_of_its_wrapper(net: nn.Module, x: Tensor) -> None:
    adapted = ttabench.adapt(nn.DataParallel(net), "tent")
    assert not any(isinstance(module, nn.DataParallel) for module in adapted.method.model.modules())
    torch.testing.assert_close(adapted(x), ttabench.adapt(net, "tent")(x))


def test_a_script_that_workers_import_is_told_how_to_call_run_sweep(tmp_path: Path) -> None:
    """Otherwise its worker would run the sweep again, and wait for the one that waits for it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import ttabench\n"
        "ttabench.run_sweep('source', 'resnet18', corruptions='fog', limit=20, workers=1, out='results')\n"
    )
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert 'put it under `if __name__ == "__main__":`, or pass workers=0.' in done.stderr
    assert "no worker process can start here" in done.stderr


# ---- every batch is looked at


@each("value", [255.0, -0.01, float("nan"), float("inf")])
@each("call", ["__call__", "predict"])
def test_a_later_batch_with_wrong_pixels_is_refused_before_anything_is_learned(
    value: float, call: str
) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    adapted = ttabench.adapt(net, "tent")
    good = torch.rand(8, 3, 32, 32)
    adapted(good)
    before = {name: tensor.clone() for name, tensor in adapted.method.model.state_dict().items()}
    bad = good.clone()
    bad[3, 1, 2, 5] = value
    with pytest.raises(ttabench.UserError, match=r"outside \[0, 1\] or NaN"):
        getattr(adapted, call)(bad)
    after = adapted.method.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert adapted(good).isfinite().all()


def test_networks_without_values_and_of_inference_mode_are_one_sentence() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 900, 3))

    with torch.device("meta"):
        meta = build()
    with torch.inference_mode():
        fixed = build()
    for net, says in ((meta, "is on the device meta"), (fixed, r"was made inside torch.inference_mode\(\)")):
        with pytest.raises(ttabench.UserError, match=says):
            ttabench.adapt(net, "tent")


class Positions(nn.Module):
    """As vision transformers: one vector for each patch of images of 64 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm, self.head = nn.Conv2d(3, 4, 16, 16), nn.LayerNorm(4), nn.Linear(4, 3)
        self.positions = nn.Parameter(torch.zeros(1, 16, 4))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        logits: Tensor = self.head(self.norm(tokens).mean(1))
        return logits


class Asserts(Positions):
    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] == 64, "expected 64"
        return super().forward(x)


@pytest.mark.parametrize("kind", [Positions, Asserts])
def test_a_network_for_another_size_of_images_names_it(kind: type[nn.Module]) -> None:
    with pytest.raises(
        ttabench.UserError, match=r"cannot take images of 32 pixels .* takes 64: pass image_size=64"
    ):
        ttabench.adapt(kind(), "tent")
    adapted = ttabench.adapt(kind(), "tent", image_size=64)
    says = r"the network cannot take images of 32×32 pixels \(.*\). It was tried with 64"
    for call in (adapted, adapted.predict):
        with pytest.raises(ttabench.UserError, match=says):
            call(torch.rand(4, 3, 32, 32))
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.evaluate(adapted, np.zeros((4, 32, 32, 3), np.uint8) + np.uint8([0, 50, 99]), [0, 1, 2, 0])
    assert adapted(torch.rand(4, 3, 64, 64)).shape == (4, 3)


def test_a_network_for_gray_images_is_not_told_to_take_another_size() -> None:
    gray = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    says = r"to have 1 channels, .*; it must take RGB images \(B, 3, n, n\), where n is image_size=\.$"
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.adapt(gray, "source")


def test_a_gpu_without_memory_is_not_said_to_be_the_size_of_the_images() -> None:
    class Full(Positions):
        full = True

        def forward(self, x: Tensor) -> Tensor:
            if self.full:
                raise RuntimeError(
                    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
                )
            return super().forward(x)

    network = Full()
    with pytest.raises(RuntimeError, match="ALLOC_FAILED"):
        ttabench.adapt(network, "tent", image_size=64)
    network.full = False
    adapted = ttabench.adapt(network, "tent", image_size=64)
    adapted.method.model.net.full = True
    for call in (adapted, adapted.predict):
        with pytest.raises(RuntimeError, match="ALLOC_FAILED"):
            call(torch.rand(4, 3, 32, 32))


def test_other_errors_of_a_network_stay_as_they_are(net: nn.Module, x: Tensor) -> None:
    adapted = ttabench.adapt(net, "source")
    adapted.method.model.net[0].stride = None
    with pytest.raises(TypeError):
        adapted(x)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"held_out": 0.01}, "held_out=0.01 of 16 images leaves none to score"),
        ({"held_out": 0.9, "limit": 2}, "held_out=0.9 of 2 images leaves none to adapt to"),
    ],
)
def test_a_score_of_nothing_is_refused(net: nn.Module, change: dict[str, Any], says: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    with pytest.raises(ttabench.UserError, match=says):
        ttabench.evaluate(ttabench.adapt(net, "tent"), images, np.arange(16) % 10, **change)


def test_labels_of_8_bits_are_refused_where_there_are_more_classes_and_flat_images_are_told(
    net: nn.Sequential,
) -> None:
    images = np.full((4, 32, 32, 3), 7, np.uint8)
    with pytest.warns(UserWarning, match="images: all pixels have the value 7"):
        ttabench.evaluate(ttabench.adapt(net, "source"), images, np.zeros(4, np.uint8))
    net[-1] = nn.Linear(8, 300)
    adapted, pixels = ttabench.adapt(net, "source"), torch.from_numpy(images).permute(0, 3, 1, 2)
    for kind, values in ((torch.uint8, 256), (torch.int8, 128)):
        says = rf"labels are {str(kind)[6:]}, which has {values} values, but the network has 300 classes"
        labels = torch.zeros(4, dtype=kind)
        with pytest.raises(ttabench.UserError, match=says):
            ttabench.evaluate(adapted, images, labels)
        with pytest.raises(ttabench.UserError, match=says):
            ttabench.evaluate(adapted, [(pixels, labels.long()), (pixels, labels)])


def test_a_batch_of_one_image_without_variance_is_one_sentence() -> None:
    torch.manual_seed(0)
    layers = [m for i in (3, 8, 8, 8, 8) for m in (nn.Conv2d(i, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 3))
    colours = torch.rand(64, 3, 1, 1) * torch.rand(64, 3, 32, 32)
    for _ in range(20):
        net.train()(colours)  # running statistics
    images = (255 * colours[:17]).byte().permute(0, 2, 3, 1).numpy()
    adapted = ttabench.adapt(net, "coral", source=[colours])
    with pytest.raises(ttabench.UserError, match="a batch of one image has no variance"):
        ttabench.evaluate(adapted, images, np.arange(17) % 3, batch_size=16)


def test_a_normalisation_may_be_of_tensors_or_arrays(net: nn.Module, x: Tensor) -> None:
    given = [0.4, 0.5, 0.6]
    expected = ttabench.adapt(net, "source", mean=tuple(given), std=(0.5,) * 3)(x)
    tensor = torch.tensor(given)
    for mean in (tensor, tensor.clone().requires_grad_(), list(tensor), np.array(given)):
        with warnings.catch_warnings(action="error"):
            adapted = ttabench.adapt(net, "source", mean=mean, std=torch.full((3,), 0.5))
        assert torch.equal(adapted(x), expected)


def test_only_what_is_for_0_to_255_is_divided(net: nn.Module) -> None:
    for mean, std, says in (
        ((123.7, 116.3, 103.5), (58.4, 57.1, 57.4), r"both by 255: mean=\(0.4851, .*\), std=\(0.229, "),
        ((0.5, 0.4, 0.3), (58.4, 57.1, 57.4), r"std by 255: mean=\(0.5, 0.4, 0.3\), std=\(0.229, "),
    ):
        with pytest.raises(ttabench.UserError, match=says):
            ttabench.adapt(net, "source", mean=mean, std=std)


def test_a_sweep_that_recomputes_activations_has_the_same_numbers(tmp_path: Path) -> None:
    usual, again = (
        ttabench.run_sweep(
            "tent,sar", "resnet18,cct", corruptions="fog", limit=40, batch_size=20, workers=0,
            activations=activations, out=tmp_path / activations,
        ).set_index("cell_id")
        for activations in ("keep", "recompute")
    )  # fmt: skip
    same = ["status", "accuracy", "entropy", "forward", "backward", "alarm"]
    pd.testing.assert_frame_equal(usual[same], again.loc[usual.index, same])
    assert usual["recomputed"].isna().all()
    assert again["recomputed"].eq(1).all()
