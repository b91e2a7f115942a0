"""What the scripts of this folder share: options, and for benchmarks timing, turns, processes and ratios.

A benchmark measures its reference in the same run. Work is timed in turns, because a machine gets slower and
faster; one thread is timed in CPU seconds, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Work = Callable[[], object]
ROWS = list[tuple[float, ...]]


def arguments(text: str | None, **defaults: int | float | str) -> argparse.ArgumentParser:
    """A parser with the docstring of a script as it stands, and an option for each of `defaults`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in defaults.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(value), default=value, help=f"default {value}")
    return parser


def bring_up_to_date(text: str | None, files: Iterable[tuple[Path, bytes]]) -> int:
    """Write what a script makes of each file where it differs, or with ``--check`` only name it; exit code.

    text  the docstring of the script. `files` are made after its options are read.
    """
    parser = arguments(text)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    changed = []
    for file, made in files:
        if not file.exists() or file.read_bytes() != made:
            changed.append(file.name)
            if not check:
                file.write_bytes(made)
    print(f"{'differ' if check else 'written'}: {', '.join(changed) or 'none'}")
    return int(check and bool(changed))


def as_in_a_worker(threads: int = 1) -> None:
    """Set this process as a worker is set: so many threads, and freed memory is kept."""
    import torch

    from ttabench.system.malloc import keep_freed_memory

    torch.set_num_threads(threads)
    keep_freed_memory()


class Timer:
    """Seconds of a piece of work: of the CPU for one thread, else by the clock; on a GPU until it is done."""

    def __init__(self, device: str = "cpu", threads: int = 1) -> None:
        self.cuda = device.startswith("cuda")
        self.clock = time.perf_counter if self.cuda or threads > 1 else time.process_time

    def __call__(self, work: Work) -> float:
        self.wait()
        begin = self.clock()
        work()
        self.wait()
        return self.clock() - begin

    def wait(self) -> None:
        if self.cuda:
            import torch

            torch.cuda.synchronize()


BY_THE_CLOCK = Timer(threads=2)


def best(work: Work, repeats: int) -> float:
    """Seconds by the clock of the quickest of several times: other work only ever slows one down."""
    return min(BY_THE_CLOCK(work) for _ in range(repeats))


def take_turns(works: Sequence[Work], timer: Timer, repeats: int, least: float = 0.0) -> ROWS:
    """Seconds of each work, in alternating order; a first time does not count.

    At least `repeats` rows, and more until they add up to `least` seconds.
    """
    for work in works:
        work()
    rows: ROWS = []
    while len(rows) < repeats or sum(map(sum, rows)) < least:
        order = list(range(len(works)))[:: -1 if len(rows) % 2 else 1]
        seconds = {i: timer(works[i]) for i in order}
        rows.append(tuple(seconds[i] for i in sorted(order)))
    return rows


def medians(rows: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """The median of each column."""
    return tuple(map(statistics.median, zip(*rows, strict=True)))


def median_ratio(pairs: Iterable[Sequence[float]]) -> float:
    """The median over pairs of the first over the second."""
    return statistics.median(pair[0] / pair[1] for pair in pairs)


def parsed(*folders: Path) -> float:
    """CPU seconds that the bare parsing of all records of some results folders takes: the reference."""

    def parse() -> None:
        for folder in folders:
            for shard in folder.glob("cells/*.jsonl"):
                for line in shard.read_bytes().splitlines():
                    json.loads(line)

    return Timer()(parse)


class Used(NamedTuple):
    """What a process used, its start included: seconds by the clock, CPU seconds, peak of memory in MB."""

    seconds: float
    cpu: float
    peak: float


# The peak of a child that `wait4` gives would include this process, which it was forked from.
_REPORT_PEAK = (
    "import atexit, sys; atexit.register(lambda: print(open('/proc/self/status').read(), file=sys.stderr)); "
)


def run_python(code: str) -> Used:
    """Run Python code in a process of its own (Linux). Ends this one where it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", _REPORT_PEAK + code],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr
    text = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit(f"{code} failed: {text}")
    peak = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return Used(seconds, usage.ru_utime + usage.ru_stime, int(peak.split()[1]) / 1024)


def run_command(*words: str | Path) -> Used:
    """Run a command of ttabench in a process of its own."""
    return run_python(f"sys.argv[1:] = {list(map(str, words))!r}; from ttabench.cli import main; main()")


def fresh_process(*words: object, env: Mapping[str, str] | None = None) -> list[str]:
    """The last line, in words, that this benchmark prints in a process of its own with further options."""
    command = [sys.executable, *sys.argv, *map(str, words)]
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return done.stdout.splitlines()[-1].split()


def load() -> str:
    """``load 1.2 on 2 cores``"""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def warn_if_busy() -> None:
    """A benchmark beside other work measures the other work."""
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        print(f"warning: {load()} before the first measurement; times will be too long")


def last_line(decimals: int = 3, **figures: float) -> None:
    """Print the figures that other programs read, ``name=1.234``."""
    print(" ".join(f"{name}={value:.{decimals}f}" for name, value in figures.items()))


def worst(values: Iterable[float]) -> float:
    """The largest value; nan where there is none."""
    return max(values, default=math.nan)
