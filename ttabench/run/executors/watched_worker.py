"""A worker process as its parent sees it: started, given jobs, watched, killed, started again."""

from __future__ import annotations

import multiprocessing as mp
import signal
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ttabench.run.executors import Job, Limits, child
from ttabench.system.cores import ONE_NUMPY_THREAD
from ttabench.system.interrupts import ctrl_c_waits
from ttabench.system.variables import with_variables

CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")


class WorkerProcess:
    """One process after the other in one place, such as one GPU.

    job     what it is doing, None if nothing.
    finished   ids of the cells of this job whose results are stored.
    ready   it has started and takes jobs.
    failed_starts   how often in a row a process ended before it was ready.
    broken  what a process that could not start said of it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: mp.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self.job: Job | None = None
        self.finished: set[str] = set()
        self.ready = False
        self.failed_starts = 0
        self.broken = ""
        self._cell: object = None
        self._oom_kills: int | None = None
        self._since = 0.0

    def start(self) -> None:
        """Start the process; it sends ``ready`` once it takes jobs. Raises OSError if the system has none."""
        context = mp.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=child.main, args=(theirs, self._environment), daemon=True)
        self._oom_kills = oom_kills()
        # Python runs the top of the user's script in it before `child.main`, which reports variables that
        # cannot be set. CUDA reads CUDA_VISIBLE_DEVICES when it is first asked for a GPU.
        # A process that still imports would answer Ctrl-C with a traceback; `child.main` ignores it.
        try:
            with with_variables({**ONE_NUMPY_THREAD, **self._environment}), ctrl_c_waits():
                self._process.start()
        except OSError:
            self.stop()
            raise
        finally:
            theirs.close()  # so that the pipe ends with the process
        self.ready = False

    @property
    def started(self) -> bool:
        return self._process is not None

    def give(self, job: Job) -> bool:
        """Hand over a job; False where the process has just died."""
        assert self._pipe is not None
        try:
            self._pipe.send(job)
        except OSError:
            return False
        self.job, self.finished = job, set()
        self._cell, self._since = None, time.monotonic()
        return True

    def waitables(self) -> list[Any]:
        """What becomes readable when there is a message, or when the process ends."""
        return [] if self._process is None else [self._pipe, self._process.sentinel]

    def messages(self) -> Iterator[tuple[child.Kind, Any]]:
        """What has arrived, without waiting."""
        assert self._pipe is not None
        while True:
            try:
                if not self._pipe.poll():
                    return
                kind, payload = self._pipe.recv()
            except (EOFError, OSError):
                return
            if kind == "event":
                self.finished.update(getattr(payload, "finished", ()))
                if (cell := getattr(payload, "cell", None)) != self._cell:
                    self._cell, self._since = cell, time.monotonic()
            yield kind, payload

    def end_of_process(self) -> str:
        """How the process ended, e.g. ``killed by SIGSEGV``; "" while it lives."""
        if self._process is None or self._process.is_alive():
            return ""
        self._process.join()
        kills = oom_kills()
        known = kills is not None and self._oom_kills is not None
        return describe(self._process.exitcode, kills != self._oom_kills if known else None)

    def stood_still(self, seconds: float) -> None:
        """So many seconds are none of the running cell's time."""
        self._since += seconds

    def runs_too_long(self, limits: Limits) -> bool:
        """Whether the running cell has used up its time."""
        return bool(self.job and limits.seconds) and time.monotonic() - self._since > limits.seconds

    def is_too_large(self, limits: Limits) -> bool:
        """Whether the process has more memory than its cell may use."""
        if self.job is None or self._process is None or not limits.memory:
            return False
        return resident(self._process.pid or 0) > limits.memory

    def kill(self) -> None:
        """Kill the process. The running cell is lost; stored cells are kept."""
        if self._process is not None and self._process.pid is not None:
            self._process.kill()

    def stop(self) -> None:
        """Kill the process and wait up to two seconds until it has ended."""
        self.kill()
        if self._process is not None and self._process.pid is not None:
            self._process.join(2)
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = self.job = None
        self.finished, self.ready = set(), False


def describe(code: int | None, memory_ran_out: bool | None = None) -> str:
    """How a process ended, by its exit code as `multiprocessing` has it: negative for a signal.

    memory_ran_out   whether the kernel killed processes for lack of memory meanwhile; None = not known.

    >>> describe(-11)
    'was killed by SIGSEGV (a crash in native code)'
    >>> describe(-9, memory_ran_out=True)
    'was killed by SIGKILL (the machine ran out of memory)'
    >>> describe(3)
    'ended with exit code 3'
    """
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was killed by signal {-code}"
    memory = {True: " (the machine ran out of memory)", False: "", None: " (out of memory?)"}[memory_ran_out]
    hints = {"SIGKILL": memory, **dict.fromkeys(CRASHES, " (a crash in native code)")}
    return f"was killed by {name}{hints.get(name, '')}"


def oom_kills() -> int | None:
    """How many processes the kernel has killed for lack of memory; None where it does not say."""
    try:
        fields = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(fields["oom_kill"])
    except (OSError, KeyError, ValueError):
        return None


def resident(pid: int) -> int:
    """Resident memory of a process in bytes; 0 where it has ended or where /proc does not exist.

    Without pages of files: images are memory maps, and the kernel takes their pages back when it needs them.
    Shared memory counts, which has no file to be read from again.
    """
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return 1024 * sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))
    except (OSError, KeyError, ValueError):
        return 0
