"""What a dry run says of a cluster: what its engine would refuse anywhere, and what it would ask for."""

from __future__ import annotations

import shutil
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
        missing = "" if find_spec("ray") else "; the package ray is not on this machine"
        return f"ray: {workers}{missing}."
    slurm.sbatch_options(own, setup, "cpu", 1)
    at_once = counted(asked, "worker") if asked else f"{slurm.AUTO} tasks"
    parts = [f"{_place(setup.device, own['gres'])} each", f"{at_once} at once"]
    parts.append(f"{slurm.minutes(own, setup)} minutes")
    parts += [f"{own['mem']} GB of host memory"] if own["mem"] else []
    parts += [f"{key} {value}" for key, value in own.items() if value and key not in ("time", "mem", "gres")]
    missing = "" if shutil.which("sbatch") else "; sbatch is not on this machine"
    return f"slurm: tasks with {', '.join(parts)}{missing}."


def _per_place(setup: Setup) -> str:
    gpu = f"{counted(setup.per_gpu, 'worker')} per GPU"
    return {"cpu": "1 worker per core", "cuda": gpu}.get(setup.device, f"{gpu}, or 1 per core without GPUs")


def _place(device: str, gres: str) -> str:
    """What a task has. Only Slurm knows whether the nodes of a partition have GPUs."""
    if gres:
        return gres
    return {"cpu": "1 core", "cuda": "1 GPU"}.get(device, "1 GPU, or 1 core where sinfo shows no GPU,")
