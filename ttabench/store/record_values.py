"""What a stored result is: its fields, their types and their ranges. Others are no record of ttabench.

A record with a right checksum may still be made by hand. So what tables, plots and tests take for granted of
it is checked once, where it is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache, reduce
from operator import getitem
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, ValidationError, convert, defstruct

from ttabench.cell import Scalar, Status
from ttabench.cell.protocol import Protocol
from ttabench.errors import plain, shortened
from ttabench.store.columns import DETAILS, OF_UNKNOWN
from ttabench.store.record import PROTOCOL
from ttabench.system.checked_lines import Damaged

LARGEST = 1 << 53  # of whole numbers: floating point has those up to here
RANGE_OF = {
    "accuracy": (0, 100), "clean_accuracy": (0, 100), "n_images": (0, LARGEST), "seconds": (0, LARGEST),
    "written": (-LARGEST, LARGEST),  # a clock that was never set can be before 1970
}  # fmt: skip
"""Of numbers of a result."""
OfBins = Literal["count", "confidence", "correct"]
BINS, OF_BINS = 15, get_args(OfBins)
"""Of `ttabench.observe.calibration`, which imports NumPy."""


def _number(least: int, most: int) -> Any:
    """The type of a number in this range."""
    limits = Meta(ge=least, le=most)
    return Annotated[int, limits] | Annotated[float, limits]


Name = Annotated[str, Meta(max_length=1000)]  # longer ones take a terminal minutes to lay out
Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Number: Any = _number(-LARGEST, LARGEST)
Figures: Any = dict[str, Number | None]
"""A table of numbers; None stands for one that could not be measured."""
Bins: Any = dict[OfBins, Annotated[list[Number], Meta(min_length=BINS, max_length=BINS)]]
Before = Annotated[str, Meta(pattern=r"^.+-[0-9]{1,2}\Z")]
"""A cell of a history: corruption and severity."""


def _table(kinds: Mapping[str, Any], needed: Collection[str] = (), more: bool = False) -> Any:
    """The type of a table with these fields; those that are not `needed` may be missing.

    more   whether it may have others.

    Fields are found sooner in the order in which records have them.
    """
    fields = [(name, kind) if name in needed else (name, kind, None) for name, kind in sorted(kinds.items())]
    return defstruct("Table", fields, kw_only=True, forbid_unknown_fields=not more)


_NAMES = ("method", "label", "arch", "checkpoint", "dataset", "fingerprint", "corruption")
OF_PROTOCOL = _table({name: type(default) for name, default in PROTOCOL.items()})
CELL = _table(
    {
        **dict.fromkeys(_NAMES, Name), "severity": Whole, "seed": Whole, "config": dict[str, Scalar],
        "protocol": OF_PROTOCOL,
        "history": list[Before], "baseline": str, "foreign": str, "image_files": bool,
    },
    needed=(*_NAMES, "severity", "seed", "config", "protocol"),
)  # fmt: skip
OF_DETAILS = _table(
    {
        **dict.fromkeys((*DETAILS, "source_warning", "weights_from"), str),
        "cost": Figures, "unlabelled": Figures,
        "calibration": Bins,
        "windows": _table(
            {
                "accuracy": Annotated[list[Number], Meta(min_length=1)],
                "length": Annotated[int, Meta(ge=1, le=LARGEST)],
            },
            needed=("accuracy", "length"), more=True,
        ),
        "unknown": _table({"images": Number, **dict.fromkeys(OF_UNKNOWN, Figures | None)}),
    },
    more=True,  # what methods report themselves may be anything
)  # fmt: skip
RESULT = _table(
    {
        **{name: _number(*limits) for name, limits in RANGE_OF.items()},
        "id": str, "cell": CELL, "status": Status, "source": str, "reason": str, "correct": bytes,
        "details": OF_DETAILS,
    },
    needed=("id", "cell", "status", "source", "written"),
    more=True,
)  # fmt: skip
_OF_PLAN = ("id", "method", "base", "arch", "dataset", "corruption")
PLANNED = _table(
    {
        **dict.fromkeys(_OF_PLAN, Name), "severity": Whole, "seed": Whole, "reason": str,
        "protocol": OF_PROTOCOL, "fixed": list[str],
    },
    needed=(*_OF_PLAN, "severity", "seed", "reason"),
    more=True,
)  # fmt: skip


def check_values(data: Mapping[str, Any]) -> bytes:
    """The per-image correctness of a result, packed; b"" of none.

    Raises Damaged for a field that is missing or unknown, and for a value of another type or range.
    """
    try:
        correct: bytes | None = convert(data, RESULT).correct
    except ValidationError as problem:
        raise Damaged(_in_words(str(problem), data)) from None
    cell, details = data["cell"], data.get("details", {})
    if cell["label"].partition("[")[0] != cell["method"]:
        raise Damaged(f"it is called '{cell['label']}', and its method is '{cell['method']}'")
    _check_protocol(tuple(cell["protocol"].items()))
    if cell.get("image_files") is False:
        raise Damaged("its cell.image_files is False, which is not stored")
    if (bins := details.get("calibration")) and len(bins) < len(OF_BINS):
        raise Damaged(f"its details.calibration has only {' and '.join(bins)}")
    if details.get("cost", {}).get("images") == 0:
        raise Damaged("its details.cost is that of 0 images")
    return correct or b""


def unreadable(cell: Mapping[str, Any]) -> str:
    """Why a cell could not be read back once a result of it is stored; "" where it could."""
    try:
        convert(cell, CELL)
    except ValidationError as problem:
        return _in_words(str(problem), cell)
    changed = [name for name, value in cell.items() if plain(value) != value]
    return f"its {changed[0]} has characters that are not printed" if changed else ""


def check_planned(data: Mapping[str, Any]) -> None:
    """Raises Damaged where a row of a plan lacks a field, or has a value of another type."""
    try:
        convert(data, PLANNED)
    except ValidationError as problem:
        raise Damaged(_in_words(str(problem), data)) from None
    _check_protocol(tuple(data.get("protocol", {}).items()))


def _in_words(problem: str, data: Mapping[str, Any]) -> str:
    """``its cell.seed is 1.5`` for what msgspec says: ``Expected `int`, got `float` - at `$.cell.seed` ``."""
    what, _, place = problem.rpartition(" - at ")
    names = re.findall(r"\.(\w+)", place)
    its = f"its {'.'.join(names)}" if names else "it"
    if field := re.search(r"(missing|unknown) .*`(\w+)`", what or problem):
        return f"{its} has {'no' if field[1] == 'missing' else 'an unknown'} {shortened(field[2])}"
    return f"{its} is {shortened(str(reduce(getitem, names, data)), 20)}"


@lru_cache(maxsize=1024)
def _check_protocol(items: tuple[tuple[str, Any], ...]) -> None:
    """Raises Damaged where the stored part of a protocol is that of none. Many cells share it."""
    try:
        Protocol(**dict(items))
    except ValueError as problem:
        raise Damaged(f"its protocol is none ({problem})") from None
