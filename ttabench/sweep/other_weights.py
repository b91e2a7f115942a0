"""Notes on own networks whose weights are not those of the cells that a results folder has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ttabench.cell import Cell
from ttabench.errors import counted, printable
from ttabench.models.external.python_path import PythonModel
from ttabench.models.model import Model
from ttabench.store import Store


def notes_on_other_weights(cells: Iterable[Cell], models: Iterable[Model], store: Store) -> Iterator[str]:
    """A sentence for each own network of these cells with which the folder has cells of other weights only.

    A callable without a fixed seed makes other weights in each run, and so other cells.
    """
    own = {(model.name, model.measured.name) for model in models if isinstance(model, PythonModel)}
    now: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        if (key := (cell.arch, cell.dataset)) in own:
            now.setdefault(key, set()).add(cell.checkpoint)
    if not now:
        return
    stored = store.latest_as(lambda record: record.data["cell"], quick=True).values()
    held = Counter((cell["arch"], cell["dataset"], cell["checkpoint"]) for cell in stored)
    for (arch, dataset), checkpoints in now.items():
        count = sum(n for key, n in held.items() if key[:2] == (arch, dataset))
        if count and not any(held[arch, dataset, checkpoint] for checkpoint in checkpoints):
            yield (
                f"the weights of {arch} are not those of {counted(count, 'cell')} in "
                f"{printable(str(store.root))}, so its cells are new. If this is not what you want, let the "
                "callable load its weights or set a seed, or give them with --checkpoint FILE."
            )
