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
import sys

import torch
from bench_methods import Case, classifier, images, prepared
from bench_suite import Timer, arguments, fresh_process, last_line, median_ratio

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
    seconds = Timer()(lambda: [adapter.adapt(x) for _ in range(options.batches)])
    print(seconds / options.batches, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure(how: str) -> tuple[float, float]:
    seconds, peak = map(float, fresh_process("--once", how))
    print(f"{how:>5}: {1000 * seconds:8.1f} ms per batch, peak {peak:7.0f} MB", flush=True)
    return seconds, peak


def main() -> None:
    parser = arguments(__doc__, arch="resnet18", method="tent", batch=200, batches=4, repeats=3)
    parser.add_argument("--once", choices=("keep", "free"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        once(options)
        return
    pairs = [(measure("free"), measure("keep")) for _ in range(options.repeats)]
    ratios = [median_ratio((free[k], keep[k]) for free, keep in pairs) for k in (0, 1)]
    last_line(2, time_ratio=ratios[0], memory_ratio=ratios[1])


if __name__ == "__main__":
    main()
