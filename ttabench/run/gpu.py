"""The GPU of a process: which one it is, how much memory it has, and whether it still works.

Torch is imported only where the device is a GPU.
"""

from __future__ import annotations

import gc
import multiprocessing
import os

from ttabench.errors import UserError, first_line


def use_gpu(device: str, memory: int = 0) -> None:
    """Make a GPU such as ``cuda:1`` the one that this thread means by ``cuda``; other devices change nothing.

    memory   bytes that this process may use there, 0 = all. More is an out-of-memory error.
    """
    if not device.startswith("cuda"):
        return
    import torch

    index = torch.device(device).index
    if index is not None:
        torch.cuda.set_device(index)
    if memory:
        # torch takes no `cuda` without an index here.
        index = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(index).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory / total), index)


def check_gpu(device: str) -> None:
    """End this worker process if its GPU refuses all work, so that the other cells get a new process.

    After an error inside a kernel, such as an index out of range, CUDA does no further work for the process.
    Raises UserError in a process that is no worker process.
    """
    if not device.startswith("cuda"):
        return
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as problem:
        if multiprocessing.parent_process() is not None:
            os._exit(1)  # the usual way out would call CUDA again
        raise UserError(
            f"the GPU does no further work for this process ({first_line(problem)}); run the same command in "
            "a new one."
        ) from None


def free_gpu_memory(device: str) -> None:
    """Give memory of a GPU that no tensor uses any more back to it, for other processes."""
    if not device.startswith("cuda"):
        return
    import torch

    gc.collect()
    torch.cuda.empty_cache()  # does nothing where CUDA was never used
