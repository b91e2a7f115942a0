"""Milliseconds of `Method.reset`, against a deep copy of the same state, and of a cell that adapts nothing.

For every method and network: one batch is adapted to, then the state is restored, in turn with a deep copy of
what was saved; both in CPU time, and the ratio is the median over the pairs. A reset that is not bitwise, or
not in place, ends the script with an error.

The no-op cell has a method that returns zeros, on the first 8 images of digits-c, with everything that a
worker does for a cell: reset, stream, scores, details, one record stored with fsync. The medians of
wall-clock and of CPU time are printed, and those with a deep copy in place of the reset.

Untrained weights. Last line:
`worst_reset_ratio=<x> ms_per_noop_cell=<y> (CPU <y>) with_deepcopy=<z> (CPU <z>)`.

Usage: python scripts/bench_reset.py [--archs resnet18,cct_7_3x1] [--methods source,tent,cotta] [--width 64]
           [--repeats 15] [--cells 100]
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import bench_methods as bench
import torch
from bench_suite import Timer, arguments, as_in_a_worker, median_ratio, medians, worst
from torch import Tensor

from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.conformance.state import difference, snapshot
from ttabench.method import Method, NoConfig
from ttabench.models.checkpoints.cache import Loaded
from ttabench.run import worker as worker_module
from ttabench.run.kept_objects import WorkerState
from ttabench.run.worker import Worker
from ttabench.store import Store

DATASET = "digits-c"
cpu = Timer()


class NoOp(Method[NoConfig]):
    """Looks at no image."""

    name = "noop"

    def adapt(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), self.model.num_classes, device=x.device)


def reset_times(method: Method[Any], repeats: int) -> list[tuple[float, float]]:
    """Milliseconds of a reset after one batch, and of a deep copy of what it restores."""
    x = bench.images(8)
    method.reset()
    before, weights = snapshot(method), list(map(id, method.model.parameters()))
    rows = []
    for _ in range(repeats):
        method.adapt(x)
        saved = method._prepared._attributes
        rows.append((1e3 * cpu(method.reset), 1e3 * cpu(lambda saved=saved: copy.deepcopy(saved))))
    if changed := difference(before, snapshot(method)):
        raise SystemExit(f"error: {method.name} is not restored: {changed}")
    if weights != list(map(id, method.model.parameters())):
        raise SystemExit(f"error: {method.name} is not restored in place")
    return rows


def noop_cells(arch: str, width: int, count: int) -> tuple[float, float]:
    """Milliseconds of a no-op cell, wall-clock and CPU: medians of `count`, after two that do not count."""
    network, state, times = bench.classifier(arch, width), WorkerState(), []
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(worker_module, "find_method") as find:
        find.return_value = NoOp
        Store.create(Path(folder), {})
        worker = Worker(state, Path(folder), "cpu", lambda _: None)
        for number in range(2 + count):
            cell = Cell(
                method="noop", config=(), label=f"noop {number}", arch=arch, checkpoint="untrained",
                dataset=DATASET, fingerprint=worker.dataset(DATASET).fingerprint(), severity=5, seed=0,
                corruption="gaussian_noise", protocol=Protocol(batch_size=8, limit=8),
            )  # fmt: skip
            loaded = Loaded(
                classifier=network,
                sha256="untrained",
                clean_accuracy=10.0,
                recipe={},
                note={},
                path=Path(folder),
            )
            state.keep("classifier", worker._place(cell), lambda loaded=loaded: loaded, limit=4)
            results: list[Any] = []
            begin = time.perf_counter()
            used = cpu(lambda c=cell, r=results: worker.run((c,), r.append))
            times.append((1e3 * (time.perf_counter() - begin), 1e3 * used))
            if results[0].status != "ok":
                raise SystemExit(f"error: the cell failed: {results[0].reason}")
        state.close()
    wall, used = medians(times[2:])
    return wall, used


def main() -> int:
    parser = arguments(__doc__, repeats=15, cells=100)
    parser.add_argument("--archs", default="resnet18,cct_7_3x1", metavar="NAMES")
    parser.add_argument("--methods", default="source,tent,cotta", metavar="NAMES")
    parser.add_argument("--width", type=int, choices=(8, 16, 32, 64, 128), default=64, help="of resnet18")
    options = parser.parse_args()
    as_in_a_worker()
    archs, ratios = options.archs.split(","), []
    print(f"{'ms':<24}{'reset':>9}{'deep copy':>11}{'ratio':>8}")
    for arch in archs:
        network = bench.classifier(arch, options.width)
        for name in options.methods.split(","):
            method = bench.prepared(bench.Case(name, settings=bench_settings(name)), network)
            if isinstance(method, str):
                continue
            rows = reset_times(method, options.repeats)
            ours, theirs = medians(rows)
            ratios.append(median_ratio(rows))
            print(f"{arch + ' ' + name:<24}{ours:9.2f}{theirs:11.2f}{ratios[-1]:8.3f}", flush=True)
    cells = noop_cells(archs[0], options.width, options.cells)
    with mock.patch.object(Method, "reset", deep_copied):
        slow = noop_cells(archs[0], options.width, options.cells)
    print(
        f"worst_reset_ratio={worst(ratios):.3f} ms_per_noop_cell={cells[0]:.2f} (CPU {cells[1]:.2f}) "
        f"with_deepcopy={slow[0]:.2f} (CPU {slow[1]:.2f})"
    )
    return 0


def bench_settings(name: str) -> dict[str, Any]:
    """No views for CoTTA, which would take most of the time."""
    return {"threshold": 0.0} if name == "cotta" else {}


def deep_copied(method: Method[Any]) -> None:
    """What `Method.reset` would be without restoring in place."""
    prepared, counts = method._prepared, method.counts
    method.__dict__ = copy.deepcopy(prepared._attributes)
    method._prepared, method.counts = prepared, counts


if __name__ == "__main__":
    sys.exit(main())
