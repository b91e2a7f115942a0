"""A sweep as its user describes it: names and numbers, before names are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ttabench.errors import UserError, unknown
from ttabench.method.spelling import parse_method
from ttabench.sweep.option_table import BATCH_RATES, CLASSES, DEFAULTS, MODES

RULES = ("include", "exclude", "per_method", "per_dataset")
LATER = ("batch_rate", "classes", "stream", "pace", "pace_ratio", *RULES)
"""Fields that were added later: stored only if they are set, so that older folders still hold their sweep."""

Rule = Mapping[str, Any]
"""Some fields of a grid, by name."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A sweep as its user describes it; every tuple is an axis.

    methods   names, perhaps with settings: ``tent`` or ``tent[norms=all,lr=0.001]``.
    settings  ``method.key=value[,value…]``; all combinations of values are run.
    mode      native (each method as its paper runs it) | online | offline.
    batch_size, epochs   0 = each method's own.
    batch_rate   official | fixed: the learning rate where the batch size is not the method's own.
    classes   first | balanced: which images a limit means; see `resolve` for imagenet-c.
    reset     "" = that of the stream, see `reset_in_force`.
    checkpoint, normalize   a weights file for the architecture, and its normalisation.
    stream    "" | recurring(K) | gradual | ccc(…): the corruptions are one long stream, which is never
              reset per corruption. A ccc stream may also name a network, see `shifts.split_baseline`.
    pace, pace_ratio   see :class:`ttabench.cell.protocol.Protocol`; ratios by method, others are measured.
    include   grids to add; of each, the fields that differ.
    exclude   cells to leave out, by the axes of a rule: those that match all of them.
    per_method, per_dataset   fields that differ for a method, or for a dataset; see `rules`.
    """

    methods: tuple[str, ...]
    archs: tuple[str, ...]
    datasets: tuple[str, ...] = ("digits-c",)
    corruptions: tuple[str, ...]
    severities: tuple[int, ...] = (5,)
    seeds: tuple[int, ...] = (0,)
    settings: tuple[str, ...] = ()
    mode: str = "native"
    reset: str = ""
    batch_size: int = 0
    batch_rate: str = "official"
    epochs: int = 0
    order: str = "iid"
    contamination: str = ""
    held_out: float = 0.0
    limit: int = 0
    classes: str = "first"
    precision: str = "float32"
    checkpoint: str = ""
    normalize: str = ""
    stream: str = ""
    pace: float = 0.0
    pace_ratio: tuple[tuple[str, float], ...] = ()
    include: tuple[Rule, ...] = ()
    exclude: tuple[Rule, ...] = ()
    per_method: Mapping[str, Rule] = field(default_factory=dict)
    per_dataset: Mapping[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.checkpoint and len(self.archs) > 1:
            raise UserError(
                f"a checkpoint belongs to one architecture, but {len(self.archs)} are given; give one."
            )
        if self.mode not in MODES:
            raise unknown("mode", self.mode, MODES)
        if self.batch_rate not in BATCH_RATES:
            raise unknown("batch rate", self.batch_rate, BATCH_RATES)
        if self.classes not in CLASSES:
            raise unknown("choice of classes", self.classes, CLASSES)
        check_whole_methods(self.per_method)
        for severity in self.severities:
            if not 1 <= severity <= 5:
                raise UserError(f"severity {severity} does not exist; severities are 1 to 5.")
        for seed in self.seeds:
            check_seed(seed)
        for axis in ("methods", "archs", "datasets", "corruptions", "severities", "seeds"):
            values = getattr(self, axis)
            if not values:
                raise UserError(f"no {axis} were given; name at least one.")
            if len(set(values)) != len(values):
                twice = next(v for v in values if values.count(v) > 1)
                raise UserError(f"{axis} names '{twice}' twice; name each once.")

    @property
    def reset_in_force(self) -> str:
        """The reset that is given; else continual for a long stream, and per_corruption without one."""
        return self.reset or ("continual" if self.stream else "per_corruption")

    @property
    def of_protocol(self) -> dict[str, Any]:
        """The fields of a protocol that all of its methods share, but for the stream."""
        shared = ("order", "contamination", "held_out", "limit", "precision", "pace")
        return {"reset": self.reset_in_force, **{name: getattr(self, name) for name in shared}}

    def to_json(self, *, whole: bool = False) -> dict[str, Any]:
        """The fields as JSON values; later ones only if they are set, unless `whole`.

        The reset is the one in force, as in the folders of earlier sweeps.
        """
        unset = {f.name: _json(f.default) for f in fields(self) if f.name not in RULES}
        values = {name: _json(value) for name, value in asdict(self).items()}
        values["reset"] = self.reset_in_force
        if whole:
            return values
        return {k: v for k, v in values.items() if k not in LATER or v not in ([], {}, unset.get(k))}

    def to_options(self) -> dict[str, Any]:
        """What a sweep file says of it, as JSON values: options, with names of groups resolved, and rules."""
        options = self.to_json(whole=True)
        options["set"] = options.pop("settings")
        if self._rules_decide_reset():
            del options["reset"]
        for name in ("batch_rate", "classes"):  # folders of earlier sweeps have none, and hold the same sweep
            if options[name] == DEFAULTS[name]:
                del options[name]
        return options

    def _rules_decide_reset(self) -> bool:
        """Whether the reset of a stream, which is not given, is not that of a rule without this stream."""
        rules = (*self.include, *self.per_dataset.values())
        return bool(self.stream and not self.reset) and any(
            "stream" in rule and not rule["stream"] and "reset" not in rule for rule in rules
        )


def check_whole_methods(names: Iterable[str]) -> None:
    """Raises UserError for a rule of `per_method` that names settings, by which no method is looked up."""
    for name in names:
        whole, _ = parse_method(name)
        if name != whole:
            raise UserError(f"per_method.{name}: rules are for a whole method; name {whole}.")


def check_seed(seed: int) -> None:
    """Raises UserError for a seed that not all generators of random numbers take."""
    if not 0 <= seed < 2**63:
        raise UserError(f"seed {seed} does not exist; seeds are 0 to 2⁶³ − 1.")


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _json(v) for name, v in value.items()}
    return [_json(v) for v in value] if isinstance(value, list | tuple) else value
