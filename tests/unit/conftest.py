from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.unit.stored_results import CELL
from tests.unit.sweep_processes import NET
from tests.unit.web import Mirror, serving
from ttabench.cell import Cell, Result


@pytest.fixture
def cell() -> Cell:
    return CELL


@pytest.fixture
def result(cell: Cell) -> Result:
    return Result(
        cell=cell, status="ok", accuracy=62.5, clean_accuracy=97.0, n_images=8, seconds=0.5,
        correct=bytes([0b10110110]), details={"adapted": "2 BatchNorm2d"},
    )  # fmt: skip


@pytest.fixture
def other(result: Result) -> Result:
    snow = replace(result.cell, corruption="snow")
    return replace(result, cell=snow, accuracy=50.0, correct=bytes([0b10110100]))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, which no other test sees."""
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of datasets, which no other test sees."""
    monkeypatch.setenv("TTABENCH_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def weights_in_cache(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default classifiers as if they had been trained here: in a cache of this test, none in the package.

    Returns the folder with them.
    """
    from ttabench.models.checkpoints import cache

    shutil.copytree(cache.PRETRAINED / "digits-c", cache.folder("digits-c"))
    monkeypatch.setattr(cache, "PRETRAINED", tmp_path / "none")
    return cache.folder("digits-c")


@pytest.fixture
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of a few images is trained for one epoch, where a test only needs that it is trained."""
    from ttabench.models.training import weights_identity

    fitted = weights_identity.fitted

    def short(recipe: Any, images: int) -> Any:
        made = fitted(recipe, images)
        return replace(made, epochs=1) if images < 500 else made

    monkeypatch.setattr(weights_identity, "fitted", short)


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are copies of one that has imported torch, and what its optimisers import.

    For tests that are not about their start. Each has the variables of its own test, as a new process has.
    """
    from ttabench.run.executors import watched_worker

    context = watched_worker.mp.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "pytest", "ttabench.run.worker"])
    monkeypatch.setattr(watched_worker.mp, "get_context", lambda _method: context)
    made = watched_worker.WorkerProcess.__init__

    def with_variables(worker: watched_worker.WorkerProcess, environment: Mapping[str, str]) -> None:
        made(worker, {**os.environ, **environment})

    monkeypatch.setattr(watched_worker.WorkerProcess, "__init__", with_variables)


SMALL = ("--methods", "tent", "--archs", "resnet18", "--corruptions", "fog,snow", "--limit", "20")


def sweep_once(folder: Path, cache: Path, *options: str) -> Path:
    """The results of a sweep that runs once for several tests; each takes a copy."""
    from ttabench.cli import make_app

    out = folder / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTABENCH_CACHE", str(cache))
        done = CliRunner().invoke(make_app(), ["sweep", *options, "--workers", "0", "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="session")
def _swept(tmp_path_factory: pytest.TempPathFactory, cache_of_the_run: Path) -> Path:
    return sweep_once(tmp_path_factory.mktemp("swept"), cache_of_the_run, *SMALL)


@pytest.fixture
def swept(_swept: Path, tmp_path: Path) -> Path:
    """A folder of its own with the results of a sweep of `SMALL`, which runs once."""
    return Path(shutil.copytree(_swept, tmp_path / "results"))


@pytest.fixture(scope="session")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``few-c-local``: 40 corrupted images of ten classes, read in less time than digits-c."""
    from tests.unit.data_fakes import clean_images, labels_for
    from ttabench.corruptions.corruption_names import CORRUPTIONS
    from ttabench.data.own.generate_corrupted import generate

    folder = tmp_path_factory.mktemp("few")
    np.savez(folder / "few.npz", images=clean_images(40), labels=labels_for(40, 10))
    return generate(folder / "few.npz", root=folder, corruptions=CORRUPTIONS, severities=(5,), workers=0)


@pytest.fixture
def net_out(tmp_path: Path, few_images: Path) -> Path:
    """A results folder beside the network and the images of `sweep_processes.GRID`."""
    (tmp_path / "net.py").write_text(NET)
    shutil.copytree(few_images, tmp_path / few_images.name)
    return tmp_path / "results"


@pytest.fixture
def here(net_out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`net_out`, from where the sweep is started."""
    monkeypatch.chdir(net_out.parent)
    monkeypatch.syspath_prepend(net_out.parent)
    return net_out


@dataclass(frozen=True)
class Output:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Output]
"""The command line: ``ttabench("sweep", "--limit", 20)``."""


@pytest.fixture
def ttabench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process, as its entry point does; Source's forward pass is timed once."""
    from ttabench.cli import main
    from ttabench.observe import cost

    monkeypatch.setattr(cost, "SOURCE_SECONDS", 0.0)

    def run(*arguments: str | Path) -> Output:
        monkeypatch.setattr(sys, "argv", ["ttabench", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        output = capsys.readouterr()
        return Output(code, output.out, output.err)

    return run


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A web server on this machine, and downloads that lose no time on it."""
    from ttabench.data.fetch import download

    monkeypatch.setattr(download, "PAUSE", 0.01)
    monkeypatch.setattr(download, "BLOCK", 1 << 14)
    with serving() as state:
        yield state
