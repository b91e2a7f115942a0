"""Checks that the data of a cell are those that were planned, and do not change while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ttabench.cell import Cell
from ttabench.corruptions.names import NATURAL
from ttabench.data.dataset import Dataset
from ttabench.data.files.file_states import CLEAN, State, file_states
from ttabench.data.foreign_set import ForeignSet
from ttabench.errors import UnusableModel

__all__ = ["unchanged_data"]


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
        natural = foreign.corruptions == (NATURAL,)
        states |= file_states(foreign.data, NATURAL if natural else CLEAN, 0)
    return states
