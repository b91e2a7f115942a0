"""Notes on images, foreign images and weights that are not those of the cells that a results folder has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ttabench.cell import Cell
from ttabench.errors import counted, printable
from ttabench.models.external.python_path import PythonModel
from ttabench.models.model import Model
from ttabench.store import Store
from ttabench.sweep.agenda import Agenda

STAY = "The old cells stay, and tables show both. For tables of the new cells only, choose another --out."
OWN = (
    "To avoid this, let the callable load its weights or set a seed, or give weights with --checkpoint FILE."
)


def notes_on_other_inputs(agenda: Agenda, models: Iterable[Model], store: Store) -> Iterator[str]:
    """A sentence for each dataset, foreign set and network, of which the folder has cells of others only.

    An image or a file of weights may have been changed since. A callable without a fixed seed makes other
    weights in each run, and so other cells.
    """
    known = {_inputs(cell) for cell in (*agenda.done, *agenda.failed)}
    if all(_inputs(cell) in known for cell in agenda.todo):  # as where a sweep goes on
        return  # the folder need not be read again
    folder = printable(str(store.root))
    stored = [*store.latest_as(lambda record: _fields(record.data["cell"]), quick=True).values()]
    todo = [_fields(cell.to_json()) for cell in agenda.todo]
    for (dataset,), count in _others(todo, stored, ("dataset",), "fingerprint"):
        yield (
            f"{counted(count, 'cell')} in {folder} had other images or labels of {dataset}, so its cells are "
            f"measured anew. {STAY}"
        )
    for (dataset, foreign), count in _others(todo, stored, ("dataset", "contamination"), "foreign"):
        yield (
            f"{counted(count, 'cell')} of {dataset} in {folder} had other foreign images of {foreign}, so "
            f"these cells are measured anew. {STAY}"
        )
    own = {(model.name, model.measured.name) for model in models if isinstance(model, PythonModel)}
    for (arch, dataset), count in _others(todo, stored, ("arch", "dataset"), "checkpoint"):
        yield (
            f"{counted(count, 'cell')} in {folder} had other weights of {arch}, so its cells are measured "
            f"anew. {OWN if (arch, dataset) in own else STAY}"
        )


def _inputs(cell: Cell) -> tuple[str, ...]:
    """The network, the images, the foreign images, and their contents."""
    contamination = cell.protocol.contamination
    return cell.arch, cell.checkpoint, cell.dataset, cell.fingerprint, contamination, cell.foreign


def _fields(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a cell, as `Cell.to_json` gives it, that name its inputs and their contents."""
    return {"foreign": "", **cell, "contamination": cell["protocol"].get("contamination", "")}


def _others(
    cells: Iterable[Mapping[str, Any]],
    stored: Iterable[Mapping[str, Any]],
    names: tuple[str, ...],
    content: str,
) -> Iterator[tuple[tuple[str, ...], int]]:
    """The values of the fields `names` of which all stored cells have another `content`; how many have."""
    held = Counter((*(cell[name] for name in names), cell[content]) for cell in stored)
    now: dict[tuple[str, ...], set[str]] = {}
    for cell in cells:
        now.setdefault(tuple(cell[name] for name in names), set()).add(cell[content])
    for key, contents in now.items():
        count = sum(n for which, n in held.items() if which[:-1] == key)
        if count and not any(held[*key, one] for one in contents):
            yield key, count
