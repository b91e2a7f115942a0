"""Convert the options of a sweep to a grid and to limits."""

from __future__ import annotations

import itertools
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ttabench.cell.protocol import parse_call, parse_contamination
from ttabench.cell.stream_spec import StreamSpec, parse_stream
from ttabench.cell.subset_names import DRAW, SUBSETS
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.errors import UserError, unknown
from ttabench.method.spelling import split_list
from ttabench.registry import in_groups
from ttabench.run.executors import Limits, Setup
from ttabench.sweep.grid import Grid
from ttabench.sweep.option_table import CCC_PART, GROUPS, OPTIONS, SINGLE
from ttabench.system.files import user_path

MOST = 1e9
"""Limits in seconds and gigabytes are below it: larger ones have more bytes than systems count."""


def whole_numbers(text: str, what: str) -> tuple[int, ...]:
    """``"1,3"`` → ``(1, 3)``. Raises UserError."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UserError(f"{what} {text}: expected whole numbers separated by commas.") from None


def share(value: Any, what: str) -> float:
    """``"0.5"`` → 0.5. Raises UserError if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"{what} {value}: expected a number, e.g. 0.5.") from None


def count(value: Any, what: str) -> int:
    """``"200"`` → 200. Raises UserError if it is not a whole number ≥ 0."""
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if not 0 <= number < 2**31:
        raise UserError(f"{what} {value}: expected one whole number from 0 to 2,147,483,647.")
    return number


def cell_limits(options: Mapping[str, Any]) -> Limits:
    """What a cell may use, from ``cell_timeout`` in seconds and ``cell_memory`` in GB. Raises UserError."""
    return Limits(_limit(options, "cell_timeout"), int(_limit(options, "cell_memory") * 1e9))


def device_memory(options: Mapping[str, Any]) -> int:
    """Bytes of its GPU that a worker may use, from ``device_memory`` in GB; 0 = all. Raises UserError."""
    return int(_limit(options, "device_memory") * 1e9)


def warn_of_gpu_options(options: Mapping[str, Any], device: str) -> None:
    """Warn of options that have no effect on the `device` of the workers."""
    asked = {
        "--per-gpu": count(options["per_gpu"], "--per-gpu") > 1,
        "--device-memory": device_memory(options),
    }
    given = [flag for flag, value in asked.items() if value]
    if given and not device.startswith("cuda"):
        verbs = ("are", "have") if len(given) > 1 else ("is", "has")
        warnings.warn(
            f"{' and '.join(given)} {verbs[0]} for NVIDIA GPUs, and {verbs[1]} no effect on {device}.",
            stacklevel=2,
        )


def _limit(options: Mapping[str, Any], name: str) -> float:
    flag = OPTIONS[name].flag
    number = share(options[name], flag)
    if not 0 <= number < MOST:
        raise UserError(f"{flag}: expected a number, 0 (unlimited) or larger and below {MOST:,.0f}.")
    return number


def out_folder(options: Mapping[str, Any]) -> Path:
    """The results folder. Raises UserError for "", which would be the current folder."""
    if not str(options["out"]):
        raise UserError("--out '' names no folder; name one, e.g. --out results, or . for this one.")
    return user_path(options["out"])


def executor_setup(options: Mapping[str, Any]) -> Setup:
    """What an executor is to know, with absolute paths. Raises UserError."""
    values: dict[str, str] = {}
    for text in split_list(str(options["executor_options"])):
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise UserError(f"--executor-options {text}: expected KEY=VALUE.")
        if name.strip() in values:
            raise UserError(f"--executor-options has {name.strip()} twice; give it once.")
        values[name.strip()] = value.strip()
    return Setup(
        workers=str(options["workers"]),
        device=str(options["device"]),
        per_gpu=count(options["per_gpu"], "--per-gpu") or 1,
        limits=cell_limits(options),
        folder=out_folder(options).absolute(),
        options=values,
    )


