"""Checks that the data of a cell are those that were planned, and do not change while it runs."""

from __future__ import annotations

from ttabench.cell import Cell
from ttabench.corruptions.names import NATURAL
from ttabench.data.dataset import Dataset
from ttabench.data.files.file_states import CLEAN, State, file_states
from ttabench.data.foreign_set import ForeignSet
from ttabench.errors import UnusableModel

__all__ = ["UnchangedData"]


class UnchangedData:
    """The data of a cell: its dataset, and the images that contaminate its stream, None if there are none."""

    def __init__(self, cell: Cell, dataset: Dataset, foreign: ForeignSet | None) -> None:
        self._cell, self._dataset, self._foreign = cell, dataset, foreign
        self._files = self._states()

    def check(self) -> None:
        """Raise UnusableModel if the images are not those that were planned."""
        self._check(self._cell.dataset, self._dataset.fingerprint(), self._cell.fingerprint)
        if self._foreign is not None:
            self._check(self._foreign.name, self._foreign.fingerprint(), self._cell.foreign)

    def _check(self, name: str, now: str, planned: str) -> None:
        if now != planned:
            raise UnusableModel(
                f"the data of {name} changed during the sweep (now {now[:12]}); run the sweep again"
            )

    def check_files(self) -> None:
        """Raise UnusableModel if one of their files was written to since this object was made."""
        if written := sorted(self._files.items() ^ self._states().items()):
            raise UnusableModel(f"{written[0][0]} was written to while the cell ran; run the sweep again")

    def _states(self) -> dict[str, State]:
        states = file_states(self._dataset, self._cell.corruption, self._cell.severity)
        if self._foreign is not None:
            natural = self._foreign.corruptions == (NATURAL,)
            states |= file_states(self._foreign.data, NATURAL if natural else CLEAN, 0)
        return states
