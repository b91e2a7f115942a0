"""A sweep that is handed over to other machines: the command that each of them runs on the same folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ttabench.errors import UserError
from ttabench.sweep.option_table import DEFAULTS, OPTIONS
from ttabench.sweep.shard import WHOLE, Shard
from ttabench.system.files import replace_file, writing

PASSED_ON = (
    "per_gpu", "cell_timeout", "cell_memory", "device_memory", "activations", "scores", "overwrite",
)  # fmt: skip


def hand_over(
    asked: Path, options: Mapping[str, Any], shard: Shard, start: Mapping[str, int], folder: Path, out: Path
) -> tuple[str, ...]:
    """The arguments of ``ttabench`` with which a process takes part in a sweep; its device is to be added.

    asked    its sweep file in the results folder `out`, see `sweep_file.keep`; a copy is handed over, as
             users may change that file before the process begins.
    start    the results folder when the cells were planned, see `store.new_records.sizes`: what was stored
             later is done, whatever `--overwrite` says.
    folder   for the files that it needs. Raises UserError where it cannot be written.
    """
    sweep, begun, content = folder / "sweep.toml", folder / "begun.json", asked.read_bytes()
    with writing(folder):
        replace_file(sweep, content)
        replace_file(begun, json.dumps(dict(start)).encode())
    flags: dict[str, Any] = {"--config": sweep, "--begun": begun, "--out": out}
    flags |= {OPTIONS[name].flag: options[name] for name in PASSED_ON if options[name] != DEFAULTS[name]}
    if shard != WHOLE:
        flags["--shard"] = f"{shard[0] + 1}/{shard[1]}"
    return ("sweep", *(str(part) for flag in flags.items() for part in flag))


def read_begun(path: Path) -> dict[str, int]:
    """The start that was handed over. Raises UserError for what is no such file."""
    try:
        return {str(name): int(size) for name, size in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as problem:
        raise UserError(f"--begun {path} is not what a sweep hands over ({problem}).") from None
