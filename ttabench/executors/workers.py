"""How many workers a sweep or a training starts, and which GPU each one has."""

from __future__ import annotations

import os
from functools import partial

from ttabench.cores import available_cores
from ttabench.errors import UserError
from ttabench.executors import NO_LIMITS, Executor, Limits, inline, local
from ttabench.executors.process import resident


def pick_executor(workers: int, device: str, limits: Limits = NO_LIMITS) -> Executor:
    """What runs jobs: this process for 0 workers, else processes, each bound to its GPU.

    Raises UserError where limits are asked for in this process, which cannot kill itself and go on.
    """
    if limits.memory and not resident(os.getpid()):
        raise UserError("--cell-memory watches processes through /proc, which this system does not have.")
    if workers:
        return partial(local.run, environments=bindings(device), limits=limits)
    if limits != NO_LIMITS:
        raise UserError("--cell-timeout and --cell-memory need a worker process; set --workers to 1 or more.")
    return inline.run


def bindings(device: str) -> tuple[dict[str, str], ...]:
    """The variables that bind worker 0, 1, … to GPU 0, 1, … of those that this process may use.

    ``cuda`` is every GPU, and means in each worker the one that is its own; ``cuda:1`` stays that GPU.
    """
    if device != "cuda":
        return ({},)
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()]
    names = names or [str(index) for index in range(torch.cuda.device_count())]
    return tuple({"CUDA_VISIBLE_DEVICES": name} for name in names[: torch.cuda.device_count()]) or ({},)


def pick_workers(text: str, device: str, count: int, per_gpu: int = 1) -> int:
    """ "auto" → `per_gpu` per GPU, or one per core on the CPU; 0 runs in this process. Raises UserError."""
    if text != "auto":
        try:
            number = int(text)
        except ValueError:
            number = -1
        if number < 0:
            raise UserError(f"--workers {text}: expected auto or a whole number (0 = in this process).")
        return number
    if device.startswith("cuda"):
        import torch

        return per_gpu * (max(1, torch.cuda.device_count()) if device == "cuda" else 1)
    return max(1, min(available_cores(), count))
