"""Kill sweeps at random moments, and check that nothing is lost, computed twice or half-written.

Sweeps of a tiny network run on a results folder, one or two at a time, each with two worker processes. In
each round, one thing happens at a random moment: SIGKILL of a worker, of a sweep, or of everything, or
SIGTERM of a sweep. Whatever is gone is started again with the same command. When all cells of a folder are
there, it is compared with an undisturbed run, and a new folder is begun.

    python scripts/torture.py [--rounds 200] [--seed 0] [--keep DIR] [--fresh] [--continual]

Processes are forked from one that has imported torch, so that a round takes seconds; with --fresh each is
started as a user starts it.

Each cell must have exactly one result that is not a failure, with the accuracy and the per-image correctness
of the undisturbed run. A cell whose worker was killed twice is recorded as failed and is computed again by
the next sweep; these records are counted. No file may hold a damaged line; an incomplete last line, which
readers ignore, is counted. A sweep that gets SIGTERM has to end within 5 s. Exit code 1 if anything is wrong.

With --continual, the cells of a method and a seed are one continual run. A run that was killed starts again
from its first cell, so cells may have several results; each of them is compared.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from bench_suite import arguments

from ttabench.store import Store
from ttabench.store.new_records import NewRecords
from ttabench.system.work_claims import FolderProcesses, process_start

NET = """
import multiprocessing, time, torch
class Net(torch.nn.Sequential):
    def forward(self, x):
        if multiprocessing.parent_process():
            time.sleep(0.02)
        return super().forward(x)
def build(num_classes):
    torch.manual_seed(0)
    pool = [torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.BatchNorm1d(48)]
    return Net(*pool, torch.nn.Linear(48, num_classes))
