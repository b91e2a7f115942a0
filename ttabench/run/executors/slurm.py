"""Jobs on a Slurm cluster: one job array, each task of which runs the same command on the results folder.

Slurm places the tasks and queues those again that it preempts, or whose node is lost. See `cluster`.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ttabench.errors import UserError, counted
from ttabench.run.executors import Engine, Setup, cluster, take_options
from ttabench.run.executors.cluster import Command, last_words

PASSED = ("partition", "account", "qos", "constraint", "exclude", "nodelist", "gres")
OPTIONS = dict.fromkeys(("time", "mem", *PASSED, "setup"), "")
AUTO = 32  # tasks at once, unless --workers says more or fewer
MINUTES = 240  # the time limit of a task, unless a single cell may take longer
LIMIT = (
    "Slurm ended tasks with SIGTERM, as it does shortly before their time limit. If a cell needs longer: "
    "--executor-options time=MINUTES"
)
WAY = 1.0  # seconds that what an interrupted sbatch has sent may need to come into the queue


def engine(setup: Setup) -> Engine:
    """``--executor slurm``: each task has one GPU, or one core."""
    options, asked = take_options(setup, "slurm", OPTIONS), cluster.asked_workers(setup, "slurm")
    if missing := [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]:
        raise UserError(f"--executor slurm needs the commands of Slurm here; {missing[0]} is missing.")
    chosen = ["--partition", options["partition"]] if options["partition"] else []
    resources = call("sinfo", "--noheader", "--format", "%G", *chosen)
    if resources is None:
        raise UserError("--executor slurm: Slurm does not answer here; see what sinfo says.")
    gres = options["gres"]
    device = setup.device if setup.device != "auto" else "cuda" if "gpu" in gres + resources else "cpu"
    count = gres.rpartition(":")[2] if gres.startswith("gpu") else ""
    each = setup.per_gpu * (int(count) if count.isdecimal() else 1) if device == "cuda" else 1
    asks = sbatch_options(options, setup, device, each)
    array = Array(setup.name, cluster.logs_of(setup), asks, options["setup"])
    arguments = ("--device", device, "--workers", "auto" if device == "cuda" else "1")
    run = partial(cluster.run, places=array, each=each, arguments=arguments, setup=setup)
    return Engine(run, asked or AUTO * each, device, by_command=True)


def sbatch_options(options: Mapping[str, str], setup: Setup, device: str, each: int) -> list[str]:
    """What `sbatch` is asked for, for a task of `each` workers. Raises UserError."""
    asked = {"nodes": "1", "ntasks": "1", "cpus-per-task": str(each)}
    asked |= {name: options[name] for name in PASSED if options[name]}
    if device == "cuda" and not options["gres"]:
        asked["gpus-per-node"] = "1"
    asked["time"] = str(limit := minutes(options, setup))
    asked["signal"] = f"B:TERM@{min(60, 15 * limit)}"  # to end in order before the limit
    if memory := number_of(options, "mem", "GB"):
        asked["mem"] = f"{math.ceil(1024 * memory)}M"
    return [f"--{name}={value}" for name, value in asked.items()]


def minutes(options: Mapping[str, str], setup: Setup) -> int:
    """The time limit of a task. Raises UserError."""
    usual = max(MINUTES, 10 + setup.limits.seconds / 60)
    return math.ceil(number_of(options, "time", "minutes") or usual)


def number_of(options: Mapping[str, str], name: str, unit: str) -> float:
    """An option that is a number > 0; 0 where it is not given. Raises UserError."""
    try:
        number = float(options[name] or 0)
    except ValueError:
        number = math.nan
    if options[name] and not 0 < number < math.inf:
        raise UserError(f"--executor-options {name}={options[name]}: expected {unit}, a number above 0.")
    return number


class Array:
    """A job array; `options` are those of sbatch, `setup` a shell command before each task."""

    rounds = 4  # a task that is at its time limit leaves what is to do to the next one

    def __init__(self, name: str, folder: Path, options: Sequence[str], setup: str) -> None:
        self.name, self.folder, self.options, self.setup = name, folder, options, setup
        self._accepted = False

    @property
    def hint(self) -> str:
        asked = call("squeue", "--noheader", *self._mine(), "--format", "%T %r") or ""
        tasks = [line.partition(" ")[::2] for line in asked.splitlines()]
        if running := sum(state == "RUNNING" for state, _ in tasks):
            return f"Slurm runs {counted(running, 'task')}. For what they do, see the logs in {self.folder}"
        reasons = [
            reason for reason in dict.fromkeys(reason for _, reason in tasks) if reason not in ("", "None")
        ]
        named = f"Slurm gives as reason: {'; '.join(reasons)}. " if reasons else ""
        return f"{named}`squeue --name={self.name}` says what Slurm waits for"

    def start(self, commands: Sequence[Command], at_once: int) -> None:
        script = self.folder / "task.sh"
        self.folder.mkdir(parents=True, exist_ok=True)
        script.write_text("\n".join(["#!/bin/bash", *_exports(), self.setup, *_cases(commands)]) + "\n")
        array, here = f"--array=0-{len(commands) - 1}%{at_once}", f"--chdir={os.getcwd()}"
        log = f"--output={str(self.folder).replace('%', '%%')}/%a.log"
        ours = ["--requeue", "--open-mode=append", array, here, log, f"--job-name={self.name}"]
        # Inside of another job, its variables would be those of the tasks.
        variables = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k == "SLURM_CONF"}
        done = subprocess.run(
            ["sbatch", *ours, *self.options, str(script)], capture_output=True, text=True, env=variables
        )
        self._accepted = True
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise UserError(f"Slurm refuses the job: {lines[-1] if lines else 'sbatch fails'}.")

    def is_open(self) -> bool:
        """True as well where Slurm does not answer."""
        return call("squeue", "--noheader", *self._mine(), "--format", "%i") != ""

    def trouble(self) -> str:
        logs = sorted(self.folder.glob("*.log"), key=lambda log: log.stat().st_mtime)
        words = next(filter(None, map(last_words, reversed(logs))), "")
        return LIMIT if words.endswith("ended by SIGTERM.") else words

    def cancel(self) -> None:
        """By name: sbatch may have been interrupted before it said its number."""
        if not self._accepted:
            time.sleep(WAY)
        if call("scancel", *self._mine()) is None:
            later = f"scancel --name={self.name}"
            warnings.warn(f"Slurm tasks may go on, since scancel fails here. Later: {later}", stacklevel=2)

    def _mine(self) -> list[str]:
        return ["--user", str(os.getuid()), "--name", self.name]


def _exports() -> list[str]:
    """Where tasks import from what this process does, besides its Python."""
    path = [entry for entry in map(os.path.abspath, sys.path) if os.path.isdir(entry)]
    ours = (sys.prefix, sys.base_prefix)
    more = [entry for entry in path if not any(Path(entry).is_relative_to(place) for place in ours)]
    line = f'export PYTHONPATH={shlex.quote(os.pathsep.join(more))}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    return [line] if more else []


def _cases(commands: Sequence[Command]) -> list[str]:
    """Shell lines that run the command of a task, by its number."""
    lines = [f"exec {shlex.join([sys.executable, '-m', 'ttabench', *command])}" for command in commands]
    if len(set(lines)) == 1:
        return lines[:1]
    return ['case "$SLURM_ARRAY_TASK_ID" in', *(f"{n}) {line} ;;" for n, line in enumerate(lines)), "esac"]


def call(*command: str) -> str | None:
    """What a command of Slurm prints; None if it is missing, fails, or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
