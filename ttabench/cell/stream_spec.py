"""Long streams of many corruptions, as protocols name them: ``ccc(40,speed=500)``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

STREAMS = ("recurring", "gradual", "ccc")
RAMP = (1, 2, 3, 4, 5, 4, 3, 2, 1)  # the severities of each corruption in a gradual stream
LARGEST = 2**31 - 1  # tables and plots count images, batches and epochs in 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A long stream of many corruptions, which is one cell.

    kind         recurring: the corruptions one after the other, `rounds` times.
                 gradual: each corruption at severities 1, 2, 3, 4, 5, 4, 3, 2, 1.
                 ccc: two corruptions at once (after Press et al., NeurIPS 2023). Their severities change in
                 steps of 0.25, so that the source classifier keeps its accuracy.
    accuracy     ccc: the accuracy of the source classifier, in percent.
    length       ccc: images.
    speed        ccc: images per step of the path.
    corruptions  () = the fifteen.
    """

    kind: str
    rounds: int = 1
    accuracy: float = 0.0
    length: int = 0
    speed: int = 0
    corruptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts: list[str] = []
        if self.kind == "recurring":
            parts.append(str(self.rounds))
        if self.kind == "ccc":
            parts += [f"{self.accuracy:.12g}", f"length={self.length}", f"speed={self.speed}"]
        if self.corruptions:
            parts.append("corruptions=" + "+".join(self.corruptions))
        return f"{self.kind}({','.join(parts)})" if parts else self.kind

    @classmethod
    def parse(cls, text: str) -> StreamSpec:
        """``ccc(40,speed=500)`` → its values, defaults filled in. Raises ValueError with what is wrong."""
        match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
        kind = match[1] if match else ""
        if match is None or kind not in STREAMS:
            raise ValueError(f"stream is {text!r}; expected {STREAM_FORMS}")
        given = _arguments(match[2] or "", text, {"recurring": "rounds", "ccc": "accuracy"}.get(kind, ""))
        allowed: dict[str, Any] = {"corruptions": ""}
        if kind == "recurring":
            allowed["rounds"] = None
        if kind == "ccc":
            allowed |= {"accuracy": 40.0, "length": 100_000, "speed": 1000}
        if extra := sorted(given.keys() - allowed.keys()):
            raise ValueError(f"stream is {text!r}: {kind} has no '{extra[0]}'; expected {STREAM_FORMS}")
        values = {**allowed, **given}
        if kind == "recurring" and values["rounds"] is None:
            raise ValueError(f"stream is {text!r}; expected recurring(K) with K rounds, e.g. recurring(20)")
        parsed: dict[str, Any] = {"corruptions": tuple(filter(None, str(values["corruptions"]).split("+")))}
        for name in ("rounds", "length", "speed"):
            if name in values:
                parsed[name] = _whole(values[name], f"stream is {text!r}: {name}")
        if "accuracy" in values:
            parsed["accuracy"] = _percent(values["accuracy"], f"stream is {text!r}: accuracy")
        return cls(kind=kind, **parsed)


STREAM_FORMS = "recurring(K), gradual, mixed, cdc(δ,rounds=K) or ccc(accuracy,length=…,speed=…)"


ALL_STREAMS = (*STREAMS, "ccc_hard", "cdc")
"""The kinds of long streams: what stands in place of a corruption in their cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardSpec(StreamSpec):
    """``ccc(0)``: two corruptions at once, at severities that keep the accuracy of the baseline lowest."""

    def __str__(self) -> str:
        parts = ["0", f"length={self.length}", f"speed={self.speed}", *_named(self.corruptions)]
        return f"ccc({','.join(parts)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSpec(StreamSpec):
    """``cdc(δ,rounds=K)``: continual dynamic change, the corruptions in visits of different lengths.

    concentration   δ of the Dirichlet distribution over the rounds, from which the lengths are drawn.
    rounds          K; 0 = as many as corruptions.
    """

    concentration: float = 1.0

    def __str__(self) -> str:
        rounds = [f"rounds={self.rounds}"] if self.rounds else []
        return f"cdc({','.join([f'{self.concentration:.12g}', *rounds, *_named(self.corruptions)])})"


def _named(corruptions: tuple[str, ...]) -> list[str]:
    return ["corruptions=" + "+".join(corruptions)] if corruptions else []


def parse_stream(text: str) -> StreamSpec:
    """As :meth:`StreamSpec.parse`, for all kinds of streams. Raises ValueError with what is wrong."""
    match = re.fullmatch(r"\s*(ccc|cdc)\s*(?:\((.*)\))?\s*", text)
    if match is None:
        return StreamSpec.parse(text)
    kind, inside = match[1], match[2] or ""
    given = _arguments(inside, text, {"ccc": "accuracy", "cdc": "concentration"}[kind])
    if kind == "cdc":
        return _dynamic(given, text)
    if not re.fullmatch(r"0*(0|0\.|\.0)0*", given.get("accuracy", "")):
        return StreamSpec.parse(text)
    others = [f"{name}={value}" for name, value in given.items() if name != "accuracy"]
    spec = StreamSpec.parse(f"ccc({','.join(others)})")
    return HardSpec(kind="ccc_hard", length=spec.length, speed=spec.speed, corruptions=spec.corruptions)


def _dynamic(given: dict[str, str], text: str) -> DynamicSpec:
    if extra := sorted(given.keys() - {"concentration", "rounds", "corruptions"}):
        raise ValueError(f"stream is {text!r}: cdc has no '{extra[0]}'; expected {STREAM_FORMS}")
    try:
        concentration = float(given.get("concentration", "1"))
    except ValueError:
        concentration = 0.0
    if not 0 < concentration <= LARGEST:
        raise ValueError(
            f"stream is {text!r}: δ is {given['concentration']}; expected a number above 0, e.g. cdc(1)"
        )
    rounds = _whole(given["rounds"], f"stream is {text!r}: rounds") if "rounds" in given else 0
    names = tuple(filter(None, given.get("corruptions", "").split("+")))
    return DynamicSpec(kind="cdc", rounds=rounds, concentration=concentration, corruptions=names)


def _arguments(text: str, whole: str, first: str) -> dict[str, str]:
    """``"40,speed=500"`` → {first: "40", "speed": "500"}."""
    arguments: dict[str, str] = {}
    for number, part in enumerate(filter(None, (p.strip() for p in text.split(",")))):
        name, equals, value = part.partition("=")
        if not equals:
            if number or not first:
                raise ValueError(f"stream is {whole!r}; expected {STREAM_FORMS}")
            name, value = first, part
        if name.strip() in arguments:
            raise ValueError(f"stream is {whole!r}: '{name.strip()}' is given twice; give it once")
        arguments[name.strip()] = value.strip()
    return arguments


def _whole(value: object, what: str) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= LARGEST:
        raise ValueError(f"{what} is {value}; expected a whole number from 1 to {LARGEST:,}")
    return number


def _percent(value: object, what: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = 0.0
    if not 0 < number < 100:
        raise ValueError(f"{what} is {value}; expected a number of percent from 0 to below 100, e.g. ccc(40)")
    return number
