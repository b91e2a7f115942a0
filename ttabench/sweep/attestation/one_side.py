"""One of two codes that run the same cells side by side: a process that is asked by lines of JSON.

This file answers with the ttabench that it imports, which need not be the one that it belongs to; see
`side_by_side`.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ttabench
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.cell.stream_spec import RAMP, parse_stream
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.catalog import foreign_set
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.mixed import MIXED
from ttabench.errors import UnusableModel, UserError
from ttabench.measure.streams import checkpoint
from ttabench.models.checkpoints import cache
from ttabench.models.resolve import resolve_model
from ttabench.models.trained_model import TrainedModel
from ttabench.provenance import forget, roots
from ttabench.provenance.definitions import BODY
from ttabench.provenance.executed import Executed
from ttabench.provenance.operations import Operations
from ttabench.provenance.shown_definitions import functions_of, node_of
from ttabench.provenance.staleness import code_of
from ttabench.run import worker
from ttabench.run.kept_objects import WorkerState

BATCH, IMAGES = 4, 10
"""Images of a batch, and of a cell: the last batch is not full."""
ALL, EACH = 60, 5
"""Images of a test set, and source images of each class."""
A_PART, ROUNDS = 5, 2
"""Images of each part of a long stream, and how often the parts come back."""
LENGTH = 250
"""Images of a long stream without parts: two windows and a half."""
NEVER = 1e9
"""Seconds between two saved states of a stream that is not stopped."""
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Fields of a protocol that many variations cannot be combined with.
PLAIN: dict[str, Any] = {
    "order": "iid", "reset": "per_corruption", "contamination": "", "held_out": 0.0, "pace": 0.0,
    "pace_ratio": 1.0,
}  # fmt: skip
VARIATIONS: tuple[dict[str, Any], ...] = (
    {"limit": 0}, {"limit": 2 * BATCH + 1}, {"held_out": 0.25}, {"contamination": "noise(0.2)"},
    {"order": "dirichlet(0.5)"}, {"order": "dirichlet(0)"}, {"mode": "offline", "epochs": 1},
)  # fmt: skip
"""Other protocols than a cell has: all images, a last batch of one image …"""


class Side:
    """Answers questions about the code of this process; each method but `answer` is one."""

    def __init__(self) -> None:
        self._state = WorkerState()
        self._executed = Executed({})
        self._for_gpus: dict[str, list[ast.If | ast.IfExp]] = {}
        self._read: dict[str, str] = {}

    def answer(self, question: dict[str, Any]) -> Any:
        ask = question.pop("ask")
        return getattr(self, ask)(**question)

    def place(self) -> str:
        """The folder that has this code."""
        return str(Path(inspect.getfile(ttabench)).resolve().parents[1])

    def code(self, cells: Sequence[dict[str, Any]]) -> list[list[Any]]:
        """[hash, definitions] of the code of each cell, as it is on the disk now."""
        forget()
        codes = [code_of(Cell.from_json(cell)) for cell in cells]
        return [[code.source, dict(code.definitions)] for code in codes]

    def references(self, cells: Sequence[dict[str, Any]]) -> list[dict[str, list[str]]]:
        """For the code of each cell: definition → what it refers to, in the order of its text."""
        codes = [code_of(Cell.from_json(cell)) for cell in cells]
        return [{shown: _targets(shown) for shown in code.definitions} for code in codes]

    def watch(self, changed: Sequence[str]) -> dict[str, Any]:
        """Note what runs of these definitions; what `side_by_side` compares of their text.

        unknown    those of which no text is known.
        values     those that are neither functions nor classes.
        constants  definition → its numbers, and its names of devices.
        for_gpus   branches that only a GPU takes.
        """
        self._executed = Executed(functions_of(changed))
        found = {shown: node_of(shown) for shown in changed}
        nodes = {shown: node for shown, node in found.items() if node is not None}
        self._for_gpus = {shown: _for_gpus(node) for shown, node in nodes.items()}
        return {
            "unknown": [shown for shown in changed if shown not in nodes],
            "values": [shown for shown, node in nodes.items() if not isinstance(node, DEFINED)],
            "constants": {shown: sorted(_constants(node)) for shown, node in nodes.items()},
            "for_gpus": sorted({ast.unparse(each) for of in self._for_gpus.values() for each in of}),
        }

    def read(self, cells: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
        """Of each cell a hash of all that is read for it, or why it cannot be read."""
        return [self._read_for(Cell.from_json(cell)) for cell in cells]

    def _read_for(self, cell: Cell) -> dict[str, str]:
        read: dict[str, str] = {}
        try:
            data = self._whole(cell.dataset)
            make_images(cell, FewImages(data, read))
            if cell.foreign:
                name = cell.protocol.contamination.partition("(")[0]
                FewImages(foreign_set(name), read).test()
        except UserError as problem:
            return {"reason": str(problem)}
        facts = data.num_classes, data.scored_classes, data.image_size, data.mean, data.std, data.corruptions
        return {"digest": sha256(f"{facts} {sorted(read.items())}".encode()).hexdigest()}

    def run(self, cells: Sequence[dict[str, Any]], folder: str, whole: bool, varied: bool) -> dict[str, str]:
        """What a cell gives: why it has no number, or hashes of what torch computed and of its numbers.

        cells   of a continual run, those before it come before it.
        whole   with all its images, and not with few.
        varied  the cell runs with other protocols too, which few stored results have.
        """
        chain = [Cell.from_json(cell) for cell in cells]
        last = chain[-1]
        if not whole:
            worker.CLEAN = 4 * BATCH
            chain = [replace(each, protocol=few(each.protocol)) for each in chain]
        try:
            data = self._whole(last.dataset)
            for each in chain:
                make_images(each, data)
            self._read = {}
            self._use(data if whole else FewImages(data, self._read), last)
            self._load(last, data, Path(folder))
        except (UserError, UnusableModel) as problem:  # it is not on this machine; other cells may be
            return {"reason": str(problem)}
        self._state.keep("source seconds", _timed(chain[-1]), lambda: 1.0, limit=64)
        operations = Operations()
        with self._executed.watched(), operations:
            result = self._result(chain, Path(folder))
            others = [*self._others(chain, data, Path(folder))] if varied else []
        if result.status != "ok":
            return {"reason": result.reason}
        numbers = [f"{each.status} {each.accuracy!r} {each.correct.hex()}" for each in (result, *others)]
        read = [f"{name} {sums}" for name, sums in sorted(self._read.items())]
        digest, of_numbers = (
            sha256("\n".join(lines).encode()).hexdigest()[:16]
            for lines in ([operations.digest, *numbers, *read], [*numbers, *read])
        )
        return {"digest": digest, "numbers": of_numbers}

    def _others(self, chain: Sequence[Cell], data: Dataset, folder: Path) -> Iterator[Result]:
        """The same cells with other protocols, where they can have them, and with one class less."""
        for cell in varied(chain[-1]):
            yield self._result([cell], folder)
        with_fewer = FewImages(data, self._read)
        with_fewer.scored_classes = tuple(range(data.num_classes - 1))
        self._use(with_fewer, chain[-1])
        yield self._result(chain, folder)

    def _load(self, cell: Cell, data: Dataset, folder: Path) -> None:
        """Load its network before the cell runs, since what is found out about it is kept on the disk.

        Where its weights are not here, it has initial ones: weights are no code.
        """
        model = resolve_model(cell.arch, data)
        known = cache.with_hash(model.dataset.name, model.aliases, cell.checkpoint)
        if known is None and isinstance(model, TrainedModel):
            torch.manual_seed(0)
            about: dict[str, Any] = {"clean_accuracy": 0.0, "recipe": {}, "note": {}, "path": Path()}
            loaded = cache.Loaded(classifier=model.build(), sha256=cell.checkpoint, **about)
            key = cell.arch, cell.dataset, cell.checkpoint, "cpu"
            self._state.keep("classifier", key, lambda: loaded, limit=4)
        worker.Worker(self._state, folder, "cpu", lambda event: None).classifier(cell)

    def _whole(self, name: str) -> Dataset:
        return self._state.keep("whole dataset", name, lambda: open_dataset(name), limit=4)

    def _use(self, data: Dataset | FewImages, cell: Cell) -> None:
        """Give cells this dataset from now on."""
        self._state.drop("dataset")
        self._state.keep("dataset", cell.dataset, lambda: data, limit=4)

    def _result(self, chain: Sequence[Cell], folder: Path) -> Result:
        """The result of the last cell of a continual run, or of a single cell."""
        if chain[-1].protocol.stream:  # it is saved after each batch, stopped, and goes on without
            checkpoint.SECONDS = 0.0
            with suppress(Stopped):
                self._run(chain, folder, _stopping())
            checkpoint.SECONDS = NEVER
        return self._run(chain, folder, lambda event: None)

    def _run(self, chain: Sequence[Cell], folder: Path, hear: Callable[[Any], None]) -> Result:
        *_, last = worker.Worker(self._state, folder, "cpu", hear).results_of(tuple(chain))
        return last

    def missing(self) -> dict[str, list[str]]:
        """Definition → what did not run of it, for those that did not run as a whole."""
        found: dict[str, list[str]] = {}
        for shown, lacking in self._executed.missing().items():
            for_gpus = {line for branch in self._for_gpus[shown] for line in _lines(branch)}
            if texts := [text for line, text in lacking if line not in for_gpus]:
                found[shown] = texts
        return found


def _targets(shown: str) -> list[str]:
    """What a definition refers to; nothing for whole modules, whose text has the names."""
    place, _, qualified = shown.partition(": ")
    if not qualified:
        return []
    name, _, member = qualified.partition(".")
    module = place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    node = module, BODY if name == "statements" else name, member
    found = roots.graph(frozenset()).found(node, frozenset())
    return [roots.shown(each) if isinstance(each, tuple) else each for each in found.targets]


class FewImages:
    """A dataset of which each set has few images.

    read   set → hashes of all its images and labels; gets those of each set that is read.
    """

    scored_classes: tuple[int, ...]

    def __init__(self, whole: Dataset, read: dict[str, str]) -> None:
        self._whole, self.scored_classes, self._read = whole, whole.scored_classes, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        return _first(self._note(self._whole.corrupted(corruption, severity), f"{corruption}-{severity}"))

    def test(self) -> Labelled:
        return _first(self._note(self._whole.test(), "test"))

    def train(self) -> Labelled:
        found = self._note(self._whole.train(), "train")
        places = [np.flatnonzero(found.labels == label)[:EACH] for label in np.unique(found.labels)]
        return Labelled(found.images[np.concatenate(places)], found.labels[np.concatenate(places)])

    def _note(self, found: Labelled, asked: str) -> Labelled:
        name = f"{self._whole.name} {asked}"
        if name not in self._read:
            parts = (np.ascontiguousarray(each).reshape(-1).data for each in (found.images, found.labels))
            self._read[name] = " ".join(sha256(part).hexdigest() for part in parts)
        return found


def _first(data: Labelled) -> Labelled:
    return Labelled(data.images[:ALL], data.labels[:ALL])


def varied(cell: Cell) -> Iterator[Cell]:
    """The cell with other protocols, and as a long stream; those that it can have."""
    if cell.protocol.stream:
        ccc_stream = f"ccc(50,length={5 * BATCH},speed=6,corruptions=fog+contrast)"
        for limit in (0, A_PART):
            ccc = replace(cell.protocol, stream=ccc_stream, limit=limit)
            yield replace(cell, corruption="ccc", baseline="", protocol=ccc)
        return
    single = replace(cell, history=(), foreign="")
    for change in (*VARIATIONS, {"contamination": f"{cell.dataset}(0.2)"}):
        with suppress(ValueError):
            yield replace(single, protocol=replace(cell.protocol, **{**PLAIN, **change}))
    if cell.protocol.mode == "offline":  # no sweep has offline streams
        return
    with suppress(ValueError):
        name = "fog" if cell.corruption == MIXED else cell.corruption
        stream = {"stream": f"recurring(4,corruptions={name})", "reset": "continual"}
        long = replace(cell.protocol, **{**PLAIN, **stream, "limit": A_PART})
        yield replace(single, corruption="recurring", protocol=long)


class Stopped(BaseException):
    """A long stream is interrupted."""


def _stopping() -> Callable[[Any], None]:
    """Hears of progress, and stops a stream after its second batch."""
    batches = count(1)

    def hear(event: Any) -> None:
        if event.scored and next(batches) == 2:
            raise Stopped

    return hear


def few(protocol: Protocol) -> Protocol:
    """The same protocol on few images: two small batches and a half, or a short stream of such batches."""
    small = replace(protocol, batch_size=min(protocol.batch_size, BATCH))
    if not protocol.stream:
        return replace(small, limit=_least(protocol.limit, IMAGES))
    spec = parse_stream(protocol.stream)
    if spec.length:
        return replace(small, stream=str(replace(spec, length=min(spec.length, LENGTH))))
    short = replace(spec, rounds=min(spec.rounds, ROUNDS))
    return replace(small, stream=str(short), limit=_least(protocol.limit, A_PART))


def _least(limit: int, images: int) -> int:
    return min(limit or images, images)


def _timed(cell: Cell) -> tuple[Any, ...]:
    """The key under which a worker keeps the time of Source, which is measured again and again."""
    return cell.arch, cell.dataset, cell.checkpoint, "cpu", cell.protocol.batch_size, cell.protocol.precision


def make_images(cell: Cell, data: Dataset | FewImages) -> None:
    """Make the images that are kept on the disk, so that neither of the processes makes them in its cells."""
    names: Sequence[str] = CORRUPTIONS if cell.corruption == MIXED else (cell.corruption,)
    severities: Sequence[int] = (cell.severity,)
    if cell.protocol.stream:
        spec = parse_stream(cell.protocol.stream)
        names = () if spec.length else spec.corruptions or CORRUPTIONS  # a ccc stream makes them as it goes
        severities = RAMP if spec.kind == "gradual" else severities
    for severity in severities:
        for name in names:
            data.corrupted(name, severity)
    data.test()
    with suppress(UserError):  # there are none
        data.train()


def _constants(node: ast.AST) -> set[str]:
    values = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    numbers = {repr(value).removesuffix(".0") for value in values if type(value) in (int, float)}
    return numbers | {value for value in values if isinstance(value, str) and value in ("cpu", "cuda")}


def _for_gpus(node: ast.AST) -> list[ast.If | ast.IfExp]:
    """The branches of a definition that ask for a GPU."""
    branches = [part for part in ast.walk(node) if isinstance(part, ast.If | ast.IfExp)]
    return [branch for branch in branches if "'cuda'" in ast.unparse(branch.test)]


def _lines(branch: ast.If | ast.IfExp) -> range:
    return range(branch.test.lineno, (branch.test.end_lineno or branch.test.lineno) + 1)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what methods print is no answer
    side = Side()
    for line in sys.stdin:
        print(json.dumps(side.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
