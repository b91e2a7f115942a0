"""Names of the cells of one sweep or results folder: no two alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ttabench.cell.cell import Cell


def names_of_cells(cells: Iterable[Cell], name: Callable[[Cell], str] = str) -> dict[str, str]:
    """The name of each cell by its id, see :func:`told_apart`; those still alike say more."""
    by_id = {cell.cell_id: cell for cell in cells}
    names = told_apart((key, name(cell), differing_in(cell)) for key, cell in by_id.items())
    return told_apart((key, said, _also_in(by_id[key])) for key, said in names.items())


def differing_in(cell: Cell) -> dict[str, Any]:
    """What cells of one name may differ in: the protocol, and the baseline of a ccc stream."""
    return {**cell.protocol.to_json(), "baseline": cell.baseline}


def _also_in(cell: Cell) -> dict[str, Any]:
    """What cells of one protocol may differ in, where networks, data or defaults were others before."""
    return {
        **{name: f"{name}={value}" for name, value in cell.config},
        "weights": f"weights {cell.checkpoint[:12]}",
        "of baseline": f"weights of the baseline {cell.baseline.rpartition('@')[2][:12]}",
        "data": f"data {cell.fingerprint[:12]}", "foreign": f"foreign images {cell.foreign[:12]}",
        "history": f"after {', '.join(cell.history)}" if cell.history else "",
    }  # fmt: skip


def told_apart(cells: Iterable[tuple[str, str, Mapping[str, Any]]]) -> dict[str, str]:
    """Names by id, of ids with their names and the protocols of their cells.

    ``source · cct · digits-c · ccc · seed 0 · ccc(40,length=7500,speed=10)``: cells that would have one name
    say in what their protocols differ. What is not set is not said.
    """
    alike: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for key, name, protocol in cells:
        alike[name][key] = protocol
    names = {}
    for name, protocols in alike.items():
        fields = dict.fromkeys(field for protocol in protocols.values() for field in protocol)
        differing = [f for f in fields if len({protocol.get(f) for protocol in protocols.values()}) > 1]
        for key, protocol in protocols.items():
            said = [_said(field, protocol[field]) for field in differing if protocol.get(field)]
            names[key] = " · ".join([name, *said])
    return names


def _said(field: str, value: Any) -> str:
    """``dirichlet(0.1)``, ``batch_size=64``, ``baseline=resnet18``"""
    if field == "baseline":
        value = value.partition("@")[0]
    return value if isinstance(value, str) and field != "baseline" else f"{field}={value}"
