"""What methods usually cost: the time of one pass over the images, in forward passes of Source.

Medians over the networks of the reference results (`compute_ratio`, over the number of passes); that of TEA
is of digits-c alone. They tell a person what to expect before a sweep. No result depends on them. Two methods
are not among these results: `quantile_strict` takes one pass more than `quantile_paper`, and
`quantile_selected` a tenth more than `quantile`, for 10,000 images. `stack` takes what its two methods take,
and `come` with another host than TENT about what this host takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ttabench.cell import Cell
from ttabench.registry import method

PER_PASS: Mapping[str, float] = {
    "source": 1.0, "bn_stats": 1.2, "tent": 2.2, "eata": 2.4, "eta": 2.2, "sar": 4.7, "cotta": 35.0,
    "rotta": 5.9, "sotta": 3.8, "medbn": 3.0, "lame": 1.0, "t3a": 1.1, "deyo": 3.4, "memo": 65.0,
    "roid": 3.9, "shot": 3.2, "foa": 25.0, "neo": 1.0, "actmad": 4.5, "actmad_vit": 1.8, "come": 2.3,
    "rdumb": 2.3, "cmf": 3.6, "poem": 2.3, "ttac": 4.0, "aqr": 1.4, "coral": 3.2, "tca": 1.9,
    "quantile": 3.8, "quantile_paper": 20.0, "quantile_strict": 21.0, "quantile_aqr": 4.0,
    "quantile_selected": 4.2,
    "adacontrast": 7.4, "asr": 3.4, "note": 6.9, "spa": 6.0, "tea": 51.0,
}  # fmt: skip
COSTLY = 10.0  # times Source, from which a person is told


def passes(cell: Cell) -> int:
    """Passes over the images before an offline method is scored; 0 online, and where it is not known.

    Of a method that joins two, those of both.
    """
    return sum(number for _, number in _parts(cell))


def typical_ratio(cell: Cell) -> float | None:
    """Times Source that a cell takes, about; None for a method that is not known."""
    parts = _parts(cell)
    if not all(name in PER_PASS for name, _ in parts):
        return None
    return sum(PER_PASS[name] * max(number, 1) for name, number in parts)


def _parts(cell: Cell) -> list[tuple[str, int]]:
    """The method of a cell with its passes; of one that joins two, both, each with its own default."""
    config: dict[str, Any] = dict(cell.config)
    offline, epochs = cell.protocol.mode == "offline", cell.protocol.epochs
    joined = [str(config.get(part)) for part in ("first", "second")]
    if not all(name in PER_PASS for name in joined):
        host = str(config.get("host"))
        name = host if cell.method == "come" and host in ("eata", "sar") else cell.method
        return [(name, int(epochs or config.get("epochs") or 0) if offline else 0)]
    return [
        (name, (epochs or getattr(method(name).Config(), "epochs", 1)) if offline else 0) for name in joined
    ]


def note_on_costs(cells: Iterable[Cell]) -> str:
    """``cotta: about 35 times Source; …``, the costliest first, and of what; "" where no method is costly."""
    ratios = {cell.label: ratio for cell in cells if (ratio := typical_ratio(cell)) and ratio >= COSTLY}
    if not ratios:
        return ""
    listed = sorted(ratios.items(), key=lambda one: -one[1])
    texts = [f"{label}: about {ratio:.0f} times Source" for label, ratio in listed]
    return (
        f"{'; '.join(texts)}, on the networks of the reference results. On a smaller network, a ratio can be "
        "many times larger. The time left is shown as soon as Source has run."
    )
