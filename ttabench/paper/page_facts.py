"""What the page of the paper says beside the cells, in a file of its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta, ValidationError, convert

from ttabench.errors import UserError, plain
from ttabench.system.files import read_plain, replace_file
from ttabench.system.work_claims import WorkClaims

FACTS = "paper.json"
Share = Annotated[float, Meta(gt=0, le=1)]


class DrawnOf(TypedDict, total=False):
    """What a figure was drawn of: options of ``ttabench figure``."""

    arch: str
    dataset: str
    device: str
    checkpoint: str
    settings: list[str]


@dataclass
class PageFacts:
    """What the page says beside the cells; kept in the folder, so that other runs add to it.

    stands   the dataset of the paper → the dataset that was measured.
    nets     the measured dataset → the network of the paper → the names in the results of those that were
             measured for it, the last one last.
    recipes  the hash of weights that were trained here → the recipe.
    notes    the hash of such weights → what is other than asked.
    missing  the dataset of the paper → why it is not measured.
    left_out the table, network and dataset → why it could not be measured.
    figures  the figure → "" or why it is missing.
    drawn    the figure → what it was drawn of.
    """

    scale: Share = 1.0
    stands: dict[str, str] = field(default_factory=dict)
    nets: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    drawn: dict[str, DrawnOf] = field(default_factory=dict)
    recipes: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._held: dict[str, Any] = {}  # what the folder had when it was read or written last

    @classmethod
    def of(cls, folder: Path) -> PageFacts:
        """Those that the folder has. Raises UserError where their file is damaged, or a link or a pipe."""
        file = folder / FACTS
        try:
            held = plain(json.loads(read_plain(file)))
            facts = convert(held, cls)
            if more := held.keys() - asdict(facts).keys():
                raise ValueError(more)
        except FileNotFoundError:
            return cls()
        except (ValidationError, ValueError, OSError, RecursionError):
            raise UserError(
                f"{file} is damaged, or of another version of ttabench; delete it, and run the command that "
                "made it again, without --page. What was measured stays."
            ) from None
        facts._held = deepcopy(asdict(facts))
        return facts

    def keep(self, folder: Path) -> None:
        """Add what is new to what the folder has, where other runs may have added theirs meanwhile.

        This object then has both. Raises UserError or OSError where the folder cannot be written, and
        UserError where it holds numbers of another --scale.
        """
        with WorkClaims(folder, "paper") as claims, claims.alone("paper"):
            refuse_two_scales(folder, self.scale)  # of a run that began at the same time
            vars(self).update(_joined(self._held, asdict(self), asdict(PageFacts.of(folder))))
            self._held = deepcopy(asdict(self))
            replace_file(folder / FACTS, json.dumps(self._held, indent=1, ensure_ascii=False).encode())


def refuse_two_scales(folder: Path, scale: float) -> None:
    """Raises UserError where the folder holds numbers of another --scale."""
    if (folder / FACTS).exists() and (held := PageFacts.of(folder).scale) != scale:
        raise UserError(
            f"{folder} is a folder of --scale {held:g}, and this run has {scale:g}; numbers of both would "
            "stand in one table. Name another folder with --out."
        )


def _joined(before: Mapping[str, Any], mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """`theirs` with all that differs from `before` in `mine`; tables entry by entry."""
    joined = dict(theirs)
    for key in before.keys() | mine.keys():
        if key not in mine:
            joined.pop(key, None)
        elif isinstance(mine[key], dict) and isinstance(joined.get(key), dict):
            joined[key] = _joined(before.get(key, {}), mine[key], joined[key])
        elif mine[key] != before.get(key):
            joined[key] = mine[key]
    return joined
