"""Exclude rules: which cells they leave out, and which rules leave out none."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ttabench.cell import Cell
from ttabench.models.model import Model
from ttabench.sweep.grid import Rule
from ttabench.sweep.named_method import NamedMethod, named_method


@dataclass(frozen=True)
class Exclusion:
    """An exclude rule on one dataset, with its names resolved.

    rule      as the user gives it; an axis that it does not name matches all.
    archs     the names that its networks have in cells; None = all networks.
    methods   None = all methods.
    """

    rule: Rule
    archs: frozenset[str] | None
    methods: tuple[NamedMethod, ...] | None

    def names(self, cell: Cell) -> bool:
        at = {"corruptions": cell.corruption, "severities": cell.severity, "seeds": cell.seed}
        return (
            all(value in self.rule.get(axis, (value,)) for axis, value in at.items())
            and (self.archs is None or cell.arch in self.archs)
            and (self.methods is None or any(method.names(cell) for method in self.methods))
        )


def exclusion(rule: Rule, models: Iterable[Model] = ()) -> Exclusion:
    """A rule with its methods looked up, and its networks among `models`, which may have other names too.

    Raises UserError for an unknown method or setting.
    """
    archs = methods = None
    if "archs" in rule:
        given = frozenset(rule["archs"])
        archs = given | {model.name for model in models if given & {model.asked, *model.aliases}}
    if "methods" in rule:
        methods = tuple(map(named_method, rule["methods"]))
    return Exclusion(rule, archs, methods)


def matching(exclusions: Iterable[Exclusion], cell: Cell) -> Iterator[Rule]:
    """The rules, of those of its dataset, that leave out a cell."""
    return (each.rule for each in exclusions if each.names(cell))


def warn_of_idle(rules: Iterable[Rule], used: Sequence[Rule]) -> None:
    """Warn of each rule that has left out no cell."""
    for rule in rules:
        if rule not in used:
            spelled = (f"{axis} {', '.join(map(str, values))}" for axis, values in rule.items())
            warnings.warn(
                f"the exclude rule of {' and '.join(spelled)} leaves out no cell of this sweep.", stacklevel=2
            )