def corruption_names(text: str, *, ccc_parts: bool = False) -> tuple[str, ...]:
    """``all`` (the 15), ``extra`` (the 4), ``every`` (the 19), ``bar`` (the 10), ``mixed`` or names.

    ccc_parts   whether parts of the published CCC, such as ``00000-0``, are names too.

    For a dataset without any of the 15, ``all`` means all of its corruptions, see `shifts.shifts_of`; for an
    own dataset with some of them, these.
    Raises UserError.
    """
    chosen: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        if part in GROUPS:
            chosen += GROUPS[part]
        elif part in SINGLE or (ccc_parts and re.fullmatch(CCC_PART, part)):
            chosen.append(part)
        else:
            raise unknown("corruption", part, [*SINGLE, *GROUPS], "`ttabench list corruptions`")
    return tuple(chosen)


def pace_ratios(text: str) -> tuple[tuple[str, float], ...]:
    """``"tent=3.1,sar=5"`` → (("tent", 3.1), ("sar", 5.0)). Raises UserError."""
    ratios: dict[str, float] = {}
    for part in split_list(text):
        name, equals, value = part.rpartition("=")
        try:
            ratio = float(value)
        except ValueError:
            ratio = 0.0
        if not equals or not name.strip() or not 0 < ratio < math.inf:
            raise UserError(
                f"--pace-ratio {part}: expected METHOD=RATIO with a ratio above 0, e.g. tent=3.1."
            )
        if name.strip() in ratios:
            raise UserError(f"--pace-ratio names {name.strip()} twice; name each method once.")
        ratios[name.strip()] = ratio
    return tuple(ratios.items())


def one_spelling(value: Any) -> str:
    """``dirichlet(0.10)`` → ``dirichlet(0.1)``, as `Protocol` spells it; any other text as it is."""
    call = parse_call(str(value))
    return f"{call[0]}({call[1]:.12g})" if call else str(value)


def contamination_spelling(value: Any) -> str:
    """``DATASET(0.20)`` → ``DATASET(0.2)``; a folder is named as its dataset. Raises UserError.

    A text that is no contamination stays as it is; resolving the grid refuses it.
    """
    text = str(value).strip()
    place, _, share = text.removesuffix(")").rpartition("(")
    if place and (os.sep in place or user_path(place).is_dir()):
        from ttabench.data.catalog import foreign_set  # imports what opens data

        text = f"{foreign_set(f'.{os.sep}{place}' if os.sep not in place else place).name}({share})"
    call = parse_contamination(text)
    return f"{call[0]}({call[1]:.12g})" if call else text


def stream_spelling(value: Any) -> str:
    """``ccc(speed=500)`` → ``ccc(40,length=100000,speed=500)``, as `StreamSpec` spells it; the baseline last.

    A text that is no stream stays as it is; resolving the grid refuses it. Raises UserError for a share in
    place of percent.
    """
    text = one_spelling(str(value).strip())
    if text in ("", "mixed") or text.startswith("dirichlet("):
        return text
    from ttabench.sweep.shifts import split_baseline  # imports what opens data

    stream, baseline = split_baseline(text)
    try:
        spec = parse_stream(stream)
    except ValueError:
        return text
    if isinstance(spec, StreamSpec) and 0 < spec.accuracy < 1:
        raise UserError(
            f"--stream {text}: the accuracy is in percent, and {spec.accuracy:g} % is less than guessing; "
            f"did you mean ccc({100 * spec.accuracy:g})?"
        )
    spelled = str(spec)
    return f"{spelled.removesuffix(')')},baseline={baseline})" if baseline else spelled


def arch_spelling(name: str) -> str:
    """``ResNet18`` → ``resnet18``: one spelling per network of ttabench. Other networks' names are kept."""
    if any(mark in name for mark in "/:."):
        return name
    return name.lower().replace("-", "_").replace("vit_lite_", "vit_")


CONVERT: dict[str, Callable[[Any], Any]] = {
    "methods": lambda value: tuple(in_groups(split_list(str(value)))),
    "archs": lambda value: tuple(map(arch_spelling, split_list(str(value)))),
    "datasets": lambda value: split_list(str(value)),
    "corruptions": lambda value: corruption_names(str(value), ccc_parts=True),
    "severities": lambda value: whole_numbers(str(value), "--severities"),
    "seeds": lambda value: whole_numbers(str(value), "--seeds"),
    "held_out": lambda value: share(value, "--held-out"),
    "batch_size": lambda value: count(value, "--batch-size"),
    "epochs": lambda value: count(value, "--epochs"),
    "order": one_spelling,
    "reset": one_spelling,
    "contamination": contamination_spelling,
    "limit": lambda value: count(value, "--limit"),
    "stream": stream_spelling,
    "pace": lambda value: share(value, "--pace"),
    "pace_ratio": lambda value: pace_ratios(str(value)),
    "set": tuple,
}


