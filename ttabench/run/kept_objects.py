"""What a worker process keeps between jobs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerState:
    """Objects that are made once and used by many jobs: datasets, classifiers, a prepared method, a writer.

    It lives as long as its worker, from the start to the end of the executor. It holds at most `limit`
    objects of a kind, which bounds its memory. The least recently used object is dropped first.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, OrderedDict[Hashable, Any]] = {}

    def keep(self, kind: str, key: Hashable, make: Callable[[], T], limit: int) -> T:
        """The object of this kind and key; it is made if it does not exist."""
        held = self._kinds.setdefault(kind, OrderedDict())
        if key in held:
            held.move_to_end(key)
            kept: T = held[key]
            return kept
        while len(held) >= limit:
            _close(held.popitem(last=False)[1])
        held[key] = make()
        return held[key]  # type: ignore[no-any-return]

    def drop(self, *kinds: str) -> None:
        """Let go of all objects of these kinds."""
        for kind in kinds:
            for thing in self._kinds.pop(kind, {}).values():
                _close(thing)

    def close(self) -> None:
        """Drop all objects, and close open files."""
        self.drop(*self._kinds)


def _close(thing: Any) -> None:
    if callable(getattr(thing, "close", None)):
        with suppress(OSError):
            thing.close()
