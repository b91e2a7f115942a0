"""The methods of a sweep with their settings, and whether they go with its protocol."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ttabench.cell import Scalar
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError, unknown
from ttabench.method import Method
from ttabench.method.settings import configured, parse_values
from ttabench.method.spelling import parse_method
from ttabench.provenance import read_method
from ttabench.registry import method
from ttabench.sweep.grid import Grid
from ttabench.sweep.named_method import named_method
from ttabench.sweep.pace import BASELINE, OFFLINE
from ttabench.sweep.plain_grids import method_names, of_method
from ttabench.sweep.shifts import split_baseline


@dataclass(frozen=True)
class MethodChoice:
    """A method, the values of the settings that the user gives it, and the grid as it holds for it."""

    cls: type[Method[Any]]
    given: dict[str, Scalar]
    grid: Grid

    @property
    def mode(self) -> str:
        """The mode that the grid asks for: in native mode, the method's own."""
        return self.cls.mode if self.grid.mode == "native" else self.grid.mode


def choose_methods(grid: Grid) -> Iterator[MethodChoice]:
    """Every method × its settings. The baseline comes first, even if it is not given: tables need it."""
    chosen = [parse_method(text) for text in grid.methods]
    names = [name for name, _ in chosen]
    crossed = parse_settings(grid.settings, names)
    if BASELINE not in names:
        chosen.insert(0, (BASELINE, {}))
    for name, given in chosen:
        read_method(name)
        axes = crossed.get(name, {})
        if both := given.keys() & axes.keys():
            key = min(both)
            raise UserError(
                f"{name}.{key} is set twice: {name}[{key}={given[key]}] and --set {name}.{key}=…; keep one."
            )
        for values in itertools.product(*axes.values()):
            settings = {**given, **dict(zip(axes, values, strict=True))}
            cls = method(name)
            yield MethodChoice(cls, parse_values(cls, settings), of_method(grid, name))


def parse_settings(settings: Sequence[str], chosen: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """``tent.lr=1e-3,1e-4`` → ``{"tent": {"lr": ["1e-3", "1e-4"]}}``. Raises UserError."""
    parsed: dict[str, dict[str, list[str]]] = {}
    for text in settings:
        match = re.fullmatch(r"([^.=]+)\.([^.=]+)=(.*)", text)
        if not match or not match[3]:
            raise UserError(f"--set {text} is not of the form method.key=value[,value…].")
        name, key, values = match[1].strip(), match[2].strip(), match[3].split(",")
        if name not in chosen:
            method(name)  # raises for an unknown method
            raise UserError(f"--set {text} is about '{name}', which is not among the methods of this sweep.")
        if key in parsed.get(name, {}):
            raise UserError(f"--set {name}.{key} is given twice; put all values into one: {name}.{key}=A,B.")
        values = [value.strip() for value in values]
        if decimals := [value for value in values[1:] if re.fullmatch(r"0\d+", value)]:  # of 0,001
            raise UserError(
                f"--set {text}: a comma separates values, and {decimals[0]} is none; a decimal has a point, "
                f"as in 0.{decimals[0]}."
            )
        parsed.setdefault(name, {})[key] = values
    return parsed


def check_methods(grid: Grid, methods: Sequence[MethodChoice]) -> None:
    """Raises UserError for a setting outside of its range, and for a protocol that no method supports.

    Warns about methods that do not use the epochs.
    """
    online: list[str] = []
    for choice in methods:
        _check_protocol(choice.grid)
        configured(choice.cls, choice.given, {})
        if choice.mode == "online" and grid.per_method.get(choice.cls.name, {}).get("epochs"):
            raise UserError(
                f"per_method.{choice.cls.name}: epochs belong to offline mode, and it runs online; "
                'add mode = "offline" or leave epochs out.'
            )
        if choice.mode == "offline":
            _check_minibatch(choice)
            _check_epochs(choice)
        if choice.mode == "online" and choice.cls.name not in (BASELINE, *online):
            online.append(choice.cls.name)
    if grid.epochs and "offline" not in {choice.mode for choice in methods}:
        raise UserError(
            f"--epochs {grid.epochs}: no method of this sweep runs offline, and online every image is seen "
            "once; add --mode offline or leave --epochs out."
        )
    if grid.epochs and online:
        warnings.warn(
            f"--epochs {grid.epochs} is for offline methods; here these run online, and every image is seen "
            f"once: {', '.join(online)}.", stacklevel=2,
        )  # fmt: skip


def _check_epochs(choice: MethodChoice) -> None:
    """Raises UserError for two numbers of passes: the row would have the setting in its name, unused."""
    asked, own = choice.grid.epochs, choice.given.get("epochs")
    passes_by_itself = choice.cls.fit is not Method.fit  # else its setting `epochs` means something else
    if asked and own is not None and passes_by_itself:
        raise UserError(
            f"--epochs {asked} and {choice.cls.name}.epochs={own} are both passes over the images; keep one."
        )


def _check_minibatch(choice: MethodChoice) -> None:
    """Raises UserError for more images per update than a batch has: updates never span two batches."""
    wanted, batch = choice.given.get("minibatch", 0), choice.grid.batch_size or choice.cls.batch_size
    if isinstance(wanted, int) and wanted > batch:
        raise UserError(
            f"{choice.cls.name}.minibatch={wanted}: its batches have {batch} images, and an update has no "
            f"more; expected at most {batch}, or also per_method.{choice.cls.name}.batch_size = {wanted} in "
            f"a sweep file (for all methods: --batch-size {wanted})."
        )


def _check_protocol(grid: Grid) -> None:
    """Raises UserError for a protocol that no method supports; `plan` checks again for each method."""
    try:
        Protocol(**grid.of_protocol, batch_size=grid.batch_size or 1, stream=split_baseline(grid.stream)[0])
    except ValueError as problem:
        raise UserError(f"{problem}.") from None
    if grid.mode == "offline" and (grid.stream or grid.pace):
        raise UserError(
            f"--mode offline: {OFFLINE}, which {'--stream' if grid.stream else '--pace'} does not allow; "
            "leave --mode out, or name online."
        )
    if grid.pace and grid.reset_in_force == "continual" and not grid.stream:
        raise UserError(
            "--pace with --reset continual: each corruption would count its batches anew; for all of them as "
            "one stream, use --stream 'recurring(1)' in place of --reset continual."
        )
    if grid.pace_ratio and not grid.pace:
        raise UserError("--pace-ratio belongs to --pace; add --pace 1, or leave it out.")
    bases = method_names(grid.methods)
    for name, ratio in grid.pace_ratio:
        if parse_method(name)[0] not in bases:
            raise unknown("method of --pace-ratio", name, list(dict.fromkeys([*grid.methods, *bases])))
        if named_method(name).name == BASELINE and ratio != 1:
            raise UserError(f"--pace-ratio {name}={ratio:g}: others are compared with it, so its ratio is 1.")
