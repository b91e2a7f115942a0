"""What the page of the paper says beside the cells, in a file of its folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from ttabench.errors import UserError
from ttabench.system.files import replace_file

__all__ = ["FACTS", "Facts"]

FACTS = "paper.json"


@dataclass
class Facts:
    """What the page says beside the cells; kept in the folder, so that a later run adds to it.

    stands   the dataset of the paper → the dataset that was measured.
    nets     the measured dataset → the network of the paper → the names in the results of those that were
             measured for it, the last one last.
    recipes  the hash of weights that were trained here → the recipe.
    notes    the hash of such weights → what is other than asked.
    missing  the dataset of the paper → why it is not measured.
    left_out the table, network and dataset → why it could not be measured.
    figures  the figure → "" or why it is missing.
    drawn    the figure → what it was drawn of: options of ``ttabench figure``.
    """

    scale: float = 1.0
    stands: dict[str, str] = field(default_factory=dict)
    nets: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    drawn: dict[str, dict[str, str | list[str]]] = field(default_factory=dict)
    recipes: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Facts:
        """Those that the folder has. Raises UserError where their file is damaged."""
        file = folder / FACTS
        try:
            facts = cls(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, OSError, RecursionError):
            facts = None
        if facts is None or not all(
            _fits(vars(facts)[name], kind) for name, kind in get_type_hints(cls).items()
        ):
            raise UserError(
                f"{file} is damaged, or of another version of ttabench; delete it, and run the command that "
                "made it again, without --page. What was measured stays."
            )
        return facts

    def keep(self, folder: Path) -> None:
        replace_file(folder / FACTS, json.dumps(asdict(self), indent=1, ensure_ascii=False).encode())


def _fits(value: object, kind: Any) -> bool:
    """Whether what a JSON file has is of a type: ``dict[str, list[str]]``."""
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer is UnionType:
        return any(_fits(value, each) for each in inner)
    if isinstance(value, dict):
        return outer is dict and all(_fits(each, inner[1]) for each in value.values())
    if isinstance(value, list):
        return outer is list and all(_fits(each, inner[0]) for each in value)
    return type(value) in ((int, float) if outer is float else (outer,))
