"""How long ``ttabench --help`` takes, against starting Python alone, in one run.

Usage: python scripts/bench_help.py [--runs 7]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def median_seconds(command: list[str], runs: int) -> float:
    def once() -> float:
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - started

    once()  # warms the file cache
    return statistics.median(once() for _ in range(runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    bare = median_seconds([sys.executable, "-c", ""], runs)
    ours = median_seconds([sys.executable, "-c", "from ttabench.cli import main; main()", "--help"], runs)
    print(f"python -c ''     {bare:.3f} s")
    print(f"ttabench --help  {ours:.3f} s")
    print(f"help_seconds={ours:.3f} help_ratio={ours / bare:.1f}")


if __name__ == "__main__":
    main()
