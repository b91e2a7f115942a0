"""How many processor cores and threads a process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")
ONE_NUMPY_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""For the environment of a process that has not imported NumPy, whose wheels use OpenBLAS. The matrices of
ttabench are small: threads would wait for each other, on a busy machine a hundred times as long as the
product takes. A command keeps what its user has set; a worker always has one thread."""


def available_cores() -> int:
    """The number of cores that this process may use, at least 1; the machine may have more.

    A container may have a share of the time of all cores, such as two cores' worth of 64.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """In the block, torch computes with so many CPU threads; after it, with as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quota() -> float:
    """Cores' worth of time that control groups grant to this process; infinite without a limit."""
    try:
        lines = MINE.read_text().splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / controllers if controllers else CGROUPS
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            least = min(least, _granted(folder))
            if folder == root:
                break
    return least


def _granted(folder: Path) -> float:
    """The limit of one control group, of version 2 or 1; infinite where it has none."""
    try:
        if (limit := folder / "cpu.max").exists():
            quota, period = limit.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError):  # no such file, or "max"
        return math.inf
