"""Names of the cells of one sweep or results folder: no two alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ttabench.cell.cell import Cell


def names_of_cells(cells: Iterable[Cell]) -> dict[str, str]:
    """The name of each cell by its id, see :func:`told_apart`."""
    return told_apart((cell.cell_id, str(cell), differing_in(cell)) for cell in cells)


def differing_in(cell: Cell) -> dict[str, Any]:
    """What cells of one name may differ in: the protocol, and the baseline of a ccc stream."""
    return {**cell.protocol.to_json(), "baseline": cell.baseline}


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
