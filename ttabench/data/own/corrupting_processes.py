"""Worker processes that make the files of a -C dataset; every file is whole, and Ctrl-C waits for none."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.any_size import corrupt_any_size
from ttabench.corruptions.frost_textures import load_frost_textures
from ttabench.data.files.array_files import open_npz, save_images
from ttabench.data.files.fingerprint import file_sha256
from ttabench.errors import UserError
from ttabench.system.cores import available_cores
from ttabench.system.files import writing
from ttabench.system.interrupts import ctrl_c_waits
from ttabench.system.variables import with_variables

KERNELS = "OPENBLAS_CORETYPE"  # the variable by which OpenBLAS is told its kernels
AVX2, FMA3 = 11, 12  # cv::CpuFeatures, which have no names in Python


@dataclass(frozen=True)
class Task:
    """One file to make; it is sent to a worker process."""

    folder: Path
    corruption: str
    severity: int
    seed: int
    frost: Path | None
    jpeg: int = 0

    @property
    def file(self) -> str:
        return f"{self.corruption}-{self.severity}.npy"


def number_of_processes(workers: int | None) -> int:
    if workers is not None and workers < 0:
        raise UserError(f"{workers} workers; expected 0 (this process) or more.")
    return available_cores() if workers is None else workers


def corrupted_files(tasks: Sequence[Task], processes: int) -> Generator[tuple[Task, str], None, None]:
    """(task, SHA-256 of its file), in the order in which they finish."""
    if processes == 0:
        for task in tasks:
            yield task, _make(task)
        return
    context = get_context("spawn")
    ends_with, lifeline = context.Pipe(duplex=False)
    with _same_kernels(), ProcessPoolExecutor(processes, context, _prepare, (ends_with,)) as pool:
        try:
            with ctrl_c_waits():
                running = {pool.submit(_make, task): task for task in tasks}
            for future in as_completed(running):
                yield running[future], future.result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process was killed, perhaps because memory ran out. Run the same command again, "
                "if need be with fewer --workers; it continues."
            ) from None
        except BaseException:
            lifeline.close()  # do not wait for the files that are being made
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            lifeline.close()


@contextmanager
def _same_kernels() -> Iterator[None]:
    """OpenBLAS in processes that are started now has the kernels of Haswell, on all processors with AVX2.

    By itself, it chooses them by processor, and they sum in different orders.
    """
    import cv2

    known = cv2.checkHardwareSupport(AVX2) and cv2.checkHardwareSupport(FMA3)
    with with_variables({KERNELS: "Haswell"} if known else {}):
        yield


def _prepare(ends_with: Connection) -> None:
    """Prepare a worker process. It ends when the other end of the pipe is closed, or its process is killed.

    It has one thread for its work: the processes already use all cores.
    """
    threading.Thread(target=_leave_with, args=(ends_with,), daemon=True).start()
    import cv2
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    cv2.setNumThreads(1)
    threadpool_limits(1)


def _leave_with(parent: Connection) -> None:
    parent.poll(None)  # nothing is ever sent
    os._exit(1)


def _make(task: Task) -> str:
    """Write the corrupted images of one file; returns its SHA-256."""
    clean = open_npz(task.folder / "test.npz").images
    textures = None if task.frost is None else load_frost_textures(task.frost)

    def some(part: slice) -> NDArray[np.uint8]:
        return corrupt_any_size(
            clean[part], task.corruption, task.severity, task.seed,
            frost_textures=textures, start=part.start, workers=1, jpeg=task.jpeg,
        )  # fmt: skip

    path = task.folder / task.file
    with writing(path):
        save_images(path, clean.shape, some)
    return file_sha256(path)
