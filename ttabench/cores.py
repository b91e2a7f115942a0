"""How many processor cores this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The number of cores that this process may use, at least 1; the machine may have more."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
