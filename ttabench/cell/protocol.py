"""The protocol: how a number was measured. It is part of every result."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from ttabench.cell.stream_spec import LARGEST, StreamSpec, parse_stream

MODES = ("online", "offline")
RESETS = ("per_corruption", "continual", "episodic")
PRECISIONS = ("float32", "bfloat16", "tf32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The measurement protocol of one cell, fully resolved (without "native" and "auto").

    mode          online: the method adapts to each batch, which is scored at once;
                  offline: the method first sees all unlabelled images, then it is frozen and scored.
    batch_size    images per batch.
    epochs        offline only: passes over the images; 0 = the method's own number.
    order         iid (a seeded shuffle) | dirichlet(δ) (label-correlated; a smaller δ is stronger; with 0,
                  one class comes after the other).
    reset         per_corruption | continual (the state is kept from corruption to corruption) |
                  episodic (before every batch) | every(N) (before every N-th batch; each cell starts at the
                  source).
    contamination "" | NAME(ε): a fraction ε of the stream are foreign images, which are not scored,
                  e.g. noise(0.2) or cifar100-c(0.5).
    held_out      share of the images, the last of the stream, that are scored but not used for adaptation;
                  0 = the images used for adaptation are scored.
    limit         only the first `limit` images of the test set; 0 = all.
    precision     float32 | bfloat16 (autocast) | tf32 (matrix products of a GPU with 10 bits of mantissa).
    stream        "": a cell is one corruption; otherwise it is a long stream, see ``StreamSpec``:
                  recurring(K) | gradual | ccc(accuracy,length=…,speed=…) | cdc(δ,rounds=K).
    pace          η of Alfarra et al., ICML 2024: batches arrive η times as fast as Source predicts them;
                  0 = the stream waits.
    pace_ratio    compute ratio C, time of the method per batch / time of Source; only with a pace.

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
    stream: str = ""
    pace: float = 0.0
    pace_ratio: float = 1.0

    def __post_init__(self) -> None:
        for name, valid in (("mode", MODES), ("precision", PRECISIONS)):
            if getattr(self, name) not in valid:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(valid)}")
        object.__setattr__(self, "reset", _checked_reset(self.reset))
        for name, least in (("batch_size", 1), ("epochs", 0), ("limit", 0)):
            if not least <= getattr(self, name) <= LARGEST:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {least} to {LARGEST:,}")
        kind, amount = parse_call(self.order) or ("", 0.0)
        if self.order != "iid" and (kind != "dirichlet" or not 0 <= amount < math.inf):
            raise ValueError(f"order is {self.order!r}; expected iid or dirichlet(δ) with δ ≥ 0")
        if kind == "dirichlet" and not amount and (self.stream or self.contamination or self.held_out):
            raise ValueError(
                "order is 'dirichlet(0)', one class after the other; it goes with no stream, no "
                "contamination and no held-out images"
            )
        _, amount = parse_contamination(self.contamination) or ("", 0.0)
        if self.contamination and not 0 < amount < 1:
            raise ValueError(
                f"contamination is {self.contamination!r}; expected NAME(ε) with 0 < ε < 1, e.g. noise(0.2)"
            )
        # One spelling per number, so that the identity is unique.
        for name, parse in (("order", parse_call), ("contamination", parse_contamination)):
            if call := parse(getattr(self, name)):
                object.__setattr__(self, name, f"{call[0]}({call[1]:.12g})")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out is {self.held_out}; expected a share from 0 to below 1")
        if self.held_out and (self.contamination or self.reset == "episodic"):
            raise ValueError(
                "held_out cannot be combined with episodic reset or contamination; leave one of them out"
            )
        if self.mode == "offline" and self.reset == "episodic":
            raise ValueError(
                "offline mode sees all images at once, so it cannot be episodic; choose another reset"
            )
        if self.mode == "offline" and self.reset_period:
            raise ValueError(
                "offline mode sees all images at once, so it is not reset during a stream; choose another "
                "reset"
            )
        if self.held_out and self.reset_period:
            raise ValueError(
                "held_out cannot be combined with a reset during the stream; leave one of them out"
            )
        if self.mode == "online" and self.epochs:
            raise ValueError(
                "epochs belong to offline mode; online mode sees every image once: leave epochs out"
            )
        self._check_stream()
        self._check_pace()

    def _check_stream(self) -> None:
        if not self.stream:
            return
        spec = parse_stream(self.stream)
        object.__setattr__(self, "stream", str(spec))
        if self.reset == "per_corruption":
            raise ValueError(
                f"stream {spec.kind} is one sequence; expected reset continual, every(N) or episodic"
            )
        if self.held_out:
            raise ValueError(
                "held_out cannot be combined with a stream, which has no last part; leave one of them out"
            )
        if spec.kind not in ("recurring", "gradual") and self.contamination:
            name = spec.kind.partition("_")[0]
            raise ValueError(f"contamination cannot be combined with a {name} stream; leave one of them out")

    def _check_pace(self) -> None:
        if not 0 <= self.pace <= LARGEST:
            raise ValueError(
                f"pace is {self.pace}; expected 0 (the stream waits) or a number above 0, e.g. 1"
            )
        if not 0 < self.pace_ratio <= LARGEST:
            raise ValueError(f"pace_ratio is {self.pace_ratio}; expected a number above 0, e.g. 3.1")
        if self.pace_ratio != 1 and not self.pace:
            raise ValueError("pace_ratio belongs to a pace; expected a pace above 0")
        if self.pace and self.held_out:
            raise ValueError(
                "pace cannot be combined with held_out, which scores a frozen method; leave one of them out"
            )

    @property
    def frozen(self) -> bool:
        """Whether the method is frozen while it is scored."""
        return self.mode == "offline" or self.held_out > 0

    @property
    def reset_period(self) -> int:
        """The method is reset before batch 0, N, 2N …; 0 = never."""
        if self.reset == "episodic":
            return 1
        call = parse_call(self.reset)
        return int(call[1]) if call else 0

    @property
    def adapts_every(self) -> int:
        """The method adapts on batch 0, k, 2k …: k = max(1, ⌈ηC⌉). Other batches are only predicted."""
        return max(1, math.ceil(round(self.pace * self.pace_ratio, 9)))

    @property
    def spec(self) -> StreamSpec:
        """The stream, parsed; only where there is one."""
        return StreamSpec.parse(self.stream)

    def to_json(self) -> dict[str, Any]:
        """Only values that differ from the defaults, so that new fields do not change old identities."""
        default = Protocol()
        return {k: v for k, v in asdict(self).items() if k == "mode" or v != getattr(default, k)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Protocol:
        known = {f.name for f in fields(cls)}
        if extra := set(data) - known:
            raise ValueError(
                f"protocol has fields this version does not know: {', '.join(sorted(extra))}; update ttabench"
            )
        return cls(**data)

    def caption(self, everything: str = "all images") -> str:
        """One phrase: ``online, batch size 200, iid order, reset per corruption, all images``.

        everything   where no image is left out, see :func:`ttabench.cell.subset_names.everything`.
        """
        parts = [self.mode, f"batch size {self.batch_size}"]
        if self.epochs:
            parts.append(f"{self.epochs} epoch{'s' * (self.epochs != 1)}")
        parts += [f"{self.order} order", f"reset {self.reset.replace('_', ' ')}"]
        if self.contamination:
            parts.append(f"contaminated by {self.contamination}")
        if self.held_out:
            parts.append(f"scored on the {100 * self.held_out:g} % not adapted on")
        parts.append(f"first {self.limit} images" if self.limit else everything)
        if self.precision != "float32":
            parts.append(self.precision)
        if self.stream:
            parts.append(f"stream {self.stream}")
        if self.pace:
            parts.append(f"pace {self.pace:g} at compute ratio {self.pace_ratio:g}")
        return ", ".join(parts)


def _checked_reset(text: str) -> str:
    """One spelling per value. Raises ValueError."""
    if text in RESETS:
        return text
    kind, period = parse_call(text) or ("", 0.0)
    if kind != "every" or not period.is_integer() or not 1 <= period <= LARGEST:
        raise ValueError(
            f"reset is {text!r}; expected one of {', '.join(RESETS)}, or every(N) with N batches"
        )
    return f"every({int(period)})"


def parse_call(text: str) -> tuple[str, float] | None:
    """``"dirichlet(0.1)"`` → ``("dirichlet", 0.1)``; None for anything else."""
    match = re.fullmatch(r"([a-z][a-z0-9_\-]*)\(([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\)", text)
    return (match[1], float(match[2])) if match else None


def parse_contamination(text: str) -> tuple[str, float] | None:
    """``"cifar10.1(0.2)"`` → ``("cifar10.1", 0.2)``; None for what is no name of data with a number."""
    match = re.fullmatch(r"([a-z0-9_][a-z0-9._\-\[\]]*)\(([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\)", text)
    return (match[1], float(match[2])) if match else None