"""
GRID = ("--archs", "tortured:build", "--methods", "bn_stats,tent", "--limit", "40", "--batch-size", "10",
        "--corruptions", "fog,snow,frost,contrast", "--seeds", "0,1")  # fmt: skip
CELLS = 3 * 4 * 2
ACTIONS = {"worker": 5, "sweep": 4, "everything": 3, "SIGTERM": 1}
PATIENCE = 300.0  # seconds in which something has to happen


class Forked:
    """A sweep that was forked from this process; as much of `subprocess.Popen` as is used here."""

    def __init__(self, arguments: list[str], folder: Path, log: Path) -> None:
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.chdir(folder)
                for stream, path in ((1, Path(os.devnull)), (2, log)):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
                # Workers are forked by one server, which has imported torch too.
                real = multiprocessing.get_context
                multiprocessing.get_context = lambda method=None: real("forkserver")  # type: ignore[assignment]
                forkserver._forkserver.ensure_running = lambda: None  # it runs, and is not a child of this
                sys.argv = ["ttabench", *arguments]
                from ttabench.cli import main

                main()
                os._exit(0)
            except SystemExit as leaving:
                os._exit(int(leaving.code or 0))
            except BaseException:
                traceback.print_exc()
                os._exit(99)

    def poll(self) -> int | None:
        if self.code is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.code = os.waitstatus_to_exitcode(ended[1])
        return self.code

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("a sweep", timeout)
            time.sleep(0.005)
        assert self.code is not None
        return self.code

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)


@dataclass
class Arena:
    """A results folder, the sweeps that run on it, and what was done to them."""

    root: Path
    out: Path
    draw: random.Random
    fresh: bool
    continual: bool
    tail: NewRecords = field(init=False)
    sweeps: list[Any] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tail = NewRecords(self.out, {})

    def start(self) -> Any:
        """A sweep of the grid on the folder, in a process group of its own."""
        arguments = ["sweep", *GRID, "--workers", "2", "--out", str(self.out)]
        arguments += ["--reset", "continual"] if self.continual else []
        log = self.root / "stderr.txt"
        if self.fresh:
            command = [sys.executable, "-c", "from ttabench.cli import main; main()", *arguments]
            with log.open("ab") as errors:
                process: Any = subprocess.Popen(
                    command, cwd=self.root, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
                )
        else:
            process = Forked(arguments, self.root, log)
        self.sweeps.append(process)
        return process

    def stored(self) -> int:
        """How many results there are."""
        self.tail.has()
        return len(self.tail.stored)

    def reap(self) -> None:
        """Forget sweeps that ended by themselves; they must have ended well."""
        for sweep in list(self.sweeps):
            if (code := sweep.poll()) is not None:
                self.sweeps.remove(sweep)
                self.done[f"ended with {code}"] += 1
                if code not in (0, 1):  # 1: a cell failed, because its worker was killed twice
                    self.problems.append(f"a sweep ended with exit code {code}")

    def workers(self) -> list[int]:
        """The worker processes that compute in the folder."""
        leases = FolderProcesses(self.out).leases()
        return [one.pid for one in leases if one.progress["role"] == "worker" and process_start(one.pid)]

    def wait_for_a_moment(self) -> None:
        """Some time after the start, or right after a result was stored."""
        if self.draw.random() < 0.3:
            time.sleep(self.draw.uniform(0, 8 if self.fresh else 1.5))
            return
        goal = self.stored() + self.draw.randrange(1, 5)
        until = time.monotonic() + PATIENCE
        while self.stored() < min(goal, CELLS) and any(s.poll() is None for s in self.sweeps):
            if time.monotonic() > until:
                self.problems.append("nothing was stored for a long time")
                return
            time.sleep(0.01)
        time.sleep(self.draw.choice((0.0, self.draw.uniform(0, 0.02), self.draw.uniform(0, 0.3))))

    def act(self) -> None:
        """One random act of violence."""
        (what,) = self.draw.choices(list(ACTIONS), list(ACTIONS.values()))
        sweep = self.draw.choice(self.sweeps)
        workers = self.workers()
        if what == "worker" and workers:
            kill(self.draw.choice(workers))
        elif what == "everything":
            for one in self.sweeps:
                os.killpg(one.pid, signal.SIGKILL)
            for worker in workers:
                kill(worker)
        elif what == "SIGTERM":
            started = time.monotonic()
            sweep.terminate()
            code = sweep.wait(PATIENCE)
            self.sweeps.remove(sweep)
            if time.monotonic() - started > 5:
                self.problems.append(f"SIGTERM took {time.monotonic() - started:.1f} s")
            if code not in (143, 0, 1, -signal.SIGTERM):  # the last before Python has a handler
                self.problems.append(f"SIGTERM ended with exit code {code}")
        else:
            what = "sweep"
            kill(sweep.pid)
        self.done[what] += 1
        if what in ("sweep", "everything"):
            for one in [sweep] if what == "sweep" else list(self.sweeps):
                one.wait(PATIENCE)
                self.sweeps.remove(one)
        if not self.sweeps:
            self.see_workers_leave(workers)

    def see_workers_leave(self, workers: list[int]) -> None:
        """Workers of a sweep that is gone end by themselves."""
        until = time.monotonic() + 20
        while any(map(process_start, workers)):
            if time.monotonic() > until:
                self.problems.append("a worker outlived its sweep")
                return
            time.sleep(0.01)

    def finish(self) -> None:
        """Let the folder be completed."""
        for _ in range(3):
            for sweep in self.sweeps or [self.start()]:
                sweep.wait(PATIENCE)
            self.reap()
            if not self.problems and len(good(self.out)) == CELLS:
                return
        self.start().wait(PATIENCE)
        self.reap()


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def ids(out: Path) -> set[str]:
    """The cells that have a result."""
    tail = NewRecords(out, {})
    tail.has()
    return set(tail.stored)


def good(out: Path) -> Counter[str]:
    """How many results that are not failures each cell has."""
    return Counter(r.cell_id for r in Store.at(out).records() if r.data["status"] == "ok")


def compare(out: Path, reference: Path, continual: bool) -> list[str]:
    """What is wrong with a folder."""
    problems = []
    expected, stored = Store.at(reference).latest(), Store.at(out).latest()
    count = good(out)
    if missing := expected.keys() - count.keys():
        problems.append(f"{len(missing)} cells are missing")
    twice = [key for key, times in count.items() if times > 1]
    if twice and not continual:
        problems.append(f"{len(twice)} cells were computed twice")
    if unknown := stored.keys() - expected.keys():
        problems.append(f"{len(unknown)} cells are not in the undisturbed run")
    computed = [record.result for record in Store.at(out).records() if record.data["status"] == "ok"]
    for now in (*computed, *(record.result for record in stored.values())):
        if now.cell.cell_id not in expected:
            continue
        then = expected[now.cell.cell_id].result
        if (then.accuracy, then.correct, then.n_images) != (now.accuracy, now.correct, now.n_images):
            problems.append(f"{now.cell} differs: {then.accuracy} → {now.accuracy} {now.reason}")
    return problems


WARM = """
import importlib, sys
for name in ("torch", "sklearn.datasets", "pandas", "cv2", "scipy.stats", "ttabench.run.worker",
             "ttabench.sweep.conduct", "ttabench_reports.terminal.accuracy_tables"):
    importlib.import_module(name)
