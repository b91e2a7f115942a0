"""Every registered method on an emulated second device: no mixture of devices, and few waits of the host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conformance.test_all_methods import LIGHTER, foreign, imported, others_at_night
from tests.devices.emulated import Emulated, MixedDevices
from ttabench.classifier import Classifier
from ttabench.conformance.nets import CLASSES, images, nets
from ttabench.measure.order_and_batches import Stream
from ttabench.measure.source_access import SourceImages
from ttabench.method import Method, SourceData
from ttabench.method.settings import make_config
from ttabench.registry import method_names
from ttabench_methods.source import Source

BATCH, BATCHES = 32, 3
PAGE = Path(__file__).resolve().parents[2] / "docs" / "quantile.md"
SMALL_BATCH = {"memo": 4}  # it learns from every image by itself


def pixels(count: int, seed: int, shift: float = 0.0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """uint8 (count, H, W, 3)"""
    return (255 * images(count, seed, shift)).round().byte().permute(0, 2, 3, 1).contiguous().numpy()


def prepared(name: str, **settings: str) -> Method[Any]:
    """A method on the device, around the first of the tiny nets that it can adapt."""
    cls = imported(name)
    settings = LIGHTER.get(name, {}) | settings
    for net in nets().values():
        arch = net.architecture()
        usual = {**cls.for_dataset("conformance", CLASSES), **cls.for_architecture(arch)}
        config = make_config(cls, settings, usual)
        if not cls.needs_of(config).unmet(arch):
            return around(cls, net, config)
    raise AssertionError(f"{name} can adapt none of the nets")


def around(cls: type[Method[Any]], net: Classifier, config: Any) -> Method[Any]:
    torch.manual_seed(0)
    method = cls(net.to("cuda"), config)
    method.prepare(SourceImages(lambda: pixels(128, seed=3), cls.needs_of(config), "cuda"))
    return method


def stream(batch: int = BATCH, batches: int = BATCHES) -> Stream:
    positions = np.arange(batch * batches)
    return Stream(pixels(len(positions), seed=2, shift=0.4), positions, batch, "cuda")


# How often the host waits for the device: while a batch is adapted on, in a prediction, and per batch of a
# pass of `fit`; at most. On a GPU each wait leaves it idle, which is most of the time of a small network.
WAITS: dict[str, tuple[int, int, int]] = {
    **dict.fromkeys(("source", "bn_stats", "medbn", "memo", "tent"), (0, 0, 0)),
    "cmf": (1, 0, 1),  # which images are kept
    "cotta": (1, 0, 1),  # is the anchor sure?
    "deyo": (2, 0, 2),  # which images are sure; is one kept?
    "eata": (1, 0, 1),  # is one kept?
    "eta": (1, 0, 1),
    "foa": (3, 0, 3),  # twice in CMA-ES; which candidate is best
    "lame": (12, 12, 12),  # has it converged? once per iteration
    "quantile": (3, 1, 12),  # which pairs are close, in each sum of unit vectors; is it trained; exact losses
    "quantile_paper": (3, 1, 12),
    "quantile_selected": (3, 1, 24),  # two trainings, each as of quantile; which one is kept
    "quantile_aqr": (15, 1, 18),  # as quantile; two in the loss of each share; is the decorruptor trained
    "roid": (1, 0, 1),  # which images are kept
    "rotta": (2, 0, 2),  # labels and uncertainties of the images offered to the memory
    "sar": (2, 0, 2),  # is an image reliable; is the model to be restored?
    "shot": (0, 0, 1),  # offline, how many images each class has, once per pass
    "sotta": (2, 0, 2),  # labels and confidences of the images offered to the memory
    "t3a": (1, 0, 1),  # how many supports are kept
    "ttac": (1 + CLASSES, 0, 1 + CLASSES),  # which images are of a class, class by class
}
OTHERS = (8, 4, 16)  # what a method may that is not in the table

# What is copied to the device beside the images of a batch, at most: lists of numbers, indices and random
# numbers of the host. The host waits for each copy.
COPIES = {
    "adacontrast": 20,  # the weights of grey, again for each change of each view; the orders of these changes
    "memo": 3,  # the colour at the border of its views, once per operation
    "poem": 1,  # its matched entropies
    "rmt": 1,  # which source images are replayed
    "rotta": 1,  # the ages of the images in the memory
    "tca": 1,
    **dict.fromkeys(
        ("quantile", "quantile_paper", "quantile_selected", "quantile_strict", "quantile_aqr", "stack"), 2
    ),  # two lists of places in the bank
}


def copies(name: str) -> int:
    return COPIES.get(name, max(COPIES.values()) if foreign(name) else 0)


# These take longest: other methods run nearly all of their code, or the variants below do.
AT_NIGHT = (
    "adacontrast", "memo", "quantile_aqr", "quantile_paper", "quantile_selected", "quantile_strict", "rmt",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", others_at_night({*method_names()} - {*AT_NIGHT}))
def test_a_method_stays_on_its_device_and_seldom_makes_the_host_wait(name: str) -> None:
    adapting, predicting, fitting = WAITS.get(name, OTHERS)
    batch = SMALL_BATCH.get(name, BATCH)
    with Emulated() as gpu:
        method = prepared(name)
        for x in stream(batch):
            gpu.waits.clear()
            gpu.copies.clear()
            assert method.adapt(x).is_cuda
            assert len(gpu.waits) <= adapting, gpu.waits
            assert len(gpu.copies) <= copies(name), gpu.copies
        gpu.waits.clear()
        assert method.predict(x).is_cuda
        assert len(gpu.waits) <= predicting, gpu.waits
        method.alarms()
        method.adapted()
        gpu.waits.clear()
        method.reset()
        assert gpu.waits == []
        method.fit(stream(batch), 1)
        assert len(gpu.waits) <= fitting * BATCHES, gpu.waits
        assert method.predict(x).is_cuda


STEADY = ("source", "bn_stats", "tent", "eata", "sar", "cotta", "quantile")
DRAWN = 3  # operations that a batch has more where its random views ask for it


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
@pytest.mark.parametrize("name", STEADY)
def test_a_batch_is_copied_once_and_the_operations_do_not_grow(name: str) -> None:
    operations: list[int] = []
    with Emulated() as gpu:
        method, batches = prepared(name), iter(stream(batches=8))
        for _ in range(8):
            gpu.copies.clear()
            gpu.operations = 0
            method.adapt(next(batches))
            assert len(gpu.copies) <= 1 + copies(name), gpu.copies
            operations.append(gpu.operations)
    assert max(operations[4:]) <= max(operations[1:4]) + DRAWN, operations


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
def test_a_training_on_twice_the_images_copies_and_computes_at_most_twice_as_much() -> None:
    counts: list[tuple[int, int]] = []
    with Emulated() as gpu:
        method = prepared("quantile")
        for batches in (3, 6):
            gpu.copies.clear()
            gpu.operations = 0
            method.fit(stream(batches=batches), 1)
            counts.append((len(gpu.copies), gpu.operations))
    (copied, operations), (more_copied, more_operations) = counts
    assert more_copied - copied <= 3 * 5  # the images of a batch four times, and their places in the bank
    assert more_operations <= 2 * operations


def test_a_method_whose_work_grows_or_that_copies_is_found() -> None:
    class Growing(Source):
        """Keeps all logits, and adds a number of the host."""

        def setup(self, source: SourceData | None) -> None:
            self.kept: list[Tensor] = []

        def adapt(self, x: Tensor) -> Tensor:
            self.kept.append(super().adapt(x))
            total = torch.zeros_like(self.kept[0])
            for each in self.kept:
                total = total + each
            return total + torch.tensor([1.0], device=x.device)

    with Emulated() as gpu:
        method = around(Growing, nets()["BN CNN"], Growing.Config())
        operations = []
        for x in stream(batches=8):
            gpu.copies.clear()
            gpu.operations = 0
            method.adapt(x)
            assert len(gpu.copies) == 1
            operations.append(gpu.operations)
    assert max(operations[4:]) > max(operations[1:4]) + DRAWN


VARIANTS: list[tuple[str, dict[str, str]]] = [
    ("bn_stats", {"alpha": "0.1"}),
    ("cotta", {"official_quirks": "true"}),
    ("deyo", {"official_quirks": "true"}),
    ("lame", {"affinity": "rbf"}),
    ("lame", {"affinity": "linear", "symmetric": "true"}),
    ("quantile", {"bank_on_cpu": "true"}),
    ("quantile", {"bank": "optimal", "per_class": "0"}),
    ("quantile", {"per_class": "1.0", "information": "0.1"}),
    ("quantile", {"bank": "step", "batch_norm": "target"}),
    *(("quantile_strict", {"loss": loss, "size": "small"}) for loss in ("mmd", "moments", "sliced")),
    ("quantile_strict", {"decorruptor": "offset"}),
    ("roid", {"official_quirks": "true"}),
    ("sar", {"official_quirks": "true"}),
    ("sotta", {"statistics": "median"}),
    ("t3a", {"official_quirks": "true", "filter_k": "2"}),
    ("tent", {"statistics": "median", "optimizer": "sgd"}),
]


# Of several variants of a method or of a kind, these run at night: their code differs by a few operations.
VARIANTS_AT_NIGHT = (
    ("cotta", {"official_quirks": "true"}),
    ("quantile", {"per_class": "1.0", "information": "0.1"}),
    ("quantile_strict", {"loss": "mmd", "size": "small"}),
    ("quantile_strict", {"loss": "moments", "size": "small"}),
    ("roid", {"official_quirks": "true"}),
    ("sar", {"official_quirks": "true"}),
    ("sotta", {"statistics": "median"}),
)


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(
            *variant, id=str(variant), marks=pytest.mark.slow if variant in VARIANTS_AT_NIGHT else ()
        )
        for variant in VARIANTS
    ],
)
def test_a_variant_stays_on_its_device(name: str, settings: dict[str, str]) -> None:
    with Emulated():
        method, two = prepared(name, **settings), stream(batches=2)  # 64 images, after which memories update
        assert all(method.adapt(x).is_cuda for x in two)
        method.reset()
        method.fit(two, 1)
        assert all(method.predict(x).is_cuda for x in two)


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
def test_the_loss_of_the_page_takes_features_of_a_bank_in_host_memory() -> None:
    """docs/quantile.md: a loss of your own."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    page: dict[str, Any] = {}
    exec(code, page)
    cls = page["CovarianceMatching"]
    with Emulated():
        method = around(cls, nets()["BN CNN"], cls.Config(size="small", minibatch=BATCH))
        assert method.config.bank_on_cpu
        method.fit(stream(), 1)
        assert method.predict(next(iter(stream()))).is_cuda


