"""What keeping freed memory (`ttabench.system.malloc`) gains a worker in time, and what it costs in memory.

A method adapts to batches of random images, one thread, in fresh processes that do and do not keep what
they free, in turns. Seconds are CPU seconds of the process, the kernel's included, per batch, without the
first; memory is the peak of the process. Ratios are medians over the pairs.

Usage: python scripts/bench_malloc.py [--arch resnet18] [--method tent] [--batch 200] [--batches 4]
           [--repeats 3]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

import torch
from bench_methods import Case, classifier, images, prepared

from ttabench.system.malloc import keep_freed_memory


def once(options: argparse.Namespace) -> None:
    """Print CPU seconds per batch and the peak in MB, of this process."""
    if options.once == "keep" and not keep_freed_memory():
        sys.exit("error: the C library is not glibc, so there is nothing to compare.")
    torch.set_num_threads(1)
    adapter = prepared(Case(options.method), classifier(options.arch))
    if isinstance(adapter, str):
        sys.exit(f"error: {options.method} does not apply to {options.arch}: {adapter}")
    x = images(options.batch)
    adapter.adapt(x)
    begin = time.process_time()
    for _ in range(options.batches):
        adapter.adapt(x)
    seconds = (time.process_time() - begin) / options.batches
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure(how: str) -> tuple[float, float]:
    command = [sys.executable, *sys.argv, "--once", how]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = map(float, done.stdout.split())
    print(f"{how:>5}: {1000 * seconds:8.1f} ms per batch, peak {peak:7.0f} MB", flush=True)
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="resnet18")
    parser.add_argument("--method", default="tent")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", choices=("keep", "free"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        once(options)
        return
    pairs = [(measure("free"), measure("keep")) for _ in range(options.repeats)]
    time_ratio = statistics.median(free[0] / keep[0] for free, keep in pairs)
    memory_ratio = statistics.median(free[1] / keep[1] for free, keep in pairs)
    print(f"time_ratio={time_ratio:.2f} memory_ratio={memory_ratio:.2f}")


if __name__ == "__main__":
    main()
