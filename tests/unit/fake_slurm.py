"""``sbatch``, ``squeue``, ``scancel`` and ``sinfo`` without Slurm: tasks are processes on this machine.

A file per job array in the folder FAKE_SLURM, by the name of the job, has the process that runs its tasks.
Where the file ``refuses`` is there, sbatch takes nothing, and says what is in it. The file ``reason`` has
what squeue gives as the reason of tasks that wait.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo")


def install(folder: Path) -> Path:
    """Write the commands into `folder`; returns where the state is."""
    for name in COMMANDS:
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {name} "$@"\n')
        file.chmod(0o755)
    (folder / "jobs").mkdir()
    return folder / "jobs"


def options(arguments: list[str]) -> dict[str, str]:
    """``--name=value`` and ``--name value`` → {"name": "value"}"""
    found: dict[str, str] = {}
    for number, argument in enumerate(arguments):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            after = arguments[number + 1 : number + 2]
            found[name] = value if equals or not after or after[0].startswith("--") else after[0]
    return found


def sbatch(state: Path, arguments: list[str]) -> int:
    refuses = state / "refuses"
    if refuses.exists():
        print(refuses.read_text(), file=sys.stderr)
        return 1
    asked = options(arguments)
    (state / "asked.json").write_text(json.dumps(asked))
    command = [sys.executable, "-S", __file__, "tasks", asked["array"], asked["output"], arguments[-1]]
    null = subprocess.DEVNULL
    runner = subprocess.Popen(
        command, start_new_session=True, stdin=null, stdout=null, stderr=null, cwd=asked["chdir"]
    )
    (state / asked["job-name"]).write_text(str(runner.pid))
    print("7")
    return 0


def tasks(array: str, output: str, script: str) -> int:
    """What Slurm does with a job array: ``0-3%2`` are four tasks, two at once."""
    last, _, at_once = array.partition("-")[2].partition("%")

    def task(number: int) -> None:
        with Path(output.replace("%a", str(number)).replace("%%", "%")).open("a") as log:
            variables = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}
            subprocess.run(["bash", script], stdout=log, stderr=log, env=variables, check=False)

    with ThreadPoolExecutor(int(at_once)) as pool:
        list(pool.map(task, range(int(last) + 1)))
    return 0


def lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def main() -> int:
    name, *arguments = sys.argv[1:]
    if name == "tasks":
        return tasks(*arguments)
    state = Path(os.environ["FAKE_SLURM"])
    if name == "sbatch":
        return sbatch(state, arguments)
    if name == "sinfo":
        print("(null)")
        return 0
    job = state / options(arguments)["name"]
    if job.exists() and lives(pid := int(job.read_text())):
        if name == "scancel":
            os.killpg(pid, signal.SIGTERM)
        elif options(arguments)["format"] == "%T %r":
            waiting = state / "waiting"
            print(waiting.read_text() if waiting.exists() else "RUNNING None\nPENDING JobArrayTaskLimit")
        else:
            print("7_0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
