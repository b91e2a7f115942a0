"""Checks that the data of a cell are those that were planned, and do not change while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ttabench.cell import Cell
from ttabench.corruptions.corruption_names import NATURAL, SEVERITIES
from ttabench.data.balanced_subset import undrawn
from ttabench.data.dataset import Dataset
from ttabench.data.foreign_set import ForeignSet
from ttabench.data.on_disk import OnDisk
from ttabench.errors import UnusableModel, UserError

State = tuple[int, int, int]
"""Size in bytes, time of modification in ns, inode."""
CLEAN = "clean"
CLEAN_FOLDERS = {"test", "clean/val"}


@contextmanager
def unchanged_data(cell: Cell, dataset: Dataset, foreign: ForeignSet | None) -> Iterator[Callable[[], None]]:
    """The data of a cell do not change in the block that reads them. It gives a check for once they are read.

    foreign  the images that contaminate its stream; None if there are none.

    Raises UnusableModel if the images are not those that were planned, or if a file of them was written to.
    """
    before = _states(cell, dataset, foreign)
    yield lambda: _check_planned(cell, dataset, foreign)
    _check_planned(cell, dataset, foreign)
    if written := sorted(before.items() ^ _states(cell, dataset, foreign).items()):
        raise UnusableModel(f"{written[0][0]} was written to while the cell ran; run the sweep again")


def _check_planned(cell: Cell, dataset: Dataset, foreign: ForeignSet | None) -> None:
    found = [(cell.dataset, dataset.fingerprint(), cell.fingerprint)]
    if foreign is not None:
        found.append((foreign.name, foreign.fingerprint(), cell.foreign))
    for name, now, planned in found:
        if now != planned:
            raise UnusableModel(
                f"the data of {name} changed during the sweep (now {now[:12]}); run the sweep again"
            )


def _states(cell: Cell, dataset: Dataset, foreign: ForeignSet | None) -> dict[str, State]:
    states = file_states(dataset, cell.corruption, cell.severity)
    if foreign is not None:
        natural = NATURAL if foreign.corruptions == (NATURAL,) else CLEAN
        _look_again(foreign.data, natural)
        states |= file_states(foreign.data, natural, 0)
    return states


def _look_again(dataset: Dataset, corruption: str) -> None:
    """Let the fingerprint of foreign images be that of their files now: another object reads them."""
    dataset = undrawn(dataset)
    if isinstance(dataset, OnDisk):
        wanted = _folders(dataset, corruption, 0)
        for name, path in dataset.pieces().items():
            if path.is_dir() and name.removeprefix("corrupted/") in wanted:
                dataset.folder_hash(name)


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
    wanted = _folders(dataset, corruption, severity)
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


def _folders(dataset: OnDisk, corruption: str, severity: int) -> set[str]:
    """The names of the folders of one corruption, or of `CLEAN` images, as :func:`file_states` takes them."""
    wanted = CLEAN_FOLDERS if corruption == CLEAN else {NATURAL, f"{corruption}/{severity}"}
    if corruption not in (CLEAN, *dataset.corruptions):
        wanted = wanted | {f"{each}/{level}" for each in dataset.corruptions for level in SEVERITIES}
    return wanted


def _below(folder: Path) -> Iterator[tuple[str, State]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _below(Path(entry.path))
            elif not entry.name.startswith("."):
                yield entry.path, _state(entry.stat())


def _state(stat: os.stat_result) -> State:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
