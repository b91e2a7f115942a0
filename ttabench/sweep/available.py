"""What is here of what stored cells need to be measured again: data, networks, weights and code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ttabench.cell import Cell
from ttabench.cell.subset_names import drawn_from
from ttabench.data.catalog import NAMES
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.foreign import foreign_fingerprint
from ttabench.data.own.manifest import SUFFIX
from ttabench.errors import UserError
from ttabench.method.spelling import split_list
from ttabench.models.checkpoints import cache
from ttabench.models.model import Model
from ttabench.models.resolve import resolve_model
from ttabench.registry import method_names
from ttabench.store import Record, Store
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import arch_spelling
from ttabench.sweep.sweep_file import kept


@dataclass(frozen=True)
class Available:
    """What is here of what a cell needs.

    other   the hash of what the same training gives here, for weights that are not in the cache; else "".
    lacks   why the cell cannot be run, where its data, weights or code are not here; else "".
    """

    other: str = ""
    lacks: str = ""


def find_available(records: Iterable[Record], sweeps: Sequence[Mapping[str, Any]]) -> dict[str, Available]:
    """What is here for each cell, by its id.

    sweeps   see `sweeps_of`.

    Raises UserError where a dataset is not the same.
    """
    cells = [record.result.cell for record in records]
    firsts = {_place(cell): cell for cell in cells}
    available = {place: _what_is_here(cell, sweeps) for place, cell in firsts.items()}
    installed = {name: _method_here(name) for name in {cell.method for cell in cells}}
    return {cell.cell_id: installed[cell.method] or available[_place(cell)] for cell in cells}


def _method_here(name: str) -> Available | None:
    """What is lacking where a method is not installed; None where it is."""
    if name in method_names():
        return None
    return Available(lacks=f"the method {name} is not installed; install its package: pip install -e FOLDER.")


def _check_same(dataset: str, here: str, there: str) -> None:
    """Raises UserError where a dataset is not the one that was measured on."""
    if here != there:
        raise UserError(
            f"{dataset} is not what these results were measured on ({here[:12]} here, {there[:12]} there); "
            "get the same data, or run the sweep again."
        )


def _what_is_here(cell: Cell, sweeps: Sequence[Mapping[str, Any]]) -> Available:
    """What is here for a cell. Raises UserError where a dataset is not the same."""
    try:
        data = open_dataset(cell.dataset)
    except UserError as problem:
        return Available(lacks=str(problem))
    _check_same(cell.dataset, data.fingerprint(), cell.fingerprint)
    if cell.foreign:
        contamination = cell.protocol.contamination
        try:
            foreign = foreign_fingerprint(contamination)
        except UserError as problem:
            return Available(lacks=str(problem))
        _check_same(contamination.partition("(")[0], foreign, cell.foreign)
    try:
        model = resolve_model(cell.arch, data)
    except UserError as problem:  # a network of the user, or of a package, that is not installed
        return Available(lacks=str(problem))
    if cache.with_hash(model.dataset.name, model.aliases, cell.checkpoint) is not None:
        return Available(lacks="" if model.trainable else _missing_code(model))
    weights = f"the weights {cell.checkpoint[:12]} of {cell.arch} on {cell.dataset} are not in the cache"
    again = f"--archs {cell.arch} --datasets {cell.dataset}"
    brought = any(_brings_weights(sweep, cell) for sweep in sweeps)
    if brought or not model.trainable:
        file = " --checkpoint FILE" if brought else ""
        return Available(
            lacks=f"{weights}; put them there with ttabench sweep --methods source {again}{file}."
        )
    if not model.ready:
        return Available(
            lacks=f"{weights}; train them with ttabench train {again}, or bring their file with "
            f"ttabench sweep --methods source {again} --checkpoint FILE."
        )
    return Available(other=model.load().sha256)


def _missing_code(model: Model) -> str:
    """Why the network of a user or of a package cannot be imported; "" where it can.

    What is here and fails is run, and then has no number.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            model.build()
    except Exception as problem:
        return str(problem) if isinstance(problem.__context__, ImportError) else ""
    return ""


def sweeps_of(store: Store) -> list[Mapping[str, Any]]:
    """The options of each sweep of a results folder: its sweep files, or else its `sweep.json`.

    That one has a single checkpoint for all sweeps of the folder: the last one's, or none.
    """
    return [*kept(store.root)] or [store.sweep()]


def _brings_weights(sweep: Mapping[str, Any], cell: Cell) -> bool:
    """Whether a sweep takes the weights of a cell from a file: by an option, or by a rule."""
    sweep = {**DEFAULTS, **sweep}
    for rule in ({}, *sweep.get("include", ())):
        for dataset in _names({**sweep, **rule}["datasets"]):
            if dataset not in (cell.dataset, drawn_from(cell.dataset)) and not _is_path(dataset):
                continue
            values = {**sweep, **sweep.get("per_dataset", {}).get(dataset, {}), **rule}
            if values["checkpoint"] and cell.arch in map(arch_spelling, _names(values["archs"])):
                return True
    return False


def _names(value: str | Sequence[str]) -> Sequence[str]:
    """The names of an axis: a text in a sweep file that was read, a list in `sweep.json`."""
    return split_list(value) if isinstance(value, str) else value


def _is_path(dataset: str) -> bool:
    """Whether a sweep names a dataset by its folder, and cells by the name that the folder gives it."""
    return os.sep in dataset or not (dataset in NAMES or dataset.endswith(SUFFIX))


def _place(cell: Cell) -> tuple[str, ...]:
    return cell.arch, cell.dataset, cell.fingerprint, cell.checkpoint, cell.foreign
