"""What a method warns of is told in one sentence, once, wherever it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.conftest import Run
from ttabench.data.files.read_image import read_image
from ttabench.errors import Alarm, forward_warnings
from ttabench.run.executors import local
from ttabench.run.kept_objects import WorkerState
from ttabench.store import load_frame


@pytest.fixture
def told() -> Iterator[list[UserWarning]]:
    heard: list[UserWarning] = []
    with warnings.catch_warnings():
        forward_warnings(heard.append)
        yield heard


def test_each_sentence_is_told_once(told: list[UserWarning]) -> None:
    for text in ("resnet18 is bad", "resnet50 is bad", "resnet18 is bad"):
        warnings.warn(text, stacklevel=1)
    assert list(map(str, told)) == ["resnet18 is bad", "resnet50 is bad"]


def test_alarms_that_differ_in_their_numbers_only_are_one(told: list[UserWarning]) -> None:
    for text in ("m1: 5 > 0.03 of 2 batches", "m1: 5 > 1e-07 of 40 batches", "m2: 5 > 0.03 of 2 batches"):
        warnings.warn(text, Alarm, stacklevel=1)
    assert list(map(str, told)) == ["m1: 5 > 0.03 of 2 batches", "m2: 5 > 0.03 of 2 batches"]
    assert {type(one) for one in told} == {Alarm}


def test_what_is_meant_for_programmers_is_dropped(
    told: list[UserWarning], capsys: pytest.CaptureFixture[str]
) -> None:
    warnings.warn("old", DeprecationWarning, stacklevel=1)
    warnings.warn("divide by zero", RuntimeWarning, stacklevel=1)
    assert told == []
    assert capsys.readouterr() == ("", "")


def test_torch_does_not_warn_of_images_that_are_mapped_from_a_file(told: list[UserWarning]) -> None:
    text = "The given NumPy array is not writable, and PyTorch does not support non-writable tensors."
    warnings.warn(text, UserWarning, stacklevel=1)
    warnings.warn("resnet18 is bad", UserWarning, stacklevel=1)
    assert list(map(str, told)) == ["resnet18 is bad"]


def test_pillow_does_not_warn_of_transparency_that_is_dropped(
    told: list[UserWarning], tmp_path: Path
) -> None:
    colours = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    Image.fromarray(colours).convert("P").save(tmp_path / "a.png", transparency=bytes(range(256)))
    assert read_image(tmp_path / "a.png", 8).shape == (8, 8, 3)
    assert told == []


@dataclass(frozen=True)
class Warns:
    text: str

    def __call__(self, emit: Callable[[Any], None], state: WorkerState) -> str:
        emit("event")
        warnings.warn(self.text, Alarm, stacklevel=1)
        return "done"


@pytest.mark.usefixtures("forked_workers")
def test_workers_pass_them_on(told: list[UserWarning], capfd: pytest.CaptureFixture[str]) -> None:
    long = "long " * 5000  # longer than what a pipe takes in one piece
    events = list(local.run([Warns("a"), Warns("a"), Warns(long)], 2))
    assert sorted(events) == ["done"] * 3 + ["event"] * 3
    assert sorted(str(one)[:4] for one in told) == ["a", "long"]
    assert {type(one) for one in told} == {Alarm}
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_alarm_is_told_once_per_sweep(tmp_path: Path, workers: str, ttabench: Run) -> None:
    what = ("--methods", "eta[d_margin=0.05]", "--archs", "resnet18", "--corruptions", "fog,snow,frost")
    output = ttabench("sweep", *what, "--limit", "20", "--workers", workers, "--out", tmp_path)
    assert output.code == 0, output.err
    alarm = "eta: d_margin 0.05 < 1/√C = 0.316 rejects all confident samples"
    told = [line for line in output.err.splitlines() if alarm in line and not line.startswith("[")]
    assert told == [f"ttabench: warning: {alarm}"]
    assert ".py:" not in output.err
    cells = load_frame(tmp_path)
    assert cells.loc[cells["base"] == "eta", "alarm"].str.contains("d_margin").all()


@pytest.mark.usefixtures("short_memory_check")
def test_conform_tells_them_the_same_way(ttabench: Run) -> None:
    output = ttabench("conform", "eta[d_margin=0.05]")
    assert output.code == 0, output.out
    assert (
        output.err == "ttabench: warning: eta: d_margin 0.05 < 1/√C = 0.447 rejects all confident samples\n"
    )
