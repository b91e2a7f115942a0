"""Whether the files of a dataset were written to while a cell ran, without reading them again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ttabench.corruptions.names import NATURAL, SEVERITIES
from ttabench.data.dataset import Dataset
from ttabench.data.drawn import undrawn
from ttabench.data.on_disk import OnDisk
from ttabench.errors import UserError

State = tuple[int, int, int]
"""Size in bytes, time of modification in ns, inode."""


CLEAN = "clean"
CLEAN_FOLDERS = {"test", "clean/val"}


def file_states(dataset: Dataset, corruption: str, severity: int) -> dict[str, State]:
    """The state of each file that the images of a cell come from, by its path.

    All single files of a dataset, and the folders of one corruption, or of `CLEAN` images. Another
    `corruption` than one of the dataset, such as a stream of many, stands for the folders of all.
    {} for images that are not read from files.

    Raises UserError where a file is gone.
    """
    dataset = undrawn(dataset)
    if not isinstance(dataset, OnDisk):
        return {}
    wanted = CLEAN_FOLDERS if corruption == CLEAN else {NATURAL, f"{corruption}/{severity}"}
    if corruption not in (CLEAN, *dataset.corruptions):
        wanted |= {f"{each}/{level}" for each in dataset.corruptions for level in SEVERITIES}
    states: dict[str, State] = {}
    for name, path in dataset.pieces().items():
        try:
            if path.is_dir():
                if name.removeprefix("corrupted/") in wanted:
                    states |= dict(_below(path))
            else:
                states[str(path)] = _state(path.stat())
        except OSError as problem:
            raise UserError(f"{path} can no longer be read ({problem.strerror}); put it back.") from None
    return states


def _below(folder: Path) -> Iterator[tuple[str, State]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _below(Path(entry.path))
            elif not entry.name.startswith("."):
                yield entry.path, _state(entry.stat())


def _state(stat: os.stat_result) -> State:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