from ttabench.data.catalog import dataset
from ttabench.provenance import current_code
from ttabench.registry import method
sys.modules["torch"].set_num_threads(1)
for name in ("source", "bn_stats", "tent"):
    method(name)
    current_code(name, "digits-c", "fog")
dataset("digits-c").test()
"""


def preload(root: Path) -> None:
    """Import what sweeps and workers import, here and in the server that workers are forked from."""
    (root / "warm.py").write_text(WARM)
    sys.path.insert(0, str(root))
    importlib.import_module("warm")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warm"])
    process = context.Process(target=time.sleep, args=(0,))
    process.start()
    process.join()


def main() -> None:
    parser = arguments(__doc__, rounds=200, seed=0)
    parser.add_argument("--keep", type=Path, help="make the folders here, and keep them")
    parser.add_argument("--fresh", action="store_true", help="start each process as a user does")
    parser.add_argument("--continual", action="store_true", help="cells that go on from one to the next")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        root = (options.keep or Path(scratch)).absolute()
        root.mkdir(parents=True, exist_ok=True)
        (root / "tortured.py").write_text(NET)
        os.environ.setdefault("TTABENCH_CACHE", str(root / "cache"))
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, sys.path)])
        if not options.fresh:
            preload(root)
        reference = Arena(root, root / "undisturbed", draw, options.fresh, options.continual)
        reference.finish()
        total: Counter[str] = Counter()
        problems = [*reference.problems, *compare(reference.out, reference.out, options.continual)]
        if len(good(reference.out)) != CELLS:
            sys.exit(f"the undisturbed run is not complete; see {root / 'stderr.txt'}")
        rounds = folders = cells = failed = torn = again = 0
        while rounds < options.rounds and not problems:
            folders += 1
            arena = Arena(root, root / f"folder-{folders}", draw, options.fresh, options.continual)
            while rounds < options.rounds and not arena.problems and arena.stored() < CELLS:
                arena.reap()
                while len(arena.sweeps) < (2 if draw.random() < 0.4 else 1):
                    arena.start()
                arena.wait_for_a_moment()
                arena.reap()
                if arena.sweeps:
                    arena.act()
                    rounds += 1
            arena.finish()
            problems = [*arena.problems, *compare(arena.out, reference.out, options.continual)]
            total += arena.done
            cells += len(ids(arena.out))
            again += sum(times - 1 for times in good(arena.out).values())
            failed += sum(r.data["status"] == "failed" for r in Store.at(arena.out).records())
            shards = list((arena.out / "cells").glob("*.jsonl"))
            torn += sum(not shard.read_bytes().endswith(b"\n") for shard in shards)
            print(f"{rounds} rounds, folder {folders}, {len(shards)} writers: {problems or 'as undisturbed'}",
                  flush=True)  # fmt: skip
    for problem in problems:
        print(problem)
    acts = ", ".join(f"{count} × {what}" for what, count in sorted(total.items()))
    print(f"{acts}; {failed} failures recorded of workers killed twice, {torn} incomplete last lines ignored")
    print(f"{again} cells of continual runs computed again")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"rounds={rounds} folders={folders} cells={cells} problems={len(problems)} "
          f"seconds={time.monotonic() - started:.0f}")  # fmt: skip
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
