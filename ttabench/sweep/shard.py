"""A slice of a sweep for each of several machines that share nothing but the results folder."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence

from ttabench.errors import UserError
from ttabench.sweep.plan import Planned, sequence

Shard = tuple[int, int]
"""The index of a slice, from 0, and how many slices there are."""

WHOLE: Shard = 0, 1


def pick_shard(text: str, variables: Mapping[str, str] = os.environ) -> Shard:
    """``2/5`` → (1, 5): the second of five; ``auto`` asks Slurm's and torchrun's variables; "" is all.

    Raises UserError for anything else, and where ``auto`` finds no variables or an array with gaps.
    """
    if not text:
        return WHOLE
    if text == "auto":
        return _from_variables(variables)
    first, _, second = text.partition("/")
    if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)):
        raise UserError(f"--shard {text}: expected i/n with 1 ≤ i ≤ n, e.g. 2/5, or auto.")
    return int(first) - 1, int(second)


def _from_variables(variables: Mapping[str, str]) -> Shard:
    """The task of a Slurm array, then the rank in it: of torchrun, or of a step that srun started.

    A batch script has SLURM_PROCID and SLURM_NTASKS too, and is one process; only a step has SLURM_STEP_ID.
    """
    index, count = WHOLE
    is_set = False
    try:
        if "SLURM_ARRAY_TASK_ID" in variables:
            is_set = True
            low, high, count, step = (
                int(variables[f"SLURM_ARRAY_TASK_{name}"]) for name in ("MIN", "MAX", "COUNT", "STEP")
            )
            index, between = divmod(int(variables["SLURM_ARRAY_TASK_ID"]) - low, step)
            if between or (high - low) // step + 1 != count:
                raise UserError(
                    "--shard auto: the indices of this Slurm array have gaps; "
                    "use an array without gaps, or --shard i/n."
                )
        for name, rank, ranks in (
            ("WORLD_SIZE", "RANK", "WORLD_SIZE"),
            ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ):
            if name in variables and rank in variables:
                is_set = True
                size = int(variables[ranks])
                index, count = index * size + int(variables[rank]), count * size
                break
    except (KeyError, ValueError, ZeroDivisionError) as problem:
        raise UserError(
            f"--shard auto: the variables of Slurm or torchrun are incomplete ({problem})."
        ) from None
    if not is_set or not 0 <= index < count:
        raise UserError(
            "--shard auto: expected SLURM_ARRAY_TASK_ID, RANK and WORLD_SIZE, or a step of srun in the "
            "environment; outside of Slurm and torchrun use --shard i/n."
        )
    return index, count


def take_shard(planned: Sequence[Planned], shard: Shard) -> list[Planned]:
    """Every n-th cell of a plan; cells that carry state over to each other stay together.

    It depends on the plan alone and not on what is done, so that slices never overlap, whenever they start.
    """
    index, count = shard
    numbers: dict[Hashable, int] = {}
    return [p for p in planned if numbers.setdefault(sequence(p.cell), len(numbers)) % count == index]
