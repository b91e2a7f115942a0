"""Jobs on a Ray cluster: one actor per GPU or core, each with a worker process of its own.

Ray ends the process of a GPU task after each call, so the slots are actors, which stay. Its fractions of a
GPU share out places and not memory. The process that computes is the same as on one machine, and so are
limits, deaths and numbers. Ray finds places and reports lost nodes.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ttabench.errors import UserError, first_line, forward_warnings
from ttabench.run.executors import Engine, Job, Limits, Setup, take_options
from ttabench.run.executors.cluster import asked_workers
from ttabench.run.executors.local import CannotStart, Crew
from ttabench.run.executors.retry import Attempt, Losses, Stored, after_loss, cells_of

OPTIONS = {"address": ""}
BATCH = 0.2  # seconds: events of a slot travel together
STARTS = 3  # a place whose slot ends before it starts so often in a row is given up
CONNECT = 10.0  # seconds to wait for an answer of a cluster
PATIENCE = 60.0  # seconds without any slot after which the user is told


def engine(setup: Setup) -> Engine:
    """``--executor ray``: a running Ray cluster, or Ray on this machine where there is none."""
    options, asked = take_options(setup, "ray", OPTIONS), asked_workers(setup, "ray")
    ray = connect(options["address"])
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus, cores = (sum(int(node.get(kind, 0)) for node in nodes) for kind in ("GPU", "CPU"))
    device = setup.device if setup.device != "auto" else "cuda" if gpus else "cpu"
    if device == "cuda" and not gpus:
        raise UserError("--device cuda: this Ray cluster has no GPU.")
    workers = asked or (gpus * setup.per_gpu if device == "cuda" else cores)
    needs = {"num_cpus": 0, "num_gpus": 1 / setup.per_gpu} if device == "cuda" else {"num_cpus": 1}
    runs = partial(run, needs=needs, limits=setup.limits, folder=setup.folder, losses=Losses())
    return Engine(runs, max(1, workers), device)


def connect(address: str = "") -> Any:
    """The module ray, connected. Raises UserError if it is missing or no cluster answers."""
    try:
        import ray
    except ImportError as problem:
        raise UserError(
            f"--executor ray needs the package ray ({problem}); install it with pip install 'ttabench[ray]'."
        ) from None
    if not ray.is_initialized():
        _look_for(address or os.environ.get("RAY_ADDRESS", ""))
        handler, main = signal.getsignal(signal.SIGTERM), threading.main_thread()
        try:
            ray.init(address=address or None, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as problem:
            raise UserError(
                f"no Ray cluster answers ({first_line(problem)}); start one with ray start --head."
            ) from None
        if threading.current_thread() is main:
            signal.signal(signal.SIGTERM, handler)  # ray.init takes it
    return ray


def _look_for(address: str) -> None:
    """Raises UserError if nobody listens at ``host:port``. Ray would try for minutes and end the process."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal()) or "://" in address:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except (OSError, OverflowError) as problem:
        raise UserError(
            f"no Ray cluster answers at {address} ({problem}); start one with ray start --head."
        ) from None


class Slot:
    """The actor: a place for one worker process."""

    def __init__(
        self, folder: str, path: Sequence[str], variables: Mapping[str, str], limits: Limits
    ) -> None:
        if os.path.isdir(folder):
            os.chdir(folder)
        sys.path += [entry for entry in path if entry not in sys.path]
        os.environ.update(variables)
        self._events: list[Any] = []
        forward_warnings(self._events.append)
        self._crew = Crew([{}], limits)

    def ready(self) -> str:
        return os.uname().nodename

    def work(self, job: Job) -> Iterator[list[Any]]:
        """The events of a job, in batches; warnings are among them."""
        since = time.monotonic()
        try:
            for event in self._crew.work([job]):
                self._events.append(event)
                if time.monotonic() - since >= BATCH:
                    yield self._take()
                    since = time.monotonic()
        except Exception:
            yield self._take()
            raise
        yield self._take()

    def _take(self) -> list[Any]:
        batch = list(self._events)
        self._events.clear()
        return batch


