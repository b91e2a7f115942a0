"""The protocol: how a number was measured. It is part of every result. Imports nothing of ttabench."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

MODES = ("online", "offline")
RESETS = ("per_corruption", "continual", "episodic")
PRECISIONS = ("float32", "bfloat16")
LARGEST = 2**31 - 1  # tables and plots count images, batches and epochs in 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The measurement protocol of one cell, fully resolved (without "native" and "auto").

    mode          online: the method adapts to each batch, which is scored at once;
                  offline: the method first sees all unlabelled images, then it is frozen and scored.
    batch_size    images per batch.
    epochs        offline only: passes over the images; 0 = the method's own number.
    order         iid (a seeded shuffle) | dirichlet(δ) (label-correlated; a smaller δ is stronger).
    reset         per_corruption | continual (the state is kept from corruption to corruption) |
                  episodic (before every batch).
    contamination "" | NAME(ε): a fraction ε of the stream are foreign images, which are not scored,
                  e.g. noise(0.2).
    held_out      share of the images, the last of the stream, that are scored but not used for adaptation;
                  0 = the images used for adaptation are scored.
    limit         only the first `limit` images of the test set; 0 = all.
    precision     float32 | bfloat16 (autocast).

    Raises ValueError on a value outside these.
    """

    mode: str = "online"
    batch_size: int = 200
    epochs: int = 0
    order: str = "iid"
    reset: str = "per_corruption"
    contamination: str = ""
    held_out: float = 0.0
    limit: int = 0
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name, valid in (("mode", MODES), ("reset", RESETS), ("precision", PRECISIONS)):
            if getattr(self, name) not in valid:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(valid)}")
        for name, least in (("batch_size", 1), ("epochs", 0), ("limit", 0)):
            if not least <= getattr(self, name) <= LARGEST:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {least} to {LARGEST:,}")
        kind, amount = parse_call(self.order) or ("", 0.0)
        if self.order != "iid" and (kind != "dirichlet" or not 0 < amount < math.inf):
            raise ValueError(f"order is {self.order!r}; expected iid or dirichlet(δ) with δ > 0")
        _, amount = parse_call(self.contamination) or ("", 0.0)
        if self.contamination and not 0 < amount < 1:
            raise ValueError(f"contamination is {self.contamination!r}; expected NAME(ε) with 0 < ε < 1")
        for name in ("order", "contamination"):  # one spelling per number, so that the identity is unique
            if call := parse_call(getattr(self, name)):
                object.__setattr__(self, name, f"{call[0]}({call[1]:.12g})")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out is {self.held_out}; expected a share from 0 to below 1")
        if self.held_out and (self.contamination or self.reset == "episodic"):
            raise ValueError("held_out cannot be combined with episodic reset or contamination")
        if self.mode == "offline" and self.reset == "episodic":
            raise ValueError("offline mode sees all images at once, so it cannot be episodic")
        if self.mode == "online" and self.epochs:
            raise ValueError("epochs belong to offline mode; online mode sees every image once")

    @property
    def frozen(self) -> bool:
        """Whether the method is frozen while it is scored."""
        return self.mode == "offline" or self.held_out > 0

    def to_json(self) -> dict[str, Any]:
        """Only values that differ from the defaults, so that new fields do not change old identities."""
        default = Protocol()
        return {k: v for k, v in asdict(self).items() if k == "mode" or v != getattr(default, k)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Protocol:
        known = {f.name for f in fields(cls)}
        if extra := set(data) - known:
            raise ValueError(f"protocol has fields this version does not know: {', '.join(sorted(extra))}")
        return cls(**data)

    def caption(self) -> str:
        """One phrase: ``online, batch size 200, iid order, reset per corruption, all images``."""
        parts = [self.mode, f"batch size {self.batch_size}"]
        if self.epochs:
            parts.append(f"{self.epochs} epoch{'s' * (self.epochs != 1)}")
        parts += [f"{self.order} order", f"reset {self.reset.replace('_', ' ')}"]
        if self.contamination:
            parts.append(f"contaminated by {self.contamination}")
        if self.held_out:
            parts.append(f"scored on the {100 * self.held_out:g} % not adapted on")
        parts.append(f"first {self.limit} images" if self.limit else "all images")
        if self.precision != "float32":
            parts.append(self.precision)
        return ", ".join(parts)


def parse_call(text: str) -> tuple[str, float] | None:
    """``"dirichlet(0.1)"`` → ``("dirichlet", 0.1)``; None for anything else."""
    match = re.fullmatch(r"([a-z][a-z0-9_\-]*)\(([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\)", text)
    return (match[1], float(match[2])) if match else None
