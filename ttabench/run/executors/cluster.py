"""What the engines of clusters have in common."""

from __future__ import annotations

from ttabench.errors import UserError
from ttabench.run.executors import Setup


def asked_workers(setup: Setup, executor: str) -> int:
    """How many workers are asked for, 0 = auto. Raises UserError for what no cluster takes."""
    if setup.device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"--device {setup.device}: with --executor {executor}, {executor.capitalize()} chooses the GPU; "
            "use cuda, cpu or auto."
        )
    if setup.workers == "auto":
        return 0
    if not setup.workers.isdecimal() or not int(setup.workers):
        raise UserError(f"--workers {setup.workers}: with --executor {executor} expected auto or 1 or more.")
    return int(setup.workers)
