"""What a worker makes of a cell: its number, its details, its events, and what it keeps for the next cell."""

from __future__ import annotations

import errno
import os
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import each
from tests.unit.measure.test_scoring import CLASSES, Reads
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.mixed import MIXED
from ttabench.errors import UnusableModel, UserError
from ttabench.measure.image_stream import Batch, ImageStream
from ttabench.measure.order_and_batches import arrange
from ttabench.measure.streams import checkpoint
from ttabench.measure.torch_defaults import settings
from ttabench.method import Method, Needs
from ttabench.models.checkpoints.cache import Loaded
from ttabench.observe import label_free_scores
from ttabench.observe.cost import Passes
from ttabench.observe.few_per_class import few_of_each_alarm
from ttabench.observe.label_free_scores import sample
from ttabench.run import cell_images, worker
from ttabench.run.kept_objects import WorkerState
from ttabench.run.progress_events import CellProgress
from ttabench.run.worker import Worker
from ttabench.store import Store, Writer
from ttabench.sweep.reproduce import Rerun

IMAGES = 12


def labelled(n: int = IMAGES) -> Labelled:
    """The class of an image is in its pixels, so that a network can be exactly right."""
    labels = np.arange(n) % CLASSES
    images = np.zeros((n, 4, 4, 3), np.uint8)
    images[:] = (labels * 10)[:, None, None, None]
    return Labelled(images, labels)


class Pixels(Dataset):
    name = "pixels"
    num_classes, image_size = CLASSES, 4
    mean = std = (0.5, 0.5, 0.5)
    corruptions = ("fog", "snow")

    def __init__(self) -> None:
        self.hash = "f" * 64
        self.asked: list[tuple[str, int]] = []

    def fingerprint(self) -> str:
        return self.hash

    def train(self) -> Labelled:
        return labelled(1200)

    def test(self) -> Labelled:
        return labelled(300)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.asked.append((corruption, severity))
        return labelled(300) if corruption not in self.corruptions else labelled()


class Sure(Reads):
    """Reads, with a probability of nearly 1."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.fc.weight *= 9


@dataclass(frozen=True)
class Config:
    shift: int = 0


class Toy(Method[Config]):
    """Right, but for a shift of the class; notes what is done with it."""

    name = "toy"
    Config = Config
    needs = Needs(source_data="images")
    scores, scores_frozen, restores = "this pass", "another pass", "the moon"
    made: list[Toy] = []  # noqa: RUF012

    def setup(self, source: Any) -> None:
        Toy.made.append(self)
        self.drawn = float(torch.rand(()))
        self.resets = 0
        self.train_images = sum(len(x) for x in source.batches(500))

    def reset(self) -> None:
        resets = self.resets
        super().reset()
        self.resets = resets + 1

    def adapt(self, x: Tensor) -> Tensor:
        self.counts["batches"] += 1
        return self.predict(x)

    def predict(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = self.model(x)
        return out.roll(self.config.shift, dims=1)

    def adapted(self) -> str:
        return "1 bias (4 parameters)"

    def alarms(self) -> dict[str, Any]:
        return {"batches": np.int64(self.counts["batches"])}


CELL = Cell(
    method="toy", config=(("shift", 0),), label="toy", arch="reads", checkpoint="c" * 64, dataset="pixels",
    fingerprint="f" * 64, corruption="fog", severity=5, seed=0, protocol=Protocol(batch_size=5),
)  # fmt: skip
SNOW = replace(CELL, corruption="snow")


@dataclass
class Setting:
    """A worker in this process, and what it asked for and reported."""

    worker: Worker
    data: Pixels
    loaded: Loaded | None
    events: list[CellProgress]
    opened: list[str]
    recalled: list[tuple[str, str]]
    timed: list[tuple[Any, ...]]

    def run(self, *cells: Cell) -> list[Result]:
        stored: list[Result] = []
        self.worker.run(cells, stored.append)
        return stored

    def one(self, cell: Cell = CELL) -> Result:
        (result,) = self.run(cell)
        assert result.status == "ok", result.reason
        return result


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Datasets, networks and methods by name are those of this file."""
    Store.create(tmp_path / "r", {})
    classifier = Classifier(Sure(), last="fc").train()
    loaded = Loaded(
        classifier=classifier, sha256="c" * 64, clean_accuracy=97.0, recipe={}, note={"warning": "low"},
        path=Path("weights"),
    )  # fmt: skip
    events: list[CellProgress] = []
    made = Setting(
        Worker(WorkerState(), tmp_path / "r", "cpu", events.append), Pixels(), loaded, events, [], [], []
    )

    def open_dataset(name: str) -> Dataset:
        made.opened.append(name)
        return made.data

    def resolve_model(arch: str, dataset: Dataset) -> Any:
        assert dataset is made.data

        def recall(sha256: str) -> Loaded | None:
            made.recalled.append((arch, sha256))
            return made.loaded

        return SimpleNamespace(recall=recall, trainable=True)

    def source_forward(*asked: Any) -> float:
        made.timed.append(asked)
        return 0.5

    monkeypatch.setattr(Toy, "made", [])
    monkeypatch.setattr(worker, "open_dataset", open_dataset)
    monkeypatch.setattr(worker, "resolve_model", resolve_model)
    monkeypatch.setattr(worker, "find_method", lambda name: {"toy": Toy}[name])
    monkeypatch.setattr(worker, "forbidden_imports", lambda module: [])  # this file imports datasets
    codes = {"pixels": "code", "other": "other code"}

    def shared_code(name: str, provider: str, image_files: bool) -> str:
        return f"{codes[name]} of {provider}" + " and files" * image_files

    monkeypatch.setattr(worker, "shared_code", shared_code)
    monkeypatch.setattr(worker, "source_forward", source_forward)
    return made


