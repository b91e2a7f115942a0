"""How long ``ttabench --help`` and short verbs take, against starting Python alone, in one run.

``import torch`` is what those verbs take at least that describe methods, as methods import it.

Usage: python scripts/bench_help.py [--runs 7]
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial

from bench_suite import Used, arguments, last_line, medians, run_command, run_python

VERBS = (
    "--help",
    "list methods",
    "list settings tent",
    "list archs",
    "figure --list",
    "cite --methods sar",
    "doctor",
)


def measured(run: Callable[[], Used], runs: int) -> tuple[float, ...]:
    """Medians of wall seconds, CPU seconds and MB; a first time, which warms caches, does not count."""
    run()
    return medians([run() for _ in range(runs)])


def main() -> None:
    runs = arguments(__doc__, runs=7).parse_args().runs
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TTABENCH_CACHE"] = cache
        bare = measured(lambda: run_python(""), runs)
        torch = measured(lambda: run_python("import torch"), runs)
        verbs = {verb: measured(partial(run_command, *verb.split()), runs) for verb in VERBS}
    print(f"{'':<22} {'wall s':>7} {'CPU s':>7} {'MB':>6} {'of Python alone':>16} {'of import torch':>16}")
    for name, row in {"python -c ''": bare, "import torch": torch, **verbs}.items():
        wall, cpu, size = row
        print(f"{name:<22} {wall:7.3f} {cpu:7.3f} {size:6.0f} {wall / bare[0]:16.1f} {cpu / torch[1]:16.2f}")
    ours = verbs["--help"][0]
    last_line(help_seconds=ours, help_ratio=ours / bare[0])


if __name__ == "__main__":
    main()
