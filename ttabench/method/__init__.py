"""The contract that a method fulfils, its settings, and its saved state.

Names are imported when they are first used: settings and ranges are read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttabench.classifier import Architecture
    from ttabench.method.contract import SOURCE_DATA, Batches, Method, Needs, NoConfig, Paper, SourceData
    from ttabench.method.foreign import Foreign
    from ttabench.method.ranges import (
        Count,
        Momentum,
        Natural,
        NonNegative,
        Positive,
        Range,
        UnitInterval,
    )

__all__ = [
    "SOURCE_DATA",
    "Architecture",
    "Batches",
    "Count",
    "Foreign",
    "Method",
    "Momentum",
    "Natural",
    "Needs",
    "NoConfig",
    "NonNegative",
    "Paper",
    "Positive",
    "Range",
    "SourceData",
    "UnitInterval",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ttabench.method' has no attribute '{name}'")
    from importlib import import_module

    homes = (import_module(f"ttabench.method.{home}") for home in ("contract", "ranges", "foreign"))
    return next(getattr(home, name) for home in homes if hasattr(home, name))
