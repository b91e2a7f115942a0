"""The GPU of a process: its number, its memory, and the end of a process whose GPU refuses all work."""

from __future__ import annotations

import multiprocessing
import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.unit.conftest import Run
from ttabench.cell import Cell, Result
from ttabench.cli import doctor
from ttabench.errors import UserError
from ttabench.run import cell_group as unit
from ttabench.run.cell_group import CellGroup
from ttabench.run.gpu import check_gpu, free_gpu_memory, use_gpu
from ttabench.run.kept_objects import WorkerState
from ttabench.run.worker import Worker
from ttabench.store import Store
from ttabench.sweep import compute_ratio
from ttabench.sweep.plan import find_sources

POISONED = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is asked of CUDA on a machine with two GPUs of 80 GB, of which the first is current."""
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: made.append(("device", index)))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made[0][1] if made else 0)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(total_memory=80_000_000_000)
    )
    # This function is torch's own: it refuses a device without an index.
    monkeypatch.setattr(torch.cuda.memory, "_lazy_init", lambda: None)
    limit = lambda share, index: made.append(("memory", share, index))  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_setMemoryFraction", limit, raising=False)
    return made


@pytest.mark.parametrize(
    ("device", "memory", "expected"),
    [
        ("cpu", 8_000_000_000, []),
        ("cuda", 0, []),
        ("cuda", 8_000_000_000, [("memory", 0.1, 0)]),
        ("cuda:1", 0, [("device", 1)]),
        ("cuda:1", 160_000_000_000, [("device", 1), ("memory", 1.0, 1)]),
    ],
)
def test_a_process_uses_its_gpu_and_its_share_of_the_memory(
    calls: list[tuple[Any, ...]], device: str, memory: int, expected: list[tuple[Any, ...]]
) -> None:
    use_gpu(device, memory)
    assert calls == expected


class Ended(BaseException):
    pass


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA refuses all work, and a worker process that ends raises Ended."""

    def synchronize(device: str) -> None:
        raise RuntimeError(POISONED)

    def leave(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(os, "_exit", leave)


@pytest.mark.usefixtures("poisoned")
def test_a_worker_process_with_a_lost_gpu_ends_and_another_process_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_gpu("cpu")
    with pytest.raises(
        UserError, match=r"device-side assert triggered\); run the same command in a new one\.$"
    ):
        check_gpu("cuda")
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    with pytest.raises(Ended, match="1"):
        check_gpu("cuda")


def test_a_gpu_that_was_not_used_yet_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: pytest.fail("CUDA was started"))
    check_gpu("cuda")


def test_after_a_cell_that_loses_the_gpu_no_other_cell_fails_in_this_process(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first cell is recorded as failed. The executor then gives the other ones to a new process."""
    ran: list[tuple[Cell, ...]] = []

    def run(worker: Worker, cells: tuple[Cell, ...], stored: Callable[[Result], None]) -> None:
        ran.append(cells)
        stored(Result(cell=cells[0], status="failed", reason="AcceleratorError: CUDA error"))

    def check(device: str) -> None:
        if ran:
            raise Ended

    monkeypatch.setattr(Worker, "run", run)
    monkeypatch.setattr(unit, "check_gpu", check)
    monkeypatch.setattr(unit, "use_gpu", lambda device, memory: None)
    results = Store.create(tmp_path / "results", {}).root
    events: list[Any] = []
    first, second = cell, replace(cell, seed=cell.seed + 1)
    with pytest.raises(Ended):
        CellGroup(((first,), (second,)), results, "cuda")(events.append, WorkerState())
    assert ran == [(first,)]
    (done,) = [event for event in events if getattr(event, "results", ())]
    running, rest = CellGroup(((first,), (second,)), results, "cuda").split(done.finished)
    assert running is not None
    assert (running.cells, rest) == ((second,), None)


class Loop:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


class Held:
    """What holds memory of a GPU, and whether it is still `alive` each time that the memory is given back."""

    def __init__(self) -> None:
        self.alive: list[bool] = []

    def hold(self) -> None:
        self._loop = weakref.ref(Loop())

    def look(self) -> None:
        self.alive.append(self._loop() is not None)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    monkeypatch.setattr(torch.cuda, "empty_cache", held.look)
    return held


def test_memory_is_given_back_after_what_held_it_is_gone(held: Held) -> None:
    held.hold()
    free_gpu_memory("cpu")
    assert held.alive == []
    free_gpu_memory("cuda:1")
    assert held.alive == [False]


def test_a_measured_compute_ratio_leaves_the_memory_of_the_gpu_to_the_workers(
    cell: Cell, held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(cell: Cell, device: str) -> float:
        held.hold()
        return 2.0

    monkeypatch.setattr(compute_ratio, "measured", measured)
    ratios = compute_ratio.Ratios(tmp_path, "cuda", say=lambda text: None)
    assert ratios(replace(cell, checkpoint="c" * 64)) == 2.0
    assert held.alive == [False]


def test_a_classifier_measured_before_the_sweep_leaves_the_memory_to_the_workers(held: Held) -> None:
    def load(device: str, progress: Any, *, measure: bool) -> Any:
        held.hold()
        return SimpleNamespace(classifier=classifier, sha256="w" * 64, note={})

    classifier = SimpleNamespace(architecture=lambda: "facts")
    data = SimpleNamespace(name="digits", num_classes=10, fingerprint=lambda: "f")
    model: Any = SimpleNamespace(
        name="timm/a", dataset=data, measured=data, ready=True, trainable=True, load_with_warnings=load
    )
    assert [source.name for source in find_sources([model], "cuda")] == ["timm/a"]
    assert held.alive == [False]


# ---- what ttabench doctor says


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "GPU_DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_doctor_tries_every_gpu(ttabench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def name(index: int) -> str:
        if index:
            raise RuntimeError("The NVIDIA driver on your system is too old\nmore")
        return "H100"

    ones = torch.ones

    def refused(*size: int, device: Any = None, **how: Any) -> Any:
        if device == "cuda:0":
            raise RuntimeError("CUDA error: no kernel image is available\nmore")
        return ones(*size, device=device, **how)

    monkeypatch.setattr(torch.cuda, "get_device_name", name)
    monkeypatch.setattr(torch, "ones", refused)
    output = ttabench("doctor")
    assert output.code == 1
    assert "devices        H100\n" in output.out
    assert (
        "problem: GPU 0 cannot compute (CUDA error: no kernel image is available): "
        "look at its driver, or give --device cpu\n"
        "problem: GPU 1 cannot compute (The NVIDIA driver on your system is too old): "
        "look at its driver, or give --device cpu\n"
        "2 problems\n"
    ) in output.out


def test_one_problem_is_one(ttabench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_plugins", lambda: ["broken"])
    assert ttabench("doctor").out.endswith("\nproblem: broken\n1 problem\n")


@pytest.mark.usefixtures("two_gpus")
def test_doctor_says_that_torch_has_no_cuda(ttabench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    output = ttabench("doctor")
    assert output.code == 0
    assert f"cpu only (torch {torch.__version__} is a build without CUDA)" in output.out
