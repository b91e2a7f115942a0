"""What a dry run says of a cluster: what its engine would refuse anywhere, and what it would ask for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.util import find_spec

from ttabench.errors import counted
from ttabench.run.executors import Setup, ray, slurm, take_options
from ttabench.run.executors.cluster import asked_workers


def outlook(name: str, setup: Setup) -> str:
    """One line on the tasks of slurm or the workers of ray, and on what is missing here for it.

    Nothing is started and no cluster is asked. Raises UserError for what the engine refuses on every cluster.
    """
    own = take_options(setup, name, slurm.OPTIONS if name == "slurm" else ray.OPTIONS)
    asked = asked_workers(setup, name)
    if name == "ray":
        workers = counted(asked, "worker") if asked else _per_place(setup)
        return f"ray: {workers}{_missing({'the package ray': find_spec('ray')})}."
    slurm.sbatch_parameters(own, "cpu", 1)
    at_once = counted(asked, "worker") if asked else f"{slurm.AUTO} tasks"
    parts = [f"{_place(setup.device, own['gres'])} each", f"{at_once} at once"]
    parts.append(_time(own["time"], setup.limits.seconds))
    parts += [f"{own['mem']} GB of host memory"] if own["mem"] else []
    parts += [f"{key} {value}" for key, value in own.items() if value and key not in ("time", "mem", "gres")]
    needed = {"the package submitit": find_spec("submitit"), "sbatch": shutil.which("sbatch")}
    return f"slurm: tasks with {', '.join(parts)}{_missing(needed)}."


def _per_place(setup: Setup) -> str:
    gpu = f"{counted(setup.per_gpu, 'worker')} per GPU"
    return {"cpu": "1 worker per core", "cuda": gpu}.get(setup.device, f"{gpu}, or 1 per core without GPUs")


def _place(device: str, gres: str) -> str:
    """What a task has. Only Slurm knows whether the nodes of a partition have GPUs."""
    if gres:
        return gres
    return {"cpu": "1 core", "cuda": "1 GPU"}.get(device, "1 GPU, or 1 core where sinfo shows no GPU,")


def _time(minutes: str, cell_seconds: float) -> str:
    if minutes or not cell_seconds:
        return f"{minutes or f'{60 * slurm.HOURS:g}'} minutes"
    return "a time limit from --cell-timeout"


def _missing(needed: Mapping[str, object]) -> str:
    missing = [name for name, found in needed.items() if not found]
    verb = "is" if len(missing) == 1 else "are"
    return f"; {' and '.join(missing)} {verb} not on this machine" if missing else ""
