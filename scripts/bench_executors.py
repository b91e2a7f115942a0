"""Ray on two local nodes against two local workers: cells that only take time, results stored.

    python scripts/bench_executors.py --cells 200 --seconds 2

Each line is the wall time of one run, from the first event that a cell is done to the last: starting is left
out, since it does not grow with a sweep. The last line is the ratio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttabench.cell import Cell, Result
from ttabench.protocol import Protocol
from ttabench.run.events import CellProgress, Done, Emit
from ttabench.run.executors import Engine, Setup, open_engine
from ttabench.run.unit import Unit
from ttabench.run.worker_state import WorkerState
from ttabench.store import Store
from ttabench.sweep.agenda import make_units
from ttabench.sweep.plan import Planned

WORKERS = 2


@dataclass(frozen=True)
class Timed(Unit):
    """A unit whose cells take `pause` seconds each and report progress ten times a second."""

    pause: float = 0.0

    def __call__(self, emit: Emit, state: WorkerState) -> Done:
        writer = state.keep("writer", self.results, lambda: Store.at(self.results).writer(), limit=1)
        for cell in self.cells:
            end = time.monotonic() + self.pause
            while (left := end - time.monotonic()) > 0:
                emit(CellProgress(str(cell), 10, 5, 5, 5))
                time.sleep(min(0.1, left))
            result = Result(cell=cell, status="ok", accuracy=100.0, n_images=1, correct=b"\x80")
            writer.append(result)
            emit(Done((result,)))
        return Done()


def cells(count: int) -> list[Cell]:
    return [
        Cell(
            method="source", config=(), label="source", arch="net", checkpoint="0" * 64, dataset="digits-c",
            fingerprint="0" * 64, corruption="fog", severity=5, seed=seed, protocol=Protocol(),
        )
        for seed in range(count)
    ]  # fmt: skip


def measure(engine: Engine, folder: Path, count: int, pause: float) -> float:
    """Seconds from the first cell that is done to the last, per cell, times the number of cells."""
    store, todo = Store.create(folder, {}), cells(count)
    planned = [Planned(cell, "") for cell in todo]
    units = make_units(todo, planned, store, "cpu", WORKERS)
    timed = [Timed(unit.chains, unit.results, pause=pause) for unit in units]
    times = [
        time.monotonic() for event in engine.run(timed, WORKERS) if isinstance(event, Done) and event.results
    ]
    assert len(times) == count
    assert len(store.latest()) == count
    return times[-1] - times[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each cell")
    given = parser.parse_args()
    import ray
    from ray.cluster_utils import Cluster

    taken: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        cluster: Any = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        for _ in range(WORKERS):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        for name in ("local", "ray"):
            root = Path(folder) / name
            engine = open_engine(name, Setup(workers=str(WORKERS), device="cpu", folder=root))
            taken[name] = measure(engine, root, given.cells, given.seconds)
            print(
                f"{name:<6} {taken[name]:7.1f} s for {given.cells} cells of {given.seconds:g} s", flush=True
            )
        ray.shutdown()
        cluster.shutdown()
    print(f"ray_over_local={taken['ray'] / taken['local']:.3f}")


if __name__ == "__main__":
    import bench_executors  # processes of Ray find its classes by this name

    bench_executors.main()
