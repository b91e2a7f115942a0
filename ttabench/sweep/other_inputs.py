"""Notes on images and weights that are not those of the cells that a results folder has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ttabench.cell import Cell
from ttabench.errors import counted, printable
from ttabench.models.external.python_path import PythonModel
from ttabench.models.model import Model
from ttabench.store import Store
from ttabench.sweep.agenda import Agenda

STAY = "Those stay, and tables show both; for tables of the new ones alone, choose another folder with --out."
OWN = (
    "If this is not what you want, let the callable load its weights or set a seed, or give them with "
    "--checkpoint FILE."
)


def notes_on_other_inputs(agenda: Agenda, models: Iterable[Model], store: Store) -> Iterator[str]:
    """A sentence for each dataset, and each network on it, of which the folder has cells of others only.

    An image or a file of weights may have been changed since. A callable without a fixed seed makes other
    weights in each run, and so other cells.
    """
    known = {_inputs(cell) for cell in (*agenda.done, *agenda.failed)}
    if all(_inputs(cell) in known for cell in agenda.todo):  # as where a sweep goes on
        return  # the folder need not be read again
    folder = printable(str(store.root))
    stored = list(store.latest_as(lambda record: record.data["cell"], quick=True).values())
    for (dataset,), count in _others(agenda.todo, stored, ("dataset",), "fingerprint"):
        yield (
            f"the images or labels of {dataset} are not those of {counted(count, 'cell')} in {folder}, so "
            f"its cells are new. {STAY}"
        )
    own = {(model.name, model.measured.name) for model in models if isinstance(model, PythonModel)}
    for (arch, dataset), count in _others(agenda.todo, stored, ("arch", "dataset"), "checkpoint"):
        yield (
            f"the weights of {arch} are not those of {counted(count, 'cell')} in {folder}, so its cells are "
            f"new. {OWN if (arch, dataset) in own else STAY}"
        )


def _inputs(cell: Cell) -> tuple[str, ...]:
    """The network, the images, and both their contents."""
    return cell.arch, cell.checkpoint, cell.dataset, cell.fingerprint


def _others(
    cells: Iterable[Cell], stored: Iterable[dict[str, str]], names: tuple[str, ...], content: str
) -> Iterator[tuple[tuple[str, ...], int]]:
    """The values of the fields `names` of which all stored cells have another `content`; how many have."""
    held = Counter((*(cell[name] for name in names), cell[content]) for cell in stored)
    now: dict[tuple[str, ...], set[str]] = {}
    for cell in cells:
        now.setdefault(tuple(getattr(cell, name) for name in names), set()).add(getattr(cell, content))
    for key, contents in now.items():
        count = sum(n for which, n in held.items() if which[:-1] == key)
        if count and not any(held[*key, one] for one in contents):
            yield key, count
