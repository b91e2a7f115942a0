"""Sweeps as processes of their own, of few images and a network whose forward passes take a stated time."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttabench.store import Store

NET = """
import multiprocessing, os, time, torch
class Net(torch.nn.Sequential):
    def forward(self, x):
        if multiprocessing.parent_process():
            time.sleep(float(os.environ.get("PAUSE", "0.02")))
        return super().forward(x)
def build(num_classes):
    torch.manual_seed(0)
    pool = [torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.BatchNorm1d(48)]
    return Net(*pool, torch.nn.Linear(48, num_classes))
"""
NET_ON_FEW = ("--archs", "net:build", "--datasets", "./few-c-local", "--batch-size", "10")
GRID = ("--methods", "bn_stats", *NET_ON_FEW)


def environment(folder: Path, pause: float = 0.02) -> dict[str, str]:
    """For a process in `folder`, which has ``net.py``; pause: seconds of a forward pass in a worker."""
    path = os.pathsep.join([str(folder), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "PAUSE": str(pause), "OMP_NUM_THREADS": "1"}


def records(out: Path) -> Counter[str]:
    """How many results each cell has."""
    return Counter(record.cell_id for record in Store.at(out).records())


def correct(out: Path) -> dict[str, bytes]:
    """Which images each cell has right: the bits of its number."""
    return {key: record.result.correct for key, record in Store.at(out).latest().items()}


def wait_for(condition: Callable[[], Any], seconds: float = 300) -> None:
    """The limit is far above what it takes on a busy machine: to start a process can take a minute."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)
