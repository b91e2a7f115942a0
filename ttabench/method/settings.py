"""The settings of methods: parse the texts of users into Configs, and write labels."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ttabench.cell import Scalar, spell
from ttabench.cell.subset_names import split_subset
from ttabench.errors import UserError, unknown
from ttabench.method import Architecture, Method
from ttabench.method.ranges import check_ranges


def parse_value(name: str, key: str, text: str, kind: Any) -> Scalar:
    """`text` as the type a Config field declares. Raises UserError."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        options = typing.get_args(kind)
        if type(None) in options and text.lower() == "none":
            return None
        kind = next(option for option in options if option is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        choices = {str(choice): choice for choice in typing.get_args(kind)}
        if text not in choices:
            raise unknown(f"value of {name}.{key}", text, choices)
        chosen: Scalar = choices[text]
        return chosen
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UserError(f"{name}.{key}={text}: expected true or false.")
    if kind in (int, float):
        try:
            value: float = kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise UserError(f"{name}.{key}={text}: expected {what}.") from None
        if not math.isfinite(value):
            raise UserError(f"{name}.{key}={text}: expected a finite number.")
        return value or kind(0)  # -0.0 is 0.0
    return text


def usual_settings(
    cls: type[Method[Any]], dataset: str, num_classes: int, arch: Architecture
) -> dict[str, Any]:
    """What replaces a method's defaults on a dataset, or on some of its images, and on a network."""
    return {**cls.for_dataset(split_subset(dataset)[0], num_classes), **cls.for_architecture(arch)}


def make_config(cls: type[Method[Any]], values: Mapping[str, str], base: Mapping[str, Any]) -> Any:
    """A method's Config from `base` values and a user's texts. Raises UserError."""
    return configured(cls, parse_values(cls, values), base)


def parse_values(cls: type[Method[Any]], texts: Mapping[str, str]) -> dict[str, Scalar]:
    """A user's texts as values of the types that a method's Config declares. Raises UserError."""
    hints = typing.get_type_hints(cls.Config)
    kinds = {f.name: hints[f.name] for f in fields(cls.Config)}
    for key in texts:
        if key not in kinds:
            raise unknown(f"setting of {cls.name}", key, kinds)
    return {key: parse_value(cls.name, key, text, kinds[key]) for key, text in texts.items()}


def configured(cls: type[Method[Any]], given: Mapping[str, Scalar], base: Mapping[str, Any]) -> Any:
    """A method's Config from `base` values and `given` ones, which win. Raises UserError if out of range.

    A whole number is a float where this is declared: 1 and 1.0 would be two identities of one number.
    """
    try:
        config = cls.Config(**{**base, **given})
        check_ranges(config)
    except ValueError as problem:
        raise UserError(f"{cls.name}: {problem}.") from None
    whole = {key: float(getattr(config, key)) for key in _floats(cls) if type(getattr(config, key)) is int}
    return replace(config, **whole) if whole else config


def _floats(cls: type[Method[Any]]) -> list[str]:
    """The settings that are declared as floats, also where they may be None."""
    hints = typing.get_type_hints(cls.Config)
    kinds = {
        field.name: (hints[field.name], *typing.get_args(hints[field.name])) for field in fields(cls.Config)
    }
    return [key for key, kind in kinds.items() if float in kind and int not in kind]


def label(name: str, config: Any, *defaults: Any) -> str:
    """A method and the settings in which `config` differs from one of the `defaults`: ``tent[norms=all]``."""
    differs = [
        f"{f.name}={spell(getattr(config, f.name))}"
        for f in fields(config)
        if any(getattr(config, f.name) != getattr(default, f.name) for default in defaults)
    ]
    return f"{name}[{','.join(differs)}]" if differs else name
