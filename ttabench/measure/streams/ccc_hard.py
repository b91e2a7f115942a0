"""The path of ``ccc(0)``, the hard form of CCC with a baseline of 0 % (Press et al., NeurIPS 2023)."""

from __future__ import annotations

from ttabench.measure.streams.ccc_path import Path


class HardPath(Path):
    """As :class:`Path` with the target 0: where the baseline has its lowest accuracy, however high that is.

    Every corruption is used. Alone it has severity 5. From there on, each step goes to the lower accuracy of
    the two that can be reached.
    """

    def usable(self) -> tuple[str, ...]:
        """All corruptions."""
        return self._names
