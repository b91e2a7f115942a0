"""What one number is, and its identity: cells, results, protocols. Imports nothing else of ttabench."""

from ttabench.cell.cell import (
    Cell,
    Result,
    Scalar,
    Status,
    canonical,
    canonical_settings,
    shift_name,
    spell,
    stored_identity,
)

__all__ = [
    "Cell",
    "Result",
    "Scalar",
    "Status",
    "canonical",
    "canonical_settings",
    "shift_name",
    "spell",
    "stored_identity",
]
