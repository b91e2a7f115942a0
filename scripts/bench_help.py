"""How long ``ttabench --help`` and verbs that need no torch take, against starting Python alone, in one run.

Each verb runs once before it is measured: what it tells of methods is then in the cache. ``import torch`` is
what they would take at least if they imported it.

Usage: python scripts/bench_help.py [--runs 7]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

VERBS = (
    "--help",
    "list methods",
    "list settings tent",
    "list archs",
    "figure --list",
    "cite --methods sar",
    "doctor",
)
MAIN = "import sys; sys.argv[1:] = {words!r}; from ttabench.cli import main; main()"
MEMORY = (
    "import atexit, resource, sys; atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF)"
    + (".ru_maxrss, file=sys.stderr)); ")
)


def measured(code: str, runs: int) -> tuple[float, float, float]:
    """Medians of wall seconds and CPU seconds, and the largest memory in MB."""
    walls, cpus, sizes = [], [], []
    for run in range(runs + 1):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", MEMORY + code], check=True, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if run:  # the first warms caches
            walls.append(time.perf_counter() - started)
            cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            sizes.append(int(done.stderr.split()[-1]) / 1024)
    return statistics.median(walls), statistics.median(cpus), max(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TTABENCH_CACHE"] = cache
        bare = measured("", runs)
        torch = measured("import torch", runs)
        verbs = {verb: measured(MAIN.format(words=verb.split()), runs) for verb in VERBS}
    print(f"{'':<22} {'wall s':>7} {'CPU s':>7} {'MB':>6} {'of Python alone':>16} {'of import torch':>16}")
    for name, row in {"python -c ''": bare, "import torch": torch, **verbs}.items():
        wall, cpu, size = row
        print(f"{name:<22} {wall:7.3f} {cpu:7.3f} {size:6.0f} {wall / bare[0]:16.1f} {cpu / torch[1]:16.2f}")
    ours = verbs["--help"][0]
    print(f"help_seconds={ours:.3f} help_ratio={ours / bare[0]:.1f}")


if __name__ == "__main__":
    main()