# ---- the result of a cell


def test_a_result_holds_the_number_and_how_it_was_measured(setting: Setting) -> None:
    result = setting.one()
    assert (result.cell, result.accuracy, result.clean_accuracy, result.n_images) == (CELL, 100.0, 97.0, 12)
    assert result.correct == np.packbits(np.ones(12, bool)).tobytes()
    assert result.seconds > 0
    details = result.details
    stated = ("adapted", "scored_classes", "scores", "source_warning", "restores", "source_data", "alarm")
    assert {name: details[name] for name in stated} == {
        "adapted": "1 bias (4 parameters)", "scored_classes": "", "scores": "this pass",
        "source_warning": "low", "restores": "the moon", "source_data": "images", "alarm": "",
    }  # fmt: skip
    assert details["source_used"] == "images (1,200 images)"
    assert details["batches"] == 3
    assert type(details["batches"]) is int
    assert "windows" not in details
    assert set(details["unlabelled"]) == set(worker.Collected().scores())
    assert details["calibration"]
    assert set(details) == {*stated, "source_used", "batches", "calibration", "unlabelled", "cost"}


@pytest.mark.parametrize(
    ("said", "alarm"),
    [
        ({"logits": torch.zeros(400_000)}, "what alarms() returns has 1,600,0"),
        ({"count": 10**5000}, "what alarms() returns cannot be stored"),
        ({"a\x1b[31m": {1: {2}}, "alarm": ["x"], "cost": 3}, "['x']"),
    ],
)
def test_whatever_a_method_says_of_itself_its_results_can_be_read(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], alarm: str
) -> None:
    monkeypatch.setattr(Toy, "alarms", lambda self: said)
    details = setting.one().details
    assert details["alarm"].startswith(alarm)
    assert "logits" not in details
    (record,) = Store.at(setting.worker.results).latest().values()
    assert record.result.details["alarm"].startswith(alarm)