def test_a_method_that_leaves_a_tensor_on_the_host_is_found() -> None:
    class Shifted(Source):
        """Adds a shift that its author left on the host."""

        def setup(self, source: SourceData | None) -> None:
            self.shift = torch.zeros(CLASSES)

        def adapt(self, x: Tensor) -> Tensor:
            return super().adapt(x) + self.shift

    with Emulated():
        method = around(Shifted, nets()["BN CNN"], Shifted.Config())
        with pytest.raises(MixedDevices, match=r"aten\.add.*test_methods\.py"):
            method.adapt(next(iter(stream())))


def test_a_method_that_reads_a_value_of_every_image_is_found() -> None:
    class Reading(Source):
        def adapt(self, x: Tensor) -> Tensor:
            logits = super().adapt(x)
            self.counts["positive"] += sum(1 for row in logits if row[0] > 0)
            return logits

    with Emulated() as gpu:
        method = around(Reading, nets()["BN CNN"], Reading.Config())
        gpu.waits.clear()
        method.adapt(next(iter(stream())))
        assert len(gpu.waits) == BATCH


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
@pytest.mark.parametrize("name", ["tent", "cotta", "t3a"])
def test_the_emulated_device_computes_what_the_host_computes(name: str) -> None:
    with Emulated():
        method = prepared(name)
        there = [method.adapt(x).to("cpu") for x in stream()]
    with Emulated():
        torch.manual_seed(0)
        classifier = nets()["BN CNN"]
        method = type(method)(classifier, method.config)
        method.prepare(SourceImages(lambda: pixels(128, seed=3), type(method).needs_of(method.config)))
        here = [method.adapt(x.cpu()) for x in stream()]
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(one, other)


def test_the_table_of_waits_is_of_methods_that_exist() -> None:
    assert {*WAITS, *COPIES, *AT_NIGHT} <= set(method_names())
    assert all(variant in VARIANTS for variant in VARIANTS_AT_NIGHT)
