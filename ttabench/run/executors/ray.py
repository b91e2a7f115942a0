"""Jobs on a Ray cluster: one Ray task per GPU or core, each of which runs the same command on the folder.

Ray places the tasks, and starts those again that lose their node. See `cluster`.
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ttabench.errors import UserError, first_line
from ttabench.run.executors import Engine, Setup, cluster, take_options
from ttabench.run.executors.cluster import Command, last_words

OPTIONS = {"address": ""}
RETRIES = 2  # how often Ray starts a task again whose node or process is lost
CONNECT = 10.0  # seconds to wait for an answer of a cluster
GRACE = 10.0  # seconds for tasks to end in order


def engine(setup: Setup) -> Engine:
    """``--executor ray``: a running Ray cluster, or Ray on this machine where there is none."""
    options, asked = take_options(setup, "ray", OPTIONS), cluster.asked_workers(setup, "ray")
    ray = connect(options["address"])
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus, cores = (sum(int(node.get(kind, 0)) for node in nodes) for kind in ("GPU", "CPU"))
    device = setup.device if setup.device != "auto" else "cuda" if gpus else "cpu"
    if device == "cuda" and not gpus:
        raise UserError("--device cuda: this Ray cluster has no GPU.")
    needs = {"num_cpus": 0, "num_gpus": 1 / setup.per_gpu} if device == "cuda" else {"num_cpus": 1}
    workers = asked or (gpus * setup.per_gpu if device == "cuda" else cores)
    arguments = ("--device", device, "--workers", "1")
    tasks = Tasks(ray, needs, cluster.logs_of(setup))
    run = partial(cluster.run, places=tasks, each=1, arguments=arguments, setup=setup)
    return Engine(run, max(1, workers), device, by_command=True)


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


class Tasks:
    """Tasks of Ray, one per command; `needs` are the resources of each, as Ray names them."""

    rounds = 1
    hint = "`ray status` shows what is in use"

    def __init__(self, ray: Any, needs: Mapping[str, float], folder: Path) -> None:
        self._ray, self._needs, self._folder = ray, needs, folder
        self._tasks: list[Any] = []

    def start(self, commands: Sequence[Command], at_once: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        task = self._ray.remote(
            max_calls=1, max_retries=RETRIES, scheduling_strategy="SPREAD", **self._needs
        )(work)
        here = os.getcwd(), [os.path.abspath(entry) for entry in sys.path]
        variables = {name: value for name, value in os.environ.items() if name.startswith("TTABENCH_")}
        for number, command in enumerate(commands):
            log = self._folder / f"{number}.log"
            self._tasks.append(task.remote(command, log, *here, variables))

    def is_open(self) -> bool:
        return bool(self._ended(0)[1])

    def trouble(self) -> str:
        for task in self._ended(0)[0]:
            try:
                self._ray.get(task)
            except Exception as problem:  # whatever the task or Ray says
                return first_line(getattr(problem, "cause", None) or problem)
        return ""

    def cancel(self) -> None:
        for task in self._tasks:
            self._ray.cancel(task)  # as Ctrl-C does
        self._ended(GRACE)

    def _ended(self, seconds: float) -> tuple[list[Any], list[Any]]:
        """Tasks that have ended, and those that have not."""
        if not self._tasks:
            return [], []
        ended, others = self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=seconds)
        return ended, others


def work(command: Command, log: Path, folder: str, path: Sequence[str], variables: Mapping[str, str]) -> None:
    """Run a command in this process, which Ray ends afterwards. Raises RuntimeError where it fails."""
    if os.path.isdir(folder):
        os.chdir(folder)
    sys.path += [entry for entry in path if entry not in sys.path]
    os.environ.update(variables)
    file = log.open("a", buffering=1)
    for stream in (1, 2):  # of the processes that it starts
        os.dup2(file.fileno(), stream)
    sys.stdout = sys.stderr = file
    sys.argv = ["ttabench", *command]
    try:
        runpy.run_module("ttabench", run_name="__main__")
    except SystemExit as leaving:
        if leaving.code:
            raise RuntimeError(last_words(log)) from None
