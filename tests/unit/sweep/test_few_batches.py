"""Notes on cells that have too few batches to show what is learned, or a reset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.sweep.few_batches import notes_on_few_batches


def notes(cell: Cell, images: int, **protocol: object) -> list[str]:
    made = replace(cell, protocol=Protocol(**protocol))  # type: ignore[arg-type]
    return list(notes_on_few_batches([made, made], lambda _: images, lambda name: name == "tent"))


def test_a_single_batch_is_noted_once_with_a_smaller_batch_size(cell: Cell) -> None:
    (note,) = notes(cell, 100)
    assert note.startswith("tent: the 100 images are a single batch.")
    assert note.endswith("choose a batch size of 20.")
    assert notes(cell, 200) != []
    assert notes(cell, 201) == []


def test_only_what_learns_online_from_each_batch_is_noted(cell: Cell) -> None:
    assert notes(replace(cell, method="lame"), 100) == []
    assert notes(cell, 0) == []  # the number of images is not known
    assert notes(cell, 100, mode="offline") == []
    assert notes(cell, 100, reset="continual") == []  # what is learned counts in the next corruption
    assert notes(cell, 100, reset="continual", stream="recurring(2)") == []
    assert notes(cell, 100, reset="episodic") != []


@pytest.mark.parametrize(("images", "noted"), [(60, True), (61, False)])
def test_a_reset_after_the_last_batch_is_noted(cell: Cell, images: int, noted: bool) -> None:
    found = notes(cell, images, reset="every(3)", batch_size=20)
    expected = ["tent: --reset every(3) resets nothing, because there are only 3 batches."]
    assert found == (expected if noted else [])


@pytest.mark.parametrize(("ratio", "noted"), [(4.0, False), (4.1, True)])
def test_a_pace_that_leaves_one_batch_to_adapt_to_is_noted(cell: Cell, ratio: float, noted: bool) -> None:
    """Of five batches of 20 images, each fourth is the first and the last; each fifth is the first."""
    paced = notes(cell, 100, batch_size=20, pace=1.0, pace_ratio=ratio)
    assert paced == (["tent: at this pace, a method adapts only to the first of 5 batches."] if noted else [])
