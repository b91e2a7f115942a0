"""Where stored results were made."""

from __future__ import annotations

from typing import Any

__all__ = ["StoredEnvironment"]


class StoredEnvironment(dict[str, Any]):
    """Versions of libraries, machine, processor, device and threads.

    Hashable by identity: what is made from it is made once for all records that share it.
    """

    __hash__ = object.__hash__  # type: ignore[assignment]
