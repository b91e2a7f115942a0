"""A cell is one number in a paper's table; a result is that number and how it was measured.

Frozen dataclasses with a stable identity.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ttabench.cell.protocol import Protocol

Status = Literal["ok", "failed", "n/a"]
Scalar = str | int | float | bool | None


_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def canonical(data: Any) -> str:
    """JSON with one spelling per value: sorted keys, no spaces, no NaN."""
    return _encoder.encode(data)


def spell(value: Scalar) -> str:
    """A setting's value as users write it and labels have it: two numbers never look the same."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """method+config × architecture+checkpoint × dataset × corruption × severity × seed × protocol.

    config       the resolved configuration, every field with its value, sorted by name.
    label        the name of method and variant in tables, e.g. ``tent[norms=all]``; not part of the identity.
    checkpoint   SHA-256 of the weights ("" before training).
    fingerprint  SHA-256 of what the dataset is made from.
    foreign      SHA-256 of what the dataset is made from that contaminates the stream; "" = none does.
    corruption   its name; ``natural`` for a natural shift.
    severity     1 … 5; 0 for a natural shift, which has none.
    history      continual reset only: the ``corruption-severity`` pairs seen before this one.
    baseline     ccc streams: the network whose accuracy the stream keeps, as ``NAME@SHA-256 of its weights``;
                 "" = the cell's own.
    image_files  whether the own dataset, or one that contaminates the stream, has image files and no arrays.
                 Its name does not say so, and what decodes them is part of the code then. Not part of the
                 identity; False too in what earlier versions stored.
    """

    method: str
    config: tuple[tuple[str, Scalar], ...]
    label: str
    arch: str
    checkpoint: str
    dataset: str
    fingerprint: str
    corruption: str
    severity: int
    seed: int
    protocol: Protocol
    history: tuple[str, ...] = ()
    baseline: str = ""
    foreign: str = ""
    image_files: bool = False

    @cached_property
    def cell_id(self) -> str:
        """SHA-256 (hex) of everything that changes the number, and only of that: see :func:`identity`."""
        config, protocol, *_ = _head(self)
        return identity(vars(self), config, protocol)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "method": self.method, "config": dict(self.config), "label": self.label,
            "arch": self.arch, "checkpoint": self.checkpoint,
            "dataset": self.dataset, "fingerprint": self.fingerprint,
            "corruption": self.corruption, "severity": self.severity, "seed": self.seed,
            "protocol": self.protocol.to_json(),
        }  # fmt: skip
        if self.history:
            data["history"] = list(self.history)
        if self.baseline:
            data["baseline"] = self.baseline
        if self.foreign:
            data["foreign"] = self.foreign
        if self.image_files:
            data["image_files"] = True
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        data = dict(data)
        data["config"] = tuple(sorted(data["config"].items()))
        data["protocol"] = Protocol.from_json(data["protocol"])
        data["history"] = tuple(data.get("history", ()))
        return cls(**data)

    def __str__(self) -> str:
        where = f"{self.arch} · {self.dataset} · {shift_name(self.corruption, self.severity)}"
        return f"{self.label} · {where} · seed {self.seed}"


def shift_name(corruption: str, severity: int) -> str:
    """``fog-5``; a natural shift or a domain, which has no severity, is its name alone."""
    return f"{corruption}-{severity}" if severity else corruption


def stored_identity(cell: Mapping[str, Any]) -> str:
    """The :attr:`Cell.cell_id` of a cell as ``to_json`` gives it."""
    return identity(cell, canonical_settings(cell["config"]), canonical_settings(cell["protocol"]))


def identity(cell: Mapping[str, Any], config: str, protocol: str) -> str:
    """SHA-256 (hex) of ``canonical`` of a cell without its label and `image_files`.

    config, protocol   `canonical` of these two parts, which many cells share.
    """
    history, baseline, foreign = "", "", ""
    if cell.get("baseline"):
        baseline = f'"baseline":{_text(cell["baseline"])},'
    if cell.get("foreign"):
        foreign = f'"foreign":{_text(cell["foreign"])},'
    if cell.get("history"):
        history = f'"history":{canonical(cell["history"])},'
    text = (
        f'{{"arch":{_text(cell["arch"])},{baseline}"checkpoint":{_text(cell["checkpoint"])},'
        f'"config":{config},"corruption":{_text(cell["corruption"])},"dataset":{_text(cell["dataset"])},'
        f'"fingerprint":{_text(cell["fingerprint"])},{foreign}{history}"method":{_text(cell["method"])},'
        f'"protocol":{protocol},"seed":{_whole(cell["seed"])},"severity":{_whole(cell["severity"])}}}'
    )
    return hashlib.sha256(text.encode()).hexdigest()


_text = json.encoder.encode_basestring_ascii
_settings: dict[str, str] = {}


def canonical_settings(settings: dict[str, Any]) -> str:
    """:func:`canonical` of settings that many stored cells share, made once for all of them.

    They are found by how Python spells them, as 1, 1.0 and True are equal and their JSON is not.
    """
    key = repr(settings)
    if (text := _settings.get(key)) is None:
        if len(_settings) >= 1024:
            _settings.clear()
        text = _settings[key] = canonical(settings)
    return text


def _whole(number: int) -> str:
    return repr(number) if type(number) is int else canonical(number)


_heads: dict[tuple[int, int], tuple[str, str, Any, Any]] = {}


def _head(cell: Cell) -> tuple[str, str, Any, Any]:
    """The JSON of a cell's configuration and protocol, which the cells of a plan share.

    The key is the identity of the objects, as 1, 1.0 and True are equal and their JSON is not. The objects
    are kept with it, so that no other object gets their identity.
    """
    key = id(cell.config), id(cell.protocol)
    if (head := _heads.get(key)) is None:
        if len(_heads) >= 1024:
            _heads.clear()
        head = (
            canonical(dict(cell.config)), canonical(cell.protocol.to_json()), cell.config, cell.protocol
        )  # fmt: skip
        _heads[key] = head
    return head


@dataclass(frozen=True, kw_only=True)
class Result:
    """The measured values of one cell. Accuracies in percent; seconds cover adaptation and scoring only.

    correct   bitmap of correctly classified images, in the order of the test set, first image in the
              highest bit (``numpy.packbits``; 1.7 kB per 10,000 images); empty unless status is "ok".
    details   further facts (what was adapted, which forward pass was scored, alarms); JSON values only.
    """

    cell: Cell
    status: Status
    reason: str = ""
    accuracy: float | None = None
    clean_accuracy: float | None = None
    n_images: int = 0
    seconds: float = 0.0
    correct: bytes = b""
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"id": self.cell.cell_id, "cell": self.cell.to_json(), "status": self.status}
        for name in ("reason", "accuracy", "clean_accuracy", "n_images", "seconds", "details"):
            if (value := getattr(self, name)) or value == 0.0:
                data[name] = value
        if self.correct:
            data["correct"] = base64.b64encode(self.correct).decode()
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        rest = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        rest["cell"] = Cell.from_json(data["cell"])
        rest["correct"] = base64.b64decode(data.get("correct", ""), validate=True)
        return cls(**rest)
