"""Methods that rules and ratios name: ``tent[lr=0.1]`` is TENT wherever this setting is in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ttabench.cell import Cell, spell
from ttabench.errors import UserError
from ttabench.method.settings import parse_values
from ttabench.method.spelling import parse_method
from ttabench.registry import method


@dataclass(frozen=True)
class NamedMethod:
    """A method with some of its settings, whose values are spelled as in labels: so a label names its cells.

    It names a cell if the settings are in force there, whoever chose them: the user, the method or the batch.
    """

    name: str
    settings: Mapping[str, str]

    def names(self, cell: Cell) -> bool:
        if self.name != cell.method:
            return False
        config = dict(cell.config)
        return all(spell(config[key]) == value for key, value in self.settings.items())


@cache
def named_method(text: str) -> NamedMethod:
    """``tent[lr=1e-1]`` → TENT with lr 0.1. Raises UserError for an unknown method, setting or value."""
    name, texts = parse_method(text)
    return NamedMethod(name, {key: spell(v) for key, v in parse_values(method(name), texts).items()})


def given_ratio(given: Iterable[tuple[str, float]], cell: Cell) -> float | None:
    """The compute ratio of the name with the most settings that names a cell; None if no name does.

    given   names of methods, each with the compute ratio that the user gives it.

    Raises UserError where names with as many settings give different ratios.
    """
    ratios: dict[int, dict[float, str]] = {}  # by the number of settings
    for name, ratio in given:
        if (named := named_method(name)).names(cell):
            ratios.setdefault(len(named.settings), {})[ratio] = name
    if not ratios:
        return None
    best = ratios[max(ratios)]
    if len(best) > 1:
        raise UserError(
            f"--pace-ratio gives {cell.label} two ratios, as {' and as '.join(best.values())}; "
            "name it with all of its settings."
        )
    return next(iter(best))


def check_ratios(given: Iterable[tuple[str, float]], cells: Iterable[Cell]) -> None:
    """Raises UserError for a ratio of a method whose cells all have other settings."""
    labels: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        labels.setdefault(cell.method, {}).setdefault(cell.label, cell)
    for name, ratio in given:
        planned = labels.get((named := named_method(name)).name, {})
        if planned and not any(map(named.names, planned.values())):
            raise UserError(
                f"--pace-ratio {name}={ratio:g} is of no cell; this sweep has {', '.join(planned)}."
            )
