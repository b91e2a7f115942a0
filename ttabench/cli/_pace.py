"""How much time is left, from the kinds of items still to run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable


class Pace:
    """Times of finished and running items by kind, on a number of workers.

    A kind is what items of about one duration share: a sweep's method and architecture. Source takes a
    fraction of a second where another method takes minutes, and it runs first: the mean of what is finished
    says little about what is to come.
    """

    def __init__(self, kinds: Iterable[str], workers: int) -> None:
        self.left = Counter(kinds)
        self.workers = max(1, workers)
        self._taken: defaultdict[str, list[float]] = defaultdict(list)
        self._running: dict[str, tuple[str, float, float]] = {}  # name → kind, start, part done in 0 … 1

    def running(self, name: str, kind: str, part: float, now: float) -> None:
        """An item runs, and `part` of it is done, 0 … 1."""
        started = self._running[name][1] if name in self._running else now
        self._running[name] = kind, started, part

    def finished(self, name: str, kind: str, now: float, seconds: float = 0.0) -> None:
        """An item is done. `seconds` is its time if :meth:`running` was never called for it."""
        started = self._running.pop(name, (kind, now - seconds, 1.0))[1]
        self._taken[kind].append(now - started)
        self.left[kind] -= 1

    def seconds_left(self, now: float) -> tuple[float, bool] | None:
        """Seconds, and whether all kinds still to run are known; None before anything is known."""
        known = {kind: self._expected(kind, now) for kind in +self.left}
        seen = [seconds for seconds in known.values() if seconds is not None]
        done = [seconds for taken in self._taken.values() for seconds in taken]
        if not seen and not done:
            return None
        usual = max(seen, default=0.0) or sum(done) / len(done)
        total = 0.0
        for kind, count in (+self.left).items():
            expected = known[kind]
            total += count * (usual if expected is None else expected)
        for kind, started, _ in self._running.values():
            total -= min(now - started, known.get(kind) or usual)
        at_once = min(self.workers, max(1, self.left.total()))
        return max(0.0, total) / at_once, None not in known.values()

    def _expected(self, kind: str, now: float) -> float | None:
        """Seconds that an item of a kind takes: the mean so far, else projected from one that runs."""
        if taken := self._taken.get(kind):
            return sum(taken) / len(taken)
        projected = [
            (now - started) / part
            for of, started, part in self._running.values()
            if of == kind and part > 0 and now > started
        ]
        return max(projected, default=None)