class Place:
    """An actor as the driver sees it, with the job that it is at.

    failed_starts   how often in a row an actor in this place, or its worker process, ended before it started.
    got_on          whether its job has sent anything but warnings.
    """

    def __init__(self, ray: Any, needs: Mapping[str, float], limits: Limits, failed_starts: int = 0) -> None:
        self._ray, self.failed_starts = ray, failed_starts
        actor = ray.remote(Slot).options(max_restarts=0, scheduling_strategy="SPREAD", **needs)
        variables = {name: value for name, value in os.environ.items() if name.startswith("TTABENCH_")}
        path = [os.path.abspath(entry) for entry in sys.path]
        self._actor = actor.remote(os.getcwd(), path, variables, limits)
        self.started = self.got_on = False
        self.attempt: Attempt | None = None
        self.finished: set[str] = set()
        self.waits: Any = self._actor.ready.remote()  # what becomes ready next; None = idle

    def give(self, attempt: Attempt) -> None:
        self.attempt, self.finished, self.got_on = attempt, set(), False
        self.waits = self._actor.work.options(num_returns="streaming").remote(attempt.job)

    def take(self) -> list[Any]:
        """What has become ready. Raises RayError where the actor is lost, and what the job raised."""
        from ray.exceptions import RayTaskError

        try:
            if not self.started:
                self._ray.get(self.waits)
                self.started, self.waits = True, None
                return []
            batch: list[Any] = self._ray.get(next(self.waits))
        except StopIteration:
            self.attempt, self.waits, self.failed_starts = None, None, 0
            return []
        except RayTaskError as problem:
            raise problem.cause from None
        if not all(isinstance(event, Warning) for event in batch):
            self.failed_starts, self.got_on = 0, True
        for event in batch:
            self.finished.update(getattr(event, "finished", ()))
        return batch

    def kill(self) -> None:
        self._ray.kill(self._actor)


def run(
    jobs: Sequence[Job],
    workers: int,
    *,
    needs: Mapping[str, float],
    limits: Limits,
    folder: Path,
    losses: Losses,
) -> Generator[Any]:
    """Run `jobs` on `workers` actors. The jobs of a lost actor or node are run again, elsewhere.

    needs   resources of an actor, as Ray names them.
    folder  where results are stored: cells that are stored there are not run again if Ray loses a node.
    A node where no actor starts is left to itself while others work. Raises UserError where no actor can
    start, and what a job raises.
    """
    ray = connect()
    from ray.exceptions import RayError

    queue, wanted, stored = deque(map(Attempt, jobs)), cells_of(jobs), Stored(folder)
    start = partial(Place, ray, needs, limits)
    places = [start() for _ in range(min(workers, len(jobs)))]
    seen, warned = time.monotonic(), False
    try:
        while queue or any(place.attempt for place in places):
            for place in places:
                if queue and place.started and place.attempt is None:
                    place.give(queue.popleft())
            waiting = {place.waits: place for place in places if place.waits is not None}
            ready, _ = ray.wait(list(waiting), timeout=1.0)
            if any(place.started for place in places):
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE and not warned:
                warned = True
                warnings.warn(
                    "Ray has no free place for a worker yet; `ray status` shows what is in use.", stacklevel=2
                )
            for place in (waiting[one] for one in ready):
                try:
                    events = place.take()
                except (RayError, CannotStart) as problem:
                    _replace(place, places, problem, start)
                    if place.attempt is None:
                        continue
                    yield from stored.new(wanted)
                    if isinstance(problem, CannotStart) and not place.got_on:  # its node is at fault
                        queue.appendleft(place.attempt)
                        continue
                    again, died = after_loss(
                        place.attempt,
                        place.finished.union(stored.cells),
                        f"its Ray worker is lost: {brief(problem)}",
                        losses,
                    )
                    queue.extendleft(reversed(again))
                    if died is not None:
                        yield died
                    continue
                for event in events:
                    if isinstance(event, Warning):
                        warnings.warn(event, stacklevel=2)
                    else:
                        yield event
    finally:
        for place in places:
            place.kill()


def _replace(place: Place, places: list[Place], problem: Exception, start: Callable[[int], Place]) -> None:
    """A new place for one that is lost; none where no worker starts. Raises UserError if no place is left."""
    has_started = place.started and not isinstance(problem, CannotStart)
    failed_starts = 0 if has_started else place.failed_starts + 1
    at = places.index(place)
    place.kill()  # an actor whose worker does not start lives, and has what a new one needs
    if failed_starts < STARTS:
        places[at] = start(failed_starts)
        return
    del places[at]
    why = f"start on this Ray cluster: {brief(problem)}"
    if not places:
        raise UserError(f"no worker can {why}.") from None
    warnings.warn(f"a worker cannot {why}; the others go on.", stacklevel=3)


def brief(problem: Exception) -> str:
    """The first sentence of what Ray says of a loss, without its full stop."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[0] if lines else type(problem).__name__).rstrip(".")