def test_a_result_says_which_images_were_right(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = labelled().images, labelled().labels
    labels[[2, 5]] = (labels[[2, 5]] + 1) % CLASSES
    monkeypatch.setattr(Pixels, "corrupted", lambda self, *_: Labelled(images, labels))
    right = np.unpackbits(np.frombuffer(setting.one().correct, np.uint8))
    assert right.tolist() == [1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]  # filled up to whole bytes


def test_a_network_without_a_warning_has_an_empty_one(setting: Setting) -> None:
    assert setting.loaded is not None
    setting.loaded = replace(setting.loaded, note={})
    assert setting.one().details["source_warning"] == ""


def test_a_result_names_the_weights_of_a_network_from_elsewhere(setting: Setting) -> None:
    assert setting.loaded is not None
    origin = f"{CELL.arch} ({CELL.arch}.a1_in1k, revision 0123456789ab)"
    setting.loaded = replace(setting.loaded, note={"origin": origin})
    assert setting.one().details["weights_from"] == origin


def test_the_needs_are_those_of_the_settings(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {0: Needs(), 1: Needs(source_data="images")}
    monkeypatch.setattr(Toy, "needs_of", classmethod(lambda cls, config: needs[config.shift]))

    def setup(self: Toy, source: Any) -> None:
        self.resets = 0
        if self.config.shift:
            self.train_images = sum(len(x) for x in source.batches(500))

    monkeypatch.setattr(Toy, "setup", setup)
    for shift, expected in ((0, ""), (1, "images")):
        assert setting.one(replace(CELL, config=(("shift", shift),))).details["source_data"] == expected


def test_all_that_a_method_was_given_is_listed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def adapt(self: Toy, x: Tensor) -> Tensor:
        self.served = {"images": 1200, "features": 30}
        return self.predict(x)

    monkeypatch.setattr(Toy, "adapt", adapt)
    assert setting.one().details["source_used"] == "images (1,200 images); features (30 images)"


def test_the_number_is_that_of_the_method_and_of_its_settings(setting: Setting) -> None:
    assert setting.one(replace(CELL, config=(("shift", 1),))).accuracy == 0.0
    limited = setting.one(replace(CELL, protocol=Protocol(batch_size=5, limit=7)))
    assert limited.n_images == 7


def test_the_result_is_in_the_store_when_it_is_told(setting: Setting) -> None:
    there: list[bool] = []
    store = Store.at(setting.worker.results)
    setting.worker.run((CELL, SNOW), lambda result: there.append(result.cell.cell_id in store.latest()))
    assert there == [True, True]
    assert len(list(store.cells.glob("*.jsonl"))) == 1
    assert {record.environment["device"] for record in store.records()} == {"cpu"}


def test_a_frozen_method_is_scored_by_another_pass(setting: Setting) -> None:
    offline = Protocol(mode="offline", batch_size=5, epochs=2)
    result = setting.one(replace(CELL, protocol=offline))
    assert result.details["scores"] == "another pass"
    assert result.details["batches"] == 6


def test_of_some_classes_only_these_are_predicted(setting: Setting) -> None:
    setting.data.scored_classes = (0, 2)
    result = setting.one()
    assert result.accuracy == 50.0
    assert result.details["scored_classes"] == "2 of 4 classes"


@pytest.mark.parametrize(
    ("images", "alarm"), [(0, "few images: 3 of each class"), (4, "few images: 1 of each")]
)
def test_few_images_of_each_class_are_an_alarm_where_something_is_estimated_for_each(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, images: int, alarm: str
) -> None:
    cell = replace(CELL, protocol=replace(CELL.protocol, limit=images))
    assert setting.one(cell).details["alarm"] == ""
    monkeypatch.setattr(Toy, "per_class", "prototypes")
    assert alarm in setting.one(cell).details["alarm"]
    assert few_of_each_alarm("prototypes", 20, 4) == ""


def test_a_mixed_cell_has_every_corruption(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pixels, "corruptions", ())
    result = setting.one(replace(CELL, corruption=MIXED, severity=3))
    assert result.n_images == 300
    assert len({name for name, _ in setting.data.asked}) == 15
    assert {severity for _, severity in setting.data.asked} == {3}


def test_a_mixed_cell_is_dealt_by_its_seed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    dealt: list[tuple[Any, ...]] = []

    def mixed(*asked: Any) -> Labelled:
        dealt.append(asked)
        return labelled()

    monkeypatch.setattr(sys.modules["ttabench.measure.test_set"], "mixed", mixed)
    setting.one(replace(CELL, corruption=MIXED, severity=3, seed=7))
    assert dealt == [(setting.data, 3, 7)]


def test_order_and_draws_of_a_cell_are_those_of_its_seed(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    seeds: set[int] = set()

    def adapt(self: Toy, x: Tensor) -> Tensor:
        seeds.add(torch.initial_seed())
        seen.extend((x[:, 0, 0, 0] * 25.5).round().int().tolist())
        return self.predict(x)

    monkeypatch.setattr(Toy, "adapt", adapt)
    setting.one(replace(CELL, seed=7))
    labels = labelled().labels
    assert (seen, seeds) == (labels[arrange("iid", labels, 7)].tolist(), {7})


def test_a_cell_gets_the_images_of_its_corruption_and_severity(setting: Setting) -> None:
    setting.one(replace(SNOW, severity=2))
    assert setting.data.asked == [("snow", 2)]


def test_costs_count_the_stream_and_compare_with_source(setting: Setting) -> None:
    cost = setting.one().details["cost"]
    assert (cost["images"], cost["forward"], cost["backward"], cost["adapted_parameters"]) == (12, 12, 0, 4)
    assert setting.timed[0][2:] == (5, "cpu", "float32")
    assert isinstance(setting.timed[0][0], Classifier)
    assert len(setting.timed[0][1]) == 12
    foreign = replace(CELL, protocol=Protocol(batch_size=5, contamination="noise(0.25)"))
    assert setting.one(foreign).details["cost"]["images"] == 16
    offline = replace(CELL, protocol=Protocol(mode="offline", batch_size=5, epochs=3))
    assert setting.one(offline).details["cost"]["images"] == 12  # epochs are no images of the stream


def test_source_is_timed_once_per_batch_size_and_precision(setting: Setting) -> None:
    half = Protocol(batch_size=5, precision="bfloat16")
    for cell in (CELL, SNOW, replace(CELL, protocol=half), replace(CELL, protocol=Protocol(batch_size=4))):
        setting.one(cell)
    assert [asked[2:] for asked in setting.timed] == [
        (5, "cpu", "float32"), (5, "cpu", "bfloat16"), (4, "cpu", "float32")
    ]  # fmt: skip


def test_memory_is_measured_once_for_a_method_and_protocol(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, float]] = []
    original = worker.measured

    def measured(device: str, host: dict[str, float]) -> Any:
        given.append(host)
        assert device == "cpu"
        return original(device, host)

    monkeypatch.setattr(worker, "measured", measured)
    setting.run(CELL, SNOW, replace(CELL, protocol=Protocol(batch_size=4)))
    assert given[0] is given[1]
    assert given[2] is not given[0]


# ---- alarms and label-free scores


def test_alarms_of_the_method_of_the_number_and_of_the_settings_are_joined(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []

    def check(self: Toy, clean: Tensor) -> str:
        seen.append(clean)
        return "a bad setting"

    monkeypatch.setattr(Toy, "check", check)
    monkeypatch.setattr(Toy, "alarms", lambda self: {"alarm": "a reset", "resets": float("nan")})
    monkeypatch.setattr(Toy, "adapt", lambda self, x: torch.eye(CLASSES)[:1].expand(len(x), -1))
    with pytest.warns(UserWarning, match="toy: a bad setting"):
        details = setting.one().details
    collapse, settings, ours = details["alarm"].split("; ")
    assert "predictions have 1.0 effective classes" in collapse
    assert (settings, ours) == ("a bad setting", "a reset")
    assert details["resets"] == "nan"
    (clean,) = seen  # of the unadapted classifier, on 256 clean images
    assert clean.shape == (256, CLASSES)
    assert set(clean.argmax(dim=1).tolist()) == set(range(CLASSES))
    assert set(clean.max(dim=1).values.tolist()) == {9.0}
    assert not clean.requires_grad


def test_a_certainty_that_cannot_be_used_is_an_alarm(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "known_score", lambda self, logits: logits[:, 0].numpy())
    cell = replace(CELL, protocol=Protocol(batch_size=5, contamination="noise(0.25)"))
    assert "the method's known_score() is of type ndarray, not a tensor" in setting.one(cell).details["alarm"]


def test_what_a_method_says_is_stored_as_data_and_never_in_place_of_what_is_measured(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {1: {2}, "cost": "none", "calibration": {}, "resets": 1, "windows": "x", "unknown": 3}
    monkeypatch.setattr(Toy, "alarms", lambda self: said)
    details = setting.one().details
    assert (details["1"], details["resets"]) == ("{2}", 1)
    assert details["cost"]["images"] == IMAGES
    assert details["calibration"]
    assert not {"windows", "unknown"} & details.keys()


def test_a_method_without_a_check_needs_no_clean_images(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pixels, "test", lambda self: pytest.fail("clean images were read"))
    setting.one()


def test_a_method_that_imports_labels_is_refused_and_one_that_does_it_later_is_reported(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules: list[str] = []

    def forbidden(module: str) -> list[str]:
        modules.append(module)
        return ["toy imports ttabench.data"] if len(modules) > 1 else []

    monkeypatch.setattr(worker, "forbidden_imports", forbidden)

    def adapt(self: Toy, x: Tensor) -> Tensor:
        import ttabench.store  # noqa: F401

        return self.predict(x)

    monkeypatch.setattr(Toy, "adapt", adapt)
    alarm = setting.one().details["alarm"]
    assert alarm == "the method imports ttabench.store, which knows the labels"
    (refused,) = setting.run(replace(CELL, seed=1))
    assert (refused.status, refused.reason) == (
        "failed", "toy imports ttabench.data; a method may not read datasets or scores",
    )  # fmt: skip
    assert modules == [__name__] * 2


def test_all_scores_need_labelled_source_images_and_are_none_without_them(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting, "worker", replace(setting.worker, scores="all"))
    scores = setting.one().details["unlabelled"]
    assert (scores["consistency"], scores["source_accuracy"]) == (100.0, 100.0)
    assert scores["entropy"] is not None
    assert setting.events[-1] == CellProgress(
        str(CELL), 0, 0, 0, 0, "computing label-free scores", CELL.cell_id
    )
    assert set(setting.opened) == {"pixels"}
    assert list(setting.worker.state._kinds["labelled source"]) == ["pixels"]

    def gone(self: Pixels) -> Labelled:
        raise UserError("no training images here")

    monkeypatch.setattr(Toy, "needs", Needs())
    monkeypatch.setattr(Toy, "setup", lambda self, source: setattr(self, "resets", 0))
    monkeypatch.setattr(Pixels, "train", gone)
    setting.worker.free_memory()
    setting.worker.state.drop("labelled source")
    scores = setting.one().details["unlabelled"]
    assert (scores["consistency"], scores["source_accuracy"]) == (100.0, None)


def test_the_costly_scores_look_at_what_the_protocol_lets_the_method_see(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting, "worker", replace(setting.worker, scores="all"))
    looked: dict[str, tuple[int, tuple[Any, ...]]] = {}

    def consistency(method: Toy, images: Any, *rest: Any) -> float:
        looked["consistency"] = len(images), rest
        return 1.0

    def source_accuracy(method: Toy, data: Labelled, *rest: Any) -> float:
        looked["source_accuracy"] = len(data), rest
        assert ((data.images[:, 0, 0, 0] // 10) == data.labels).all()
        return 2.0

    monkeypatch.setattr(label_free_scores, "consistency", consistency)
    monkeypatch.setattr(label_free_scores, "source_accuracy", source_accuracy)
    protocol = Protocol(batch_size=5, limit=7, precision="bfloat16")
    scores = setting.one(replace(CELL, seed=3, protocol=protocol)).details["unlabelled"]
    assert (scores["consistency"], scores["source_accuracy"]) == (1.0, 2.0)
    assert looked == {"consistency": (7, (protocol, "cpu", 3)), "source_accuracy": (1000, (protocol, "cpu"))}


def test_the_costly_scores_look_at_a_fixed_sample(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "worker", replace(setting.worker, scores="all"))
    many = Labelled(np.random.default_rng(0).integers(0, 256, (1500, 4, 4, 3), np.uint8), np.zeros(1500, int))
    looked: list[Any] = []
    monkeypatch.setattr(Pixels, "corrupted", lambda self, *_: many)
    monkeypatch.setattr(Pixels, "train", lambda self: many)
    scores = label_free_scores
    monkeypatch.setattr(scores, "consistency", lambda method, images, *_: looked.append(images) or 1.0)
    monkeypatch.setattr(scores, "source_accuracy", lambda method, data, *_: looked.append(data.images) or 1.0)
    setting.one(replace(CELL, seed=3))
    of_source, of_target = looked
    np.testing.assert_array_equal(of_target, many.images[sample(1500, 3)])
    np.testing.assert_array_equal(of_source, many.images[sample(1500, 0)])
    assert not np.array_equal(of_target, of_source)


# ---- progress


def test_progress_says_what_is_done_and_how_many_are_right(setting: Setting) -> None:
    cell = replace(CELL, protocol=Protocol(batch_size=5, limit=7))
    setting.one(cell)
    name, key = str(cell), cell.cell_id
    assert setting.events == [
        CellProgress(name, 0, 0, 0, 0, "preparing the method", key),
        CellProgress(name, 0, 0, 0, 0, "making or reading images", key),
        CellProgress(name, 7, 5, 5, 5, key=key),
        CellProgress(name, 7, 7, 7, 7, key=key),
    ]


# ---- what is kept


def test_a_method_is_prepared_once_and_reset_before_each_run(setting: Setting) -> None:
    setting.run(CELL, SNOW)
    setting.run(CELL)
    (method,) = Toy.made
    assert method.resets == 2  # a continual run is reset before its first cell alone
    assert method.train_images == 1200
    setting.run(replace(CELL, seed=1))
    setting.run(replace(CELL, config=(("shift", 1),)))
    assert len(Toy.made) == 3
    assert (setting.opened, setting.recalled) == (["pixels"], [("reads", "c" * 64)])


def test_what_a_method_or_an_import_changes_of_torch_does_not_reach_the_next_cell(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    usual = settings()

    def change() -> None:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_autocast_enabled("cpu", True)
        torch.autograd.set_detect_anomaly(True)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.nn.modules.module.register_module_forward_hook(lambda _, __, out: out * 2)

    @cache
    def imported(name: str) -> type[Toy]:
        change()
        return Toy

    def adapt(self: Toy, x: Tensor) -> Tensor:
        seen.append(settings())
        change()
        return self.predict(x)

    monkeypatch.setattr(worker, "find_method", imported)
    monkeypatch.setattr(Toy, "adapt", adapt)
    whole = replace(CELL, protocol=Protocol(batch_size=IMAGES))
    first, second = setting.run(whole, replace(whole, corruption="snow"))
    (third,) = setting.run(whole)
    again = Rerun((whole,), "cpu", setting.worker.results)(setting.events.append, setting.worker.state)
    torch.use_deterministic_algorithms(False)
    torch.set_autocast_enabled("cpu", False)
    assert seen == [usual] * 4
    says = "a setting of torch, the default type, from torch.float32 to torch.float64, for this cell alone"
    assert all(result.details["alarm"].endswith(says) for result in (first, second, third, *again))
    assert settings() == usual


@each(
    ("owner", "name", "new"),
    [
        (torch.nn.BatchNorm2d, "forward", lambda self, x: x),
        (torch.nn.functional, "relu", wraps(torch.nn.functional.relu)(lambda x, inplace=False: x)),
        (torch, "cat", lambda tensors, dim=0: tensors[0]),
        (torch.Tensor, "softmax", lambda self, dim: self),
        (torch.nn, "ReLU", type("ReLU", (torch.nn.ReLU,), {})),
    ],
)
def test_a_method_that_replaces_a_part_of_torch_is_refused_and_so_are_those_after_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, new: Any
) -> None:
    def alarms(self: Toy) -> dict[str, Any]:
        patch.setattr(owner, name, new)
        return {}

    assert setting.one()
    with monkeypatch.context() as patch:
        patch.setattr(Toy, "alarms", alarms)
        (cell,) = setting.run(CELL)
        patch.setattr(Toy, "alarms", lambda self: {})
        (after,) = setting.run(SNOW)
    for result in (cell, after):
        assert result.status == "failed"
        assert f".{name}, and all methods would run with it" in result.reason
    assert setting.one()


def test_a_method_that_a_reset_does_not_restore_is_refused(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def setup(self: Toy, source: Any) -> None:
        self.resets = 0
        self.model.linear.weight.requires_grad_(True).register_hook(torch.zeros_like)

    monkeypatch.setattr(Toy, "setup", setup)
    (result,) = setting.run(CELL)
    assert (result.status, result.reason) == (
        "failed",
        "toy: reset() loses the hooks of the parameter `model.net.fc.weight`; change gradients in adapt(), "
        "or hook the layer with a method of the class.",
    )


def test_preparing_draws_from_the_seed_of_the_cell(setting: Setting) -> None:
    for seed in (0, 7):
        torch.rand(3)
        setting.run(replace(CELL, seed=seed))
    torch.manual_seed(0)
    expected = float(torch.rand(()))
    torch.manual_seed(7)
    assert [method.drawn for method in Toy.made] == [expected, float(torch.rand(()))]


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_official_code_may_draw_from_other_generators_than_that_of_torch(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, draw: Callable[[], float]
) -> None:
    drawn: list[float] = []
    monkeypatch.setattr(Toy, "adapt", lambda self, x: [drawn.append(draw()), self.predict(x)][1])
    setup = Toy.setup
    monkeypatch.setattr(Toy, "setup", lambda self, source: [drawn.append(draw()), setup(self, source)][1])
    draws: dict[int, list[list[float]]] = {0: [], 7: []}
    for seed in (0, 7, 0):
        before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
        drawn.clear()
        setting.worker.free_memory()  # it is prepared again
        setting.run(replace(CELL, seed=seed))
        draws[seed].append([*drawn])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index] # noqa: NPY002
        draw()
        drawn.clear()
        setting.run(replace(CELL, seed=seed))  # with the method that is there
        assert drawn == draws[seed][-1][1:]
    assert draws[0][0] == draws[0][1] != draws[7][0]


class Sharp(Toy):
    """Multiplies the last layer, and asks for the entropies before and after."""

    needs = Needs(source_data="statistics", source_statistics=("entropies",))

    def setup(self, source: Any) -> None:
        Toy.made.append(self)
        self.resets = 0
        self.entropies = []
        for factor in (0.01, self.config.shift):
            with torch.no_grad():
                self.model.linear.weight.mul_(factor)
            self.entropies.append(float(source.entropies(self.model).mean()))


@pytest.mark.parametrize("gigabytes", ["8", "0"])  # with summaries on disk, and without
def test_what_the_source_gives_is_that_of_the_classifier_which_asks(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, gigabytes: str
) -> None:
    monkeypatch.setenv("TTABENCH_SOURCE_GB", gigabytes)
    monkeypatch.setattr(worker, "find_method", lambda name: Sharp)
    for shift in (10, 1000):
        setting.one(replace(CELL, config=(("shift", shift),)))
    (blunt, sharp), (also_blunt, sharper) = [method.entropies for method in Toy.made]  # type: ignore[attr-defined]
    assert blunt == also_blunt
    assert blunt > sharp + 0.01 > sharper + 0.02


def keep_source_data(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """From now on: what folders of source data are opened with."""
    caches: list[tuple[Any, ...]] = []

    def source_cache(*asked: Any) -> str:
        caches.append(asked)
        return "cache"

    monkeypatch.setattr(worker, "SourceCache", source_cache)
    return caches


def test_source_data_are_kept_on_disk(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []
    original = worker.SourceImages

    def source_images(*asked: Any) -> Any:
        given.append(asked)
        return original(*asked)

    source_images.__module__ = "provider"
    monkeypatch.setattr(worker, "SourceImages", source_images)
    caches = keep_source_data(monkeypatch)
    setting.run(CELL)
    setting.run(replace(CELL, seed=1))
    folder = worker.cache_dir() / "source"
    assert caches == [(folder, ("f" * 64, "c" * 64, "code of provider"))] * 2
    _, needs, device, _, cache = given[0]
    assert (needs, device, cache) == (Toy.needs, "cpu", "cache")


def test_source_data_of_networks_from_elsewhere_are_kept_by_their_own_code(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = SimpleNamespace(recall=lambda sha256: setting.loaded, trainable=False)
    monkeypatch.setattr(worker, "resolve_model", lambda *_: loaded)
    caches = keep_source_data(monkeypatch)
    setting.run(CELL)
    [(_, (_, _, code))] = caches
    assert code == "code of ttabench.measure.any_network"


def test_source_data_of_own_image_files_are_kept_by_what_decodes_them(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "of_image_files", lambda data: data is setting.data)
    caches = keep_source_data(monkeypatch)
    setting.run(CELL)
    [(_, (_, _, code))] = caches
    assert code == "code of ttabench.measure.source_access and files"


def test_nothing_is_kept_from_one_network_or_dataset_to_another(setting: Setting) -> None:
    for changed in ({}, {"arch": "cct"}, {"checkpoint": "d" * 64}, {"dataset": "other"}):
        setting.one(replace(CELL, **changed))  # type: ignore[arg-type]
    assert setting.opened == ["pixels", "other"]
    assert setting.recalled == [
        ("reads", "c" * 64), ("cct", "c" * 64), ("reads", "d" * 64), ("reads", "c" * 64)
    ]  # fmt: skip
    assert len(Toy.made) == len(setting.timed) == 4
    assert len(setting.worker.state._kinds["memory"]) == 4


def test_a_worker_of_another_sweep_writes_to_its_own_folder(setting: Setting, tmp_path: Path) -> None:
    Store.create(tmp_path / "second", {})
    setting.run(CELL)
    setting.worker = replace(setting.worker, results=tmp_path / "second")  # with the state of the first one
    setting.run(CELL, SNOW)
    counts = [len(Store.at(tmp_path / name).latest()) for name in ("r", "second")]
    assert counts == [1, 2]


def test_the_classifier_is_in_eval_mode(setting: Setting) -> None:
    assert not setting.worker.classifier(CELL).classifier.training


def test_freeing_memory_lets_go_of_all_that_can_be_made_again(setting: Setting) -> None:
    setting.run(CELL)
    writer = setting.worker.writer()
    kinds = setting.worker.state._kinds
    let_go = {"prepared method", "classifier", "dataset"}
    assert let_go < set(kinds)
    setting.worker.free_memory()
    assert not let_go & set(kinds)
    setting.run(CELL)
    assert len(Toy.made) == len(setting.opened) == len(setting.recalled) == 2
    assert setting.worker.writer() is writer


# ---- cells that fail


def failing(monkeypatch: pytest.MonkeyPatch, problem: BaseException) -> None:
    """Adaptation fails once."""
    problems = [problem]

    def adapt(self: Toy, x: Tensor) -> Tensor:
        if problems:
            raise problems.pop()
        return self.predict(x)

    monkeypatch.setattr(Toy, "adapt", adapt)


def test_a_failure_replaces_no_result_of_a_continual_run_that_begins_again(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.one()
    failing(monkeypatch, ValueError("no such thing"))
    setting.worker = replace(setting.worker, done=frozenset({CELL.cell_id}))
    (snow,) = setting.run(CELL, SNOW)
    assert snow.reason == "fog-5, earlier in this continual run, failed: ValueError: no such thing"
    latest = Store.at(setting.worker.results).latest()
    assert {cell_id: record.result.status for cell_id, record in latest.items()} == {
        CELL.cell_id: "ok", SNOW.cell_id: "failed"
    }  # fmt: skip


def test_after_a_failure_the_rest_of_a_continual_run_fails_and_the_next_run_does_not(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, ValueError("no such thing\nat all"))
    frost = replace(CELL, corruption="frost")
    first, second, third = setting.run(CELL, SNOW, frost)
    assert (first.status, first.reason) == ("failed", "ValueError: no such thing")
    assert first.details["traceback"].endswith("ValueError: no such thing\nat all\n")
    reason = "fog-5, earlier in this continual run, failed"
    assert [(r.status, r.reason) for r in (second, third)] == [("failed", reason)] * 2
    assert [event.cell for event in setting.events] == [str(CELL)] * 2
    stored = Store.at(setting.worker.results).latest()
    assert [stored[c.cell_id].result.status for c in (CELL, SNOW, frost)] == ["failed"] * 3
    setting.one()


def test_how_many_workers_share_the_gpu_is_stored_with_the_cost(setting: Setting) -> None:
    assert "per_gpu" not in setting.one().details["cost"]
    setting.worker = replace(setting.worker, per_gpu=7)
    assert setting.one(SNOW).details["cost"]["per_gpu"] == 7
    cells = Store.at(setting.worker.results).frame().set_index("corruption")
    assert cells["per_gpu"].isna().to_dict() == {"fog": True, "snow": False}


def test_recomputed_activations_are_stored_with_the_cost(setting: Setting) -> None:
    assert "recomputed" not in setting.one().details["cost"]
    setting.worker = replace(setting.worker, recompute=True, state=WorkerState())
    with pytest.warns(UserWarning, match=f"{CELL.arch}: no blocks were found"):
        assert setting.one(SNOW).details["cost"]["recomputed"] == 1


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (UnusableModel("it is NaN"), "it is NaN"),
        (UserError("two\nlines"), "two\nlines"),
        (KeyError(), "KeyError: KeyError"),
        (MemoryError(), "out of memory: MemoryError: MemoryError"),
        (RuntimeError("CUDA out of memory. 2 GB"), "out of memory: RuntimeError: CUDA out of memory. 2 GB"),
        (
            RuntimeError("DefaultCPUAllocator: not enough"),
            "out of memory: RuntimeError: DefaultCPUAllocator: not enough",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "out of memory: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
            "`cublasCreate(handle)`",
        ),
        (torch.OutOfMemoryError("gone"), "out of memory: OutOfMemoryError: gone"),
    ],
)
def test_the_reason_of_a_failure(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, problem: Exception, reason: str
) -> None:
    failing(monkeypatch, problem)
    (result,) = setting.run(CELL)
    assert (result.status, result.reason, result.accuracy) == ("failed", reason, None)
    assert type(problem).__name__ in result.details["traceback"]
    is_memory = reason.startswith("out of memory")
    assert (problem.__traceback__ is None) == is_memory  # its frames hold tensors
    setting.one()
    assert len(Toy.made) == 1 + is_memory  # made anew where all was dropped


def test_a_method_that_exits_fails_the_cell_alone_and_sigterm_ends_all(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, SystemExit(0))
    (result,) = setting.run(CELL)
    assert result.status == "failed"
    assert result.reason.startswith("RuntimeError: its code calls exit(0), which would end the whole process")
    assert "test_worker.py" in result.details["traceback"]
    setting.one(SNOW)
    failing(monkeypatch, SystemExit(143))
    with pytest.raises(SystemExit):
        setting.run(CELL)


class Unspoken(ValueError):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_an_exception_that_cannot_be_printed_fails_the_cell_alone(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, Unspoken())
    (result,) = setting.run(CELL)
    assert result.status == "failed"
    setting.one()


def test_the_traceback_is_the_one_that_python_prints() -> None:
    try:
        raise ValueError("no such thing")
    except ValueError as problem:
        result = worker.failed(CELL, problem)
        assert result.details["traceback"] == traceback.format_exc()


def test_a_long_traceback_keeps_its_end(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ValueError("x" * 9000 + "the end"))
    (result,) = setting.run(CELL)
    assert len(result.details["traceback"]) == 4000
    assert result.details["traceback"].endswith("the end\n")


def test_data_that_change_during_a_sweep_fail_the_cell(setting: Setting) -> None:
    setting.data.hash = "abcdef" * 10
    (result,) = setting.run(CELL)
    assert (
        result.reason == "the data of pixels changed during the sweep (now abcdefabcdef); run the sweep again"
    )


def test_weights_that_are_gone_fail_the_cell(setting: Setting) -> None:
    setting.loaded = None
    (result,) = setting.run(CELL)
    assert (
        result.reason
        == "the cache no longer has the weights cccccccccccc of reads on pixels; run the sweep again"
    )


# ---- long streams


class Ten(ImageStream):
    total = scored = 10

    def read(self, start: int, stop: int) -> Batch:
        assert 0 <= start < stop
        all_of = labelled(10)
        return Batch(all_of.images[start:stop], all_of.labels[start:stop])


@pytest.fixture
def streamed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Cell:
    def stream_of(
        cell: Cell, dataset: Dataset, classifier: Classifier, results: Path, device: str
    ) -> ImageStream:
        assert (dataset, results, device) == (setting.data, setting.worker.results, "cpu")
        assert cell.protocol.stream == "gradual"
        assert isinstance(classifier, Classifier)
        return Ten()

    monkeypatch.setattr(cell_images, "stream_of", stream_of)
    protocol = Protocol(batch_size=4, stream="gradual", reset="continual")
    return replace(CELL, corruption="gradual", severity=0, protocol=protocol)


def test_a_long_stream_is_one_cell_with_windows(setting: Setting, streamed: Cell) -> None:
    setting.worker = replace(setting.worker, scores="all")
    result = setting.one(streamed)
    assert (result.accuracy, result.n_images) == (100.0, 10)
    assert result.details["windows"]
    assert result.details["cost"]["images"] == result.details["cost"]["forward"] == 10
    scores = result.details["unlabelled"]
    assert (scores["consistency"], scores["source_accuracy"]) == (None, None)  # its images come once
    assert scores["entropy"] is not None
    assert (setting.events[-1].total, setting.events[-1].right) == (10, 10)
    assert len(setting.timed[0][1]) == 4


def test_the_saved_state_of_a_stream_is_removed_at_its_end(
    setting: Setting, streamed: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    class State:
        file = Path("not there")
        beside: Any = None
        identity: dict[str, Any] = {}  # noqa: RUF012
        removed = 0

        def load(self, *_: Any) -> bool:
            return False

        def due(self) -> bool:
            return False

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

        def remove(self) -> None:
            State.removed += 1

    asked: list[tuple[Any, ...]] = []

    def checkpoint_of(*given: Any) -> State:
        asked.append(given)
        return State()

    scored: list[tuple[Any, ...]] = []
    original = cell_images.evaluate

    def evaluate(*given: Any) -> Any:
        scored.append(given)
        return original(*given)

    for module in (cell_images, worker):
        monkeypatch.setattr(module, "checkpoint_of", checkpoint_of)
    monkeypatch.setattr(cell_images, "evaluate", evaluate)
    setting.one(streamed)
    assert State.removed == 1
    ((_, _, protocol, seed, device, _, classes, _, state),) = scored
    assert (protocol, seed, device, classes) == (streamed.protocol, 0, "cpu", ())
    assert isinstance(state, State)
    assert isinstance(state.beside["collected"], worker.Collected)
    assert isinstance(state.beside["passes"], Passes)
    assert asked == [(streamed, setting.worker.results, "cpu")] * 2


def batches_of(monkeypatch: pytest.MonkeyPatch, stops_at: int = 0) -> list[int]:
    """The sizes of the batches that `Toy` adapts to from now on; it fails once, at batch `stops_at`."""
    batches: list[int] = []

    def adapt(self: Toy, x: Tensor) -> Tensor:
        batches.append(len(x))
        if len(batches) == stops_at:
            raise MemoryError
        return self.predict(x)

    monkeypatch.setattr(Toy, "adapt", adapt)
    return batches


def test_a_stream_whose_result_could_not_be_stored_goes_on_from_its_saved_state(
    setting: Setting, streamed: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, or where the process is killed after the last image."""
    batches = batches_of(monkeypatch)

    def full(writer: Writer, result: Result) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append", full)
        with pytest.raises(UserError, match="the disk is full"):
            setting.run(streamed)
    assert batches == [4, 4, 2]
    assert setting.one(streamed).n_images == 10
    assert batches == [4, 4, 2, 2]
    assert not list((setting.worker.results / "streams").iterdir())


def test_no_stream_goes_on_from_the_state_of_a_method_that_was_refused_at_its_end(
    setting: Setting, streamed: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(worker, "replaced_part", lambda: "torch.cat")
    (result,) = setting.run(streamed)
    assert "has replaced torch.cat" in result.reason
    assert not list((setting.worker.results / "streams").iterdir())


def test_a_stream_that_was_stopped_on_another_kind_of_processor_begins_again(
    setting: Setting, streamed: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first images would have other roundings than its last ones, and no processor gives its number."""
    batches = batches_of(monkeypatch, stops_at=3)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(cell_images, "processor", lambda device: "one")
    assert setting.run(streamed)[0].status == "failed"
    monkeypatch.setattr(cell_images, "processor", lambda device: "another")
    assert setting.one(streamed).n_images == 10
    assert batches == [4, 4, 2, 4, 4, 2]


@pytest.mark.parametrize("at", [8, 10])  # of the directory: whether it is encrypted, how it is compressed
def test_a_stream_whose_state_a_disk_damaged_begins_again(
    setting: Setting, streamed: Cell, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Each run failed with an error of zipfile, until somebody deleted the file."""
    batches = batches_of(monkeypatch, stops_at=3)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    assert setting.run(streamed)[0].status == "failed"
    (state,) = (setting.worker.results / "streams").iterdir()
    content = bytearray(state.read_bytes())
    content[content.index(b"PK\x01\x02") + at] ^= 1
    state.write_bytes(content)
    with pytest.warns(UserWarning, match=r"is damaged \(.+\); this stream starts from its first image"):
        assert setting.one(streamed).n_images == 10
    assert batches == [4, 4, 2, 4, 4, 2]


def test_a_stream_goes_on_from_the_last_state_that_a_full_disk_took(
    setting: Setting, streamed: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_of(monkeypatch, stops_at=3)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    whole, saved = np.savez, []

    def savez(file: Any, **arrays: Any) -> None:
        saved.append(file)
        if len(saved) == 2:
            file.write(b"PK half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(file, **arrays)

    monkeypatch.setattr(np, "savez", savez)
    with pytest.warns(UserWarning, match=r"cannot take the state of a stream \(No space left on device\)"):
        assert setting.run(streamed)[0].status == "failed"
    assert setting.one(streamed).n_images == 10
    assert batches == [4, 4, 2, 4, 2]  # the first batch is that of the state, which is whole


def test_data_that_change_while_a_stream_runs_fail_the_cell(
    setting: Setting, streamed: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adapt(self: Toy, x: Tensor) -> Tensor:
        setting.data.hash = "0" * 64
        return self.predict(x)

    monkeypatch.setattr(Toy, "adapt", adapt)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    (result,) = setting.run(streamed)
    assert not list((setting.worker.results / "streams").iterdir())
    assert (
        result.reason == "the data of pixels changed during the sweep (now 000000000000); run the sweep again"
    )
