"""Results folders made of given correctness, for the tests of what compares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.store import Store, attestations

Right = NDArray[np.bool_]

CELL = Cell(
    method="tent", config=(("lr", 0.001), ("norms", "batch")), label="tent",
    arch="resnet18", checkpoint="c" * 64, dataset="digits-c", fingerprint="f" * 64,
    corruption="fog", severity=5, seed=0, protocol=Protocol(),
)  # fmt: skip


def measured(cell: Cell, right: Right) -> Result:
    """The result of a cell whose images were right or not."""
    return Result(
        cell=cell, status="ok", accuracy=100 * float(right.mean()), clean_accuracy=97.0,
        n_images=len(right), seconds=0.5, correct=np.packbits(right).tobytes(),
        details={"adapted": "2 BatchNorm2d"},
    )  # fmt: skip


def with_accuracy(result: Result, accuracy: float) -> Result:
    """`result` of 1,000 images, of which so many percent are right."""
    right = np.arange(1000) < 10 * accuracy
    return replace(result, accuracy=accuracy, n_images=len(right), correct=np.packbits(right).tobytes())


def fill(store: Store, *results: Result, device: str = "cpu") -> Path:
    """Store results one after the other; the file that has them."""
    writer = store.writer(device)
    for result in results:
        writer.append(result)
    writer.close()
    return writer.path


def filled(path: Path, *results: Result) -> Store:
    """A new results folder with these results."""
    store = Store.create(path, {"methods": ["tent"]})
    fill(store, *results)
    return store


def attest(path: Path, **of: Any) -> None:
    """Add a line of evidence to a results folder, empty but for what is given."""
    line: dict[str, Any] = {
        "way": "measured again", "seed": 1, "environment": {}, "same": [], "refused": [], "cells": [],
        "operations": [], "executed": [], "accepted": [], "shown_on": {}, "written": 0.0,
    }  # fmt: skip
    attestations.append(path, **line | of)


def folder(path: Path, right: Mapping[tuple[str, int], Right], **changed: Any) -> Path:
    """A results folder of TENT with a cell per (corruption, seed); `changed` fields of the cells."""
    results = (
        measured(replace(CELL, corruption=corruption, seed=seed, **changed), bits)
        for (corruption, seed), bits in right.items()
    )
    filled(path, *results)
    return path


def losing(right: Right, images: int, rng: np.random.Generator) -> Right:
    """`right` with that many of its right images wrong."""
    worse = right.copy()
    worse[rng.choice(np.flatnonzero(right), images, replace=False)] = False
    return worse
