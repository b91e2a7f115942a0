"""Workers on this machine: how many there are, and which GPU each one has."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import partial

from ttabench.errors import UserError
from ttabench.run.executors import NO_LIMITS, Engine, Executor, Limits, Setup, inline, local, take_options
from ttabench.run.executors.watched_worker import resident
from ttabench.system.cores import available_cores
from ttabench.system.environment import pick_device


def engine(setup: Setup) -> Engine:
    """``--executor local``: processes on this machine, see :func:`ttabench.run.executors.local.run`."""
    take_options(setup, "local", {})
    device = pick_device(setup.device)
    workers = pick_workers(setup.workers, device, available_cores(), setup.per_gpu)
    run = pick_executor(workers, device, setup.limits)
    per_gpu = sharing(workers, device, setup.per_gpu)
    return Engine(run, workers, device if workers else own_gpu(device), per_gpu=per_gpu)


def pick_executor(
    workers: int, device: str, limits: Limits = NO_LIMITS, variables: Mapping[str, str] = {}
) -> Executor:
    """What runs jobs: this process for 0 workers, else processes with these variables, each bound to its GPU.

    Raises UserError for limits without worker processes: this process cannot stop one of its own cells.
    """
    if limits.memory and not resident(os.getpid()):
        raise UserError("--cell-memory watches processes through /proc, which this system does not have.")
    if workers:
        environments = [{**variables, **bound} for bound in bindings(device)]
        return partial(local.run, environments=environments, limits=limits)
    if limits != NO_LIMITS:
        raise UserError("--cell-timeout and --cell-memory need a worker process; set --workers to 1 or more.")
    return inline.run


def bindings(device: str) -> tuple[dict[str, str], ...]:
    """The variables that bind worker 0, 1, … to GPU 0, 1, … of those that this process may use.

    ``cuda`` is every GPU, and means in each worker the one that is its own; ``cuda:1`` stays that GPU. Under
    torchrun, and in a step of srun, each rank of a machine has its share of the GPUs there, see `gpu_rank`.
    """
    if device != "cuda":
        return ({},)
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()]
    names = (names or [str(index) for index in range(count)])[:count]
    rank, ranks = gpu_rank(count)
    ours = names[rank::ranks] or names[rank % max(1, len(names)) :][:1]
    return tuple({"CUDA_VISIBLE_DEVICES": name} for name in ours) or ({},)


def own_gpu(device: str) -> str:
    """The device of this process itself: for ``cuda`` the first GPU of its share, see :func:`bindings`."""
    if device != "cuda" or local_rank()[1] == 1:
        return device
    import torch

    count = torch.cuda.device_count()
    rank, ranks = gpu_rank(count)
    return device if ranks == 1 else f"cuda:{rank % max(1, count)}"


def gpu_rank(count: int) -> tuple[int, int]:
    """The index of this process among those that share the `count` GPUs that it sees, and their number."""
    if "LOCAL_RANK" not in os.environ and count < int(os.environ.get("SLURM_GPUS_ON_NODE") or 0):
        return 0, 1  # Slurm has given this task GPUs of its own
    return local_rank()


def local_rank() -> tuple[int, int]:
    """The index of this process among those that torchrun or srun started here, and how many; else (0, 1)."""
    try:
        if "LOCAL_RANK" in os.environ:
            rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        else:
            rank = int(os.environ["SLURM_LOCALID"])
            ranks = tasks_of_node(os.environ["SLURM_STEP_TASKS_PER_NODE"], int(os.environ["SLURM_NODEID"]))
    except (KeyError, ValueError, IndexError):
        return 0, 1
    return (rank, ranks) if 0 <= rank < ranks else (0, 1)


def tasks_of_node(text: str, node: int) -> int:
    """``tasks_of_node("2(x3),1", 3)`` → 1: three nodes have two tasks each, the fourth has one.

    Raises ValueError and IndexError for a text that is none.
    """
    tasks: list[int] = []
    for part in text.split(","):
        count, _, times = part.removesuffix(")").partition("(x")
        tasks += [int(count)] * int(times or 1)
    return tasks[node]


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
        return per_gpu * len(bindings(device))
    return max(1, min(own_cores(), count))


def sharing(workers: int, device: str, per_gpu: int) -> int:
    """The workers on each GPU: `per_gpu`, or more where so many `workers` were asked for; 0 without a GPU."""
    if not device.startswith("cuda"):
        return 0
    return max(per_gpu, math.ceil(workers / len(bindings(device))))


def own_cores() -> int:
    """The cores of this process: its share where torchrun or srun started several that have the same ones.

    Of a node whose cores Slurm does not bind, those that it has granted.
    """
    cores = available_cores()
    granted = int(os.environ.get("SLURM_CPUS_ON_NODE") or 0) or cores
    if "LOCAL_RANK" not in os.environ and cores < granted:
        return cores  # Slurm has bound this task to cores of its own
    return max(1, min(cores, granted) // local_rank()[1])
