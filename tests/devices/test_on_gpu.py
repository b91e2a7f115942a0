"""On a GPU: each method makes the host wait about as seldom as the emulated device says.

CUDA says itself where the host waits. It counts a copy from ordinary memory of the host too, and some
operations wait more than once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.conformance.test_all_methods import others_at_night
from tests.devices.test_methods import (
    AT_NIGHT,
    BATCH,
    OTHERS,
    SMALL_BATCH,
    WAITS,
    copies,
    prepared,
    stream,
)
from ttabench.registry import method_names

TIMES = 2  # waits of CUDA for one that the emulated device counts
SAID = "called a synchronizing CUDA operation"


@contextmanager
def waits_of_cuda() -> Iterator[list[str]]:
    """What made the host wait in the block, after it; each as ``file:line`` of the Python code."""
    waits: list[str] = []
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True, action="always") as said:
            yield waits
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits += [f"{each.filename}:{each.lineno}" for each in said if SAID in str(each.message)]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", others_at_night({*method_names()} - {*AT_NIGHT}))
def test_a_method_seldom_makes_the_host_wait_for_a_gpu(name: str) -> None:
    adapting, predicting, _ = WAITS.get(name, OTHERS)
    method, batches = prepared(name), list(stream(SMALL_BATCH.get(name, BATCH)))
    method.adapt(batches[0])  # kernels are loaded
    method.predict(batches[0])
    for x in batches[1:]:
        with waits_of_cuda() as waits:
            assert method.adapt(x).is_cuda
        assert len(waits) <= TIMES * (adapting + copies(name)), waits
    with waits_of_cuda() as waits:
        method.predict(x)
    assert len(waits) <= TIMES * (predicting + copies(name)), waits


def test_what_cuda_says_of_waits_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    with waits_of_cuda() as waits:
        for text in (SAID, "another warning", SAID):
            warnings.warn(f"{text} (Triggered internally at CUDAFunctions.cpp:149.)", stacklevel=1)
    assert len(waits) == 2
    assert "test_on_gpu.py:" in waits[0]
    assert modes == ["warn", "default"]
