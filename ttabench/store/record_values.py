"""What the values of a stored result are: their types and their ranges. Others are no record of ttabench.

A record with a right checksum may still be made by hand. So what tables, plots and tests take for granted of
it is checked once, where it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

from ttabench.errors import shortened
from ttabench.protocol import Protocol
from ttabench.registry import SCALARS
from ttabench.store.columns import DETAILS
from ttabench.store.record import PROTOCOL
from ttabench.system.checked_lines import Damaged

LONGEST_NAME = 1000  # characters; longer ones take a terminal minutes to lay out
LARGEST = 1 << 53  # of whole numbers: floating point has those up to here
NAMES = ("method", "label", "arch", "checkpoint", "dataset", "fingerprint", "corruption")
_NAMES_OF = itemgetter(*NAMES)
_KINDS_OF_SETTINGS = frozenset(SCALARS)
RANGE_OF = {
    "accuracy": (0, 100), "clean_accuracy": (0, 100), "n_images": (0, LARGEST), "seconds": (0, LARGEST),
    "written": (-LARGEST, LARGEST),  # a clock that was never set can be before 1970
}  # fmt: skip
"""Of numbers of a result."""
BINS, OF_BINS = 15, ("count", "confidence", "correct")
"""Of `ttabench.observe.calibration`, which imports NumPy."""
BEFORE = re.compile(r".+-[0-9]{1,2}")
"""A cell of a history: corruption and severity."""


def check_values(data: Mapping[str, Any]) -> None:
    """Raises Damaged for a value of another type than ttabench writes, and for a number out of its range."""
    cell, details = data["cell"], data.get("details", {})
    _check_names(cell)
    if cell["label"].partition("[")[0] != cell["method"]:
        raise Damaged(f"it is called '{cell['label']}', and its method is '{cell['method']}'")
    if not isinstance(data.get("reason", ""), str) or not isinstance(details, dict):
        raise Damaged("its reason is no text, or its details are no table")
    _check_protocol(tuple(cell["protocol"].items()))
    _check_each(cell, OF_CELL)
    _check_each(details, OF_DETAILS)
    for name, (least, largest) in RANGE_OF.items():
        value = data.get(name, 0)
        if not (isinstance(value, (int, float)) and least <= value <= largest):
            raise Damaged(f"its {name} is {shortened(str(value), 20)}")


def _check_names(cell: Mapping[str, Any]) -> None:
    """Whether they are short texts is seen from all together, which is faster than a look at each."""
    try:
        short = len("".join(_NAMES_OF(cell))) <= LONGEST_NAME
    except TypeError:
        wrong = next(name for name in NAMES if not isinstance(cell[name], str))
        raise Damaged(f"its {wrong} is no text") from None
    for name in () if short else NAMES:
        if len(cell[name]) > LONGEST_NAME:
            raise Damaged(f"its {name} has {len(cell[name]):,} characters")


def _check_each(values: Mapping[str, Any], kinds: Mapping[str, Callable[[Any], bool]]) -> None:
    for name, value in values.items():
        if (is_right := kinds.get(name)) is not None and not is_right(value):
            raise Damaged(f"its {name} is {shortened(str(value), 20)}")


@lru_cache(maxsize=1024)
def _check_protocol(items: tuple[tuple[str, Any], ...]) -> None:
    """Raises Damaged where the stored part of a protocol is that of none. Many cells share it."""
    for name, value in items:
        default = PROTOCOL[name]
        if not isinstance(value, (int, float) if isinstance(default, float) else type(default)):
            raise Damaged(f"its {name} is {shortened(str(value), 20)}")
    try:
        Protocol(**dict(items))
    except ValueError as problem:
        raise Damaged(f"its protocol is none ({problem})") from None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_true(value: Any) -> bool:
    return value is True  # what is false is not stored


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and abs(value) <= LARGEST


def _are_settings(value: Any) -> bool:
    return isinstance(value, dict) and {*map(type, value.values())} <= _KINDS_OF_SETTINGS


def _are_cells(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and BEFORE.fullmatch(each) for each in value)


def _are_numbers(values: Iterable[Any]) -> bool:
    """Whether these are finite numbers; the length of the vector is faster than a look at each."""
    try:
        return math.hypot(*values) <= LARGEST
    except (TypeError, OverflowError):
        return False


def _are_figures(value: Any) -> bool:
    """A table of numbers; None stands for one that could not be measured."""
    return isinstance(value, dict) and (
        _are_numbers(value.values()) or _are_numbers(each for each in value.values() if each is not None)
    )


def _is_cost(value: Any) -> bool:
    return _are_figures(value) and value.get("images") != 0  # by which passes are divided


def _are_bins(value: Any) -> bool:
    if not isinstance(value, dict) or not value:
        return value == {}
    rows: list[Any] = [*map(value.get, OF_BINS)]
    count, confidence, correct = rows
    are_lists = type(count) is type(confidence) is type(correct) is list
    are_whole = are_lists and len(count) == len(confidence) == len(correct) == BINS
    return are_whole and _are_numbers(count + confidence + correct)


def _are_windows(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_whole(value.get("length"))
        and value["length"] > 0
        and _is_row(value.get("accuracy"))
    )


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and _are_numbers(value)


def _are_figures_of_unknown(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _are_numbers([each]) if name == "images" else each is None or _are_figures(each)
        for name, each in value.items()
    )


OF_CELL: Mapping[str, Callable[[Any], bool]] = {
    "severity": _is_whole, "seed": _is_whole, "config": _are_settings, "history": _are_cells,
    "baseline": _is_text, "foreign": _is_text, "image_files": _is_true,
}  # fmt: skip
OF_DETAILS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys((*DETAILS, "source_warning"), _is_text), "cost": _is_cost, "unlabelled": _are_figures,
    "calibration": _are_bins, "windows": _are_windows, "unknown": _are_figures_of_unknown,
}  # fmt: skip
"""Of what ttabench measures beside the accuracy. What methods report themselves may be anything."""
