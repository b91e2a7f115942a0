"""Where stored results were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttabench.errors import shortened
from ttabench.system.checked_lines import Damaged

MOST_THREADS = 1 << 31


class StoredEnvironment(dict[str, Any]):
    """Versions of libraries, machine, processor, device and threads.

    Hashable by identity: what is made from it is made once for all records that share it.
    """

    __hash__ = object.__hash__  # type: ignore[assignment]

    @classmethod
    def checked(cls, facts: Mapping[str, Any]) -> StoredEnvironment:
        """Of facts that were read. Raises Damaged for a value of another type than ttabench writes."""
        versions = facts.get("versions", {})
        if not isinstance(versions, dict) or not all(isinstance(each, str) for each in versions.values()):
            raise Damaged(f"its versions are {shortened(str(versions), 20)}")
        for name in ("device", "machine", "processor"):
            if not isinstance(value := facts.get(name, ""), str):
                raise Damaged(f"its {name} is {shortened(str(value), 20)}")
        threads = facts.get("threads", 0)
        if not isinstance(threads, int) or not 0 <= threads <= MOST_THREADS:
            raise Damaged(f"its threads is {shortened(str(threads), 20)}")
        return cls(facts)
