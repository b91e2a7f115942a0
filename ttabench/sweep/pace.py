"""Which methods can have a pace: batches that arrive while a method still works on earlier ones."""

from __future__ import annotations

from typing import Any

from ttabench.cell.protocol import Protocol
from ttabench.method import Method

BASELINE = "source"  # its time per batch is the unit of compute ratios
OFFLINE = "an offline method sees all images before the first is scored"
NOTHING_KEPT = "all its work is part of each prediction, so it cannot skip the batches that a pace leaves out"
KEEPS_UP = 1.25  # forward passes per prediction that may be one, as exactly as a ratio is measured


def no_pace(cls: type[Method[Any]], protocol: Protocol) -> str:
    """Why a method cannot have the pace of `protocol`; "" if it can, and where there is no pace."""
    if protocol.pace and protocol.mode == "offline":
        return OFFLINE
    keeps_nothing = cls.scores == cls.scores_frozen  # `predict` does the same as `adapt`
    too_slow = protocol.pace * protocol.pace_ratio > KEEPS_UP
    return NOTHING_KEPT if cls.name != BASELINE and keeps_nothing and too_slow else ""
