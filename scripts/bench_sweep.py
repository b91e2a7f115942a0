"""What a sweep adds to the work of its cells, how it scales, and how long large results folders take.

    python scripts/bench_sweep.py [--cells 12] [--noop 10000] [--planned 100000] [--results 36000]
                                  [--only overhead,noop,plan,results] [--keep DIR]

overhead    Wall time of cells of TENT in a sweep with one worker, store included, over the bare loops of the
            same method steps in a process of one thread, run right after each other. From the first result to
            the last, so without the start of the worker.
two_worker_speedup   Results per second of two workers over those of one, counted while all are busy.
ms_per_noop_cell     Milliseconds per cell of Source on one image with a network of one layer, through `local`
            with one worker, store included; and the CPU seconds of the worker.
plan        Seconds to plan and to store the plan of so many cells, after imports.
status_s, report_s   Seconds of `ttabench status` and of `ttabench report --format csv,latex` on so many
            results of 10,000 images each, and their peak of memory. Seconds of the bare parsing of the same
            records are the reference.

On a busy machine the clock shows more than the processor; both are printed, with the load of the machine. A
part that fails prints why, and nan stands for its numbers in the last line; the exit code is then 1.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import bench_report
import torch
from bench_suite import arguments, as_in_a_worker, last_line, load, parsed, run_command

from ttabench.cell import Result
from ttabench.data.catalog import dataset
from ttabench.measure.source_access import SourceImages
from ttabench.method import Needs
from ttabench.models.resolve import resolve_model
from ttabench.registry import method as find_method
from ttabench.run.cell_group import CellGroup
from ttabench.run.executors import local
from ttabench.store import Store
from ttabench.sweep.agenda import make_groups, plan_rows
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.plan import Planned, find_sources, plan
from ttabench.sweep.resolve import resolve
from ttabench.sweep.run import run
from ttabench.system.work_claims import WorkClaims

NETS = """
import torch
from torch import nn
def conv(num_classes):
    torch.manual_seed(0)
    def block(i, o):
        return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
    body = [*block(3, 32), *block(32, 64), nn.MaxPool2d(2), *block(64, 64), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(64, num_classes))
def tiny(num_classes):
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(12, num_classes))
"""
ALL = "gaussian_noise,shot_noise,impulse_noise,defocus_blur,glass_blur,motion_blur,zoom_blur,snow,frost,fog"


def planned(**options: object) -> list[Planned]:
    """The plan of a grid."""
    sweep = resolve(make_grid({**DEFAULTS, **{name: str(value) for name, value in options.items()}}))
    return plan(sweep, find_sources(sweep.models, "cpu"))


@dataclass(frozen=True)
class Came:
    """When a result came, and the CPU seconds that the workers had used by then."""

    at: float
    used: float


def sweep(cells: Sequence[Planned], out: Path, workers: int) -> list[Came]:
    """Run planned cells."""
    shutil.rmtree(out, ignore_errors=True)
    store = Store.create(out, {"made": "for a benchmark"})
    units = make_groups([item.cell for item in cells], cells, CellGroup((), store.root.absolute()), workers)
    came = []
    with WorkClaims(out, "sweep") as claims:
        for event in run(units, store, local.run, workers, claims=claims, start={}):
            if isinstance(event, Result):
                assert event.status == "ok", event.reason
                used = sum(used_by(lease.pid) for lease in claims.others("worker"))
                came.append(Came(time.perf_counter(), used))
    return came


def used_by(pid: int) -> float:
    """Seconds of processor of a running process."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def mean(came: Sequence[Came]) -> Came:
    """Seconds per cell, from the first result to the last."""
    cells = len(came) - 1
    return Came((came[-1].at - came[0].at) / cells, (came[-1].used - came[0].used) / cells)


def bare(cells: Sequence[Planned]) -> Came:
    """Seconds per cell of the bare method steps."""
    cell = cells[0].cell
    data = dataset(cell.dataset)
    loaded = resolve_model(cell.arch, data).recall(cell.checkpoint)
    assert loaded is not None
    cls = find_method(cell.method)
    tta = cls(loaded.classifier.eval(), cls.Config(**dict(cell.config)))
    tta.prepare(SourceImages(lambda: data.train().images, Needs(), "cpu"))
    images = data.corrupted(cell.corruption, cell.severity).images
    x = torch.as_tensor(images[: cell.protocol.limit]).permute(0, 3, 1, 2).float() / 255
    came = []
    for _ in cells:
        tta.reset()
        for batch in x.split(cell.protocol.batch_size):
            tta.adapt(batch)
        came.append(Came(time.perf_counter(), time.process_time()))
    return mean(came)


def overhead(root: Path, count: int, repeats: int) -> tuple[float, float]:
    """(overhead of one worker, speed-up of two)."""
    cells = [
        item
        for item in planned(archs="benched:conv", methods="tent", corruptions=ALL, seeds="0,1,2", limit=600)
        if item.cell.method == "tent"
    ][:count]
    ratios, speedups = [], []
    for repeat in range(repeats):
        bare_cells = bare(cells)
        one = mean(sweep(cells, root / f"one-{repeat}", 1))
        two = mean(sweep(cells, root / f"two-{repeat}", 2)[3:-2])  # while both are busy
        ratios.append(one.at / bare_cells.at)
        speedups.append(one.at / two.at)
        print(f"  ms per cell by the clock: {1000 * bare_cells.at:.0f} bare, {1000 * one.at:.0f} with one "
              f"worker (ratio {ratios[-1]:.3f}), {1000 * two.at:.0f} with two "
              f"(speed-up {speedups[-1]:.2f})")  # fmt: skip
        print(f"  CPU ms per cell: {1000 * bare_cells.used:.0f} bare, {1000 * one.used:.0f} with one "
              f"worker (ratio {one.used / bare_cells.used:.3f}); {load()}")  # fmt: skip
    return min(ratios), max(speedups)


