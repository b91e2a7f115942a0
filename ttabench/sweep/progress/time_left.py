"""How much time is left, from the kinds of items still to run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

FIFTH = 0.2


class TimeLeft:
    """Times of finished and running items by kind, on a number of workers.

    A kind is what items of about one duration share: a sweep's method and architecture. Source takes a
    fraction of a second where another method takes minutes, and it runs first: the mean of what is finished
    says little about what is to come.

    relative  kind → the kind of Source beside it, and how many times as long an item usually takes. It counts
              until an item of the kind is done, or a fifth of one.
    """

    def __init__(
        self, kinds: Iterable[str], workers: int, relative: Mapping[str, tuple[str, float]] | None = None
    ) -> None:
        self._relative = relative or {}
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
        """Seconds of the kinds that are known, and whether all still to run are; None before any is.

        What is not known does not count: a guess from other kinds would jump with each new one.
        """
        known = {kind: self._expected(kind, now) for kind in +self.left}
        if not self._taken and not any(seconds is not None for seconds in known.values()):
            return None
        total = sum(count * (known[kind] or 0.0) for kind, count in (+self.left).items())
        for kind, started, _ in self._running.values():
            total -= min(now - started, known.get(kind) or 0.0)
        at_once = min(self.workers, max(1, self.left.total()))
        return max(0.0, total) / at_once, None not in known.values()

    def _expected(self, kind: str, now: float) -> float | None:
        """Seconds that an item of a kind takes.

        The median so far, as one of them may have seen the machine suspended; else projected from one that
        runs; else what is usual beside Source.
        """
        if taken := self._taken.get(kind):
            return median(taken)
        source, ratio = self._relative.get(kind, ("", 0.0))
        of_source = self._taken.get(source)
        least = FIFTH if of_source else 0.0  # its first batches are slower than the others
        projected = [
            (now - started) / part
            for of, started, part in self._running.values()
            if of == kind and part > least and now > started
        ]
        usual = ratio * median(of_source) if of_source else None
        return max(projected, default=usual)