def grid_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a :class:`Grid` that some options give; lists may be texts. Raises UserError.

    ``--stream mixed`` is another way to write ``--corruptions mixed``.
    """
    refuse_domains(options, "--corruptions")
    measured = [name for name in options if name in OPTIONS and OPTIONS[name].scope != "run"]
    fields = {
        "settings" if name == "set" else name: CONVERT.get(name, str)(options[name]) for name in measured
    }
    if fields.get("stream") == "mixed":
        if fields.get("corruptions", CORRUPTIONS) not in (CORRUPTIONS, ("mixed",)):
            raise UserError("--stream mixed interleaves the fifteen corruptions; leave --corruptions out.")
        fields |= {"corruptions": ("mixed",), "stream": ""}
    return fields


def refuse_domains(options: Mapping[str, Any], option: str) -> None:
    """Raises UserError where a corruption is a domain beside a dataset of the same options.

    option  how the corruptions are given.
    """
    names = [name for name in split_list(str(options.get("corruptions", ""))) if name not in SINGLE]
    places = [place for place in split_list(str(options.get("datasets", ""))) if os.sep in place]
    if not names or not places:
        return
    from ttabench.data.own.domain_folders import domains_beside  # imports what opens data

    for name, place in itertools.product(names, places):
        if name in domains_beside(user_path(place)):
            raise UserError(
                f"{name} is a domain beside {place}, and domains are measured all together; leave "
                f"{option} out."
            )


def stream_as_order(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a user gives in one place, with ``--stream dirichlet(δ)`` as ``--order dirichlet(δ)``.

    Raises UserError where another order is given beside it.
    """
    stream = one_spelling(str(given.get("stream", "")).strip())
    if not stream.startswith("dirichlet("):
        return dict(given)
    order = one_spelling(given.get("order", stream))
    if order != stream:
        raise UserError(f"--stream {stream} and --order {order} differ; keep one.")
    return {**given, "order": stream, "stream": ""}


def _subsets(datasets: Iterable[str], subset: str) -> dict[str, str]:
    """The name of each dataset with the subset, of those that can have it. Raises UserError."""
    if DRAW.fullmatch(subset):
        return {name: f"{name}[{subset}]" for name in datasets}
    if not any(name in SUBSETS for name in datasets):
        raise UserError(
            f"--subset {subset} is no number of images, such as 500 or 500@3. Names and lists are only for "
            f"{', '.join(SUBSETS)}, and --datasets is {', '.join(datasets)}; give a number, or another "
            "dataset."
        )
    if os.sep in subset or subset.endswith(".txt") or user_path(subset).is_file():
        from ttabench.data.published.imagenet_subset import remember_list

        subset = remember_list(SUBSETS[0], user_path(subset))
    return {name: f"{name}[{subset}]" for name in SUBSETS}


def make_grid(options: Mapping[str, Any]) -> Grid:
    """A :class:`Grid` from options as `option_table.DEFAULTS` has them, and rules as sweep files have them.

    Raises UserError.
    """
    fields = grid_fields(options)
    include = [grid_fields(rule) for rule in options.get("include", ())]
    per_dataset = {name: grid_fields(rule) for name, rule in options.get("per_dataset", {}).items()}
    if subset := str(options.get("subset", "")).strip():
        named = [*fields["datasets"], *(name for rule in include for name in rule.get("datasets", ()))]
        subsets = _subsets(named, subset)
        for each in (fields, *include):
            if "datasets" in each:
                each["datasets"] = tuple(subsets.get(name, name) for name in each["datasets"])
        per_dataset = {subsets.get(name, name): rule for name, rule in per_dataset.items()}
    return Grid(
        **fields,
        include=tuple(include),
        exclude=tuple(grid_fields(rule) for rule in options.get("exclude", ())),
        per_method={name: grid_fields(rule) for name, rule in options.get("per_method", {}).items()},
        per_dataset=per_dataset,
    )