def noop(root: Path, count: int) -> float:
    """Milliseconds per cell that does next to nothing."""
    seeds = ",".join(map(str, range(-(-count // 50))))
    cells = [
        item
        for item in planned(
            archs="benched:tiny",
            methods="tent",
            corruptions=ALL,
            severities="1,2,3,4,5",
            seeds=seeds,
            limit=1,
        )
        if item.cell.method == "source"
    ][:count]
    average = mean(sweep(cells, root / "noop", 1))
    print(f"  {len(cells)} cells, ms per cell: {1000 * average.at:.2f} by the clock, "
          f"{1000 * average.used:.2f} of CPU in the worker; {load()}")  # fmt: skip
    return 1000 * average.at


def planning(root: Path, count: int) -> float:
    """Seconds to plan, and to store the plan."""
    seeds = ",".join(map(str, range(-(-count // (2 * 50)))))
    options = {"archs": "benched:conv", "methods": "tent", "corruptions": ALL, "severities": "1,2,3,4,5"}
    grid = resolve(make_grid({**DEFAULTS, **options, "seeds": seeds, "limit": "1"}))
    sources = find_sources(grid.models, "cpu")
    started, used = time.perf_counter(), time.process_time()
    cells = plan(grid, sources)
    Store.create(root / "planned", {"made": "for a benchmark"}).write_plan(plan_rows(cells))
    seconds = time.perf_counter() - started
    print(f"  {len(cells)} cells planned and stored: {seconds:.2f} s by the clock, "
          f"{time.process_time() - used:.2f} CPU s")  # fmt: skip
    return seconds


def results(root: Path, count: int) -> tuple[float, float]:
    """Seconds of `status` and `report` on a large folder."""
    folder = root / f"results-{count}"
    if not folder.exists():
        bench_report.make(folder, 10_000, count)
        store = Store.at(folder)
        rows = [{**row, "reason": ""} for row in planned_rows(store)]
        store.write_plan(rows)
    reference = parsed(folder)
    print(f"  bare parsing of the records: {reference:.2f} CPU s")
    times = []
    with tempfile.TemporaryDirectory() as to:
        for words in (["status", folder], ["report", folder, "--format", "csv,latex", "--out", to]):
            seconds, used, peak = run_command(*words)
            print(f"  {words[0]:7}{seconds:6.2f} s by the clock, {used:6.2f} CPU s (ratio "
                  f"{used / reference:.1f}), {peak:.0f} MB; {load()}")  # fmt: skip
            times.append(seconds)
    return times[0], times[1]


def planned_rows(store: Store) -> list[dict[str, object]]:
    """The stored cells as a plan."""
    rows = []
    for record in store.latest(quick=True).values():
        cell = record.data["cell"]
        names = ("arch", "dataset", "corruption", "severity", "seed")
        rows.append(
            {"id": record.cell_id, "method": cell["label"], "base": cell["method"]}
            | {name: cell[name] for name in names}
        )
    return rows


def main() -> None:
    parser = arguments(__doc__, cells=24, repeats=3, noop=10_000, planned=100_000, results=36_000)
    parser.add_argument("--only", default="overhead,noop,plan,results", help="parts, separated by commas")
    parser.add_argument("--keep", type=Path, help="make the folders here, and keep them")
    options = parser.parse_args()
    parts = options.only.split(",")
    nan = float("nan")
    ratio = speedup = milliseconds = status = report = nan
    failed: list[str] = []
    as_in_a_worker()  # so that the bare loops are as fast
    with tempfile.TemporaryDirectory() as scratch:
        root = (options.keep or Path(scratch)).absolute()
        root.mkdir(parents=True, exist_ok=True)
        (root / "benched.py").write_text(NETS)
        sys.path.insert(0, str(root))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        os.environ.setdefault("TTABENCH_CACHE", str(root / "cache"))
        if "overhead" in parts:
            with part("overhead and two workers", failed):
                ratio, speedup = overhead(root, options.cells, options.repeats)
        if "noop" in parts:
            with part("cells that do nothing", failed):
                milliseconds = noop(root, options.noop)
        if "plan" in parts:
            with part("planning", failed):
                planning(root, options.planned)
        if "results" in parts:
            with part("a large results folder", failed):
                status, report = results(root, options.results)
    print(load())
    last_line(overhead=ratio, two_worker_speedup=speedup, ms_per_noop_cell=milliseconds, status_s=status,
              report_s=report)  # fmt: skip
    sys.exit(bool(failed))


@contextmanager
def part(name: str, failed: list[str]) -> Iterator[None]:
    """Print what a part measures and how long it takes; where it fails, add it to `failed` and go on."""
    print(f"{name}:", flush=True)
    started = time.perf_counter()
    try:
        yield
    except (Exception, SystemExit):  # the other parts are worth having
        traceback.print_exc()
        failed.append(name)
    print(f"  {time.perf_counter() - started:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
