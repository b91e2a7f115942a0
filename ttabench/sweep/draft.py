"""A sweep before anything is written: its classifiers, those that are not trained yet, and its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttabench.errors import UserError
from ttabench.method.spelling import split_list
from ttabench.models.model import Model
from ttabench.store import Store
from ttabench.sweep.compute_ratio import Ratios
from ttabench.sweep.grid import Grid
from ttabench.sweep.loggers import check_loggers
from ttabench.sweep.option_table import OPTIONS
from ttabench.sweep.options_to_grid import out_folder
from ttabench.sweep.plan import Planned, SourceFacts, find_sources, plan
from ttabench.sweep.progress.display import Meter
from ttabench.sweep.resolve import Sweep, resolve
from ttabench.sweep.shard import WHOLE, Shard, pick_shard
from ttabench.sweep.sweep_file import is_one_of_several, to_toml


@dataclass(frozen=True)
class Draft:
    """What a sweep asks for.

    sweep      what its user gave, with all names resolved.
    fields     the same as its folder stores it, see :meth:`ttabench.sweep.grid.Grid.to_json`.
    file       the same as a sweep file, which its folder keeps.
    out        its results folder.
    asks_to_extend   whether its user wants it added to the other sweeps of this folder.
    shard      which slice of it this process measures.
    elsewhere  the option for which cells run on other machines, where compute ratios are others; or "".
    overwrite, scores   see :func:`ttabench.sweep.agenda.make_agenda`.
    recompute  whether networks compute activations again in the backward pass.
    """

    sweep: Sweep
    fields: dict[str, Any]
    file: str
    out: Path
    asks_to_extend: bool
    shard: Shard
    elsewhere: str
    overwrite: str
    scores: str
    recompute: bool

    @property
    def extend(self) -> bool:
        """Whether it may be added to the other sweeps of its folder, or is one of them, as it is now.

        Others may join the folder at any time, except while this process has the claim on the plan.
        """
        return self.asks_to_extend or is_one_of_several(self.file, self.out)

    @property
    def untrained(self) -> list[Model]:
        """The classifiers that still have to be trained, as it is now."""
        return [model for model in self.sweep.models if not model.ready]

    def sources(self, device: str, *, measure: bool = True) -> list[SourceFacts]:
        """The classifiers as they are now, see :func:`ttabench.sweep.plan.find_sources`."""
        with Meter("bytes") as meter:
            return find_sources(self.sweep.models, device, meter, measure=measure)

    def ratios(self, device: str, say: Callable[[str], None], *, dry_run: bool = False) -> Ratios:
        """The compute ratios of its methods, see :class:`ttabench.sweep.compute_ratio.Ratios`."""
        return Ratios(self.out, device, say, elsewhere=self.elsewhere, dry_run=dry_run)

    def cells(self, sources: Sequence[SourceFacts], ratios: Ratios) -> list[Planned]:
        """The cells of all slices. Raises UserError where exclude rules leave none."""
        if not (planned := plan(self.sweep, sources, ratios)):
            raise UserError("the exclude rules leave out every cell of this sweep; narrow one of them.")
        return planned


def make_draft(grid: Grid, options: Mapping[str, Any], *, extend: bool) -> Draft:
    """The draft of a sweep. Nothing is fetched or written.

    Raises UserError for mistakes in names, settings, loggers, the slice, the folder and what is overwritten
    or scored; also for a slice of a sweep whose classifiers are not trained, as its machines would train
    different ones.
    """
    sweep, executor = resolve(grid), str(options["executor"])
    check_loggers(split_list(str(options["log"])))
    shard = pick_shard(str(options["shard"]))
    elsewhere = "--shard" if shard != WHOLE else "" if executor == "local" else f"--executor {executor}"
    out = out_folder(options)
    for name in ("overwrite", "scores", "activations"):
        OPTIONS[name].kind.check(str(options[name]), OPTIONS[name].flag)
    draft = Draft(
        sweep, grid.to_json(), to_toml(grid.to_options()), out, extend, shard, elsewhere,
        str(options["overwrite"]), str(options["scores"]), str(options["activations"]) == "recompute",
    )  # fmt: skip
    Store(out).sweep_before(draft.fields, extend=draft.extend)  # now: opening networks may take minutes
    if shard != WHOLE and (missing := draft.untrained):
        raise UserError(
            f"--shard needs trained classifiers, and {', '.join(map(str, missing))} is not trained yet; "
            "run ttabench train first, once."
        )
    return draft
