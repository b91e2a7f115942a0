"""Notes on a --limit that leaves out classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.unit import data_fakes as fakes
from ttabench.cell import Cell
from ttabench.cell.protocol import Protocol
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.published.imagenet import TinyImageNetC
from ttabench.data.published.natural_shifts import NaturalImageNet
from ttabench.registry import method
from ttabench.sweep.classes_left_out import labels_in_order, notes_on_few_classes, notes_on_few_of_each
from ttabench.sweep.progress.outlook import _notes

BY_CLASS = np.repeat(np.arange(4), 10)


def limited(cell: Cell, limit: int) -> Cell:
    return replace(cell, protocol=Protocol(limit=limit))


def notes(cells: list[Cell], labels: np.ndarray | None) -> list[str]:
    return list(notes_on_few_classes(cells, lambda name: labels))


def test_images_class_by_class_are_noted_once_for_each_limit(cell: Cell) -> None:
    first, second = notes([limited(cell, 11), limited(cell, 11), limited(cell, 30)], BY_CLASS)
    assert first.startswith("the first 11 test images of digits-c have only 2 of its 4 classes")
    assert second.startswith("the first 30 test images of digits-c have only 3 of its 4 classes")


@pytest.mark.parametrize("limit", [0, 31, 40, 50])
def test_where_no_class_is_left_out_there_is_no_note(cell: Cell, limit: int) -> None:
    assert notes([limited(cell, limit)], BY_CLASS) == []


def test_images_in_another_order_and_unknown_ones_are_not_noted(cell: Cell) -> None:
    assert notes([limited(cell, 3)], np.array([1, 0, 1, 2, 3])) == []
    assert notes([limited(cell, 3)], None) == []


def test_a_sweep_notes_it_for_class_folders(cell: Cell, tmp_path: Path) -> None:
    for i, path in enumerate(f"{place}/{name}" for place in ("test", "fog/5") for name in ("crow", "owl")):
        folder = tmp_path / "birds" / path
        folder.mkdir(parents=True)
        for k in range(3):
            fakes.write_png(folder / f"{k}.png", fakes.clean_images(1, seed=3 * i + k)[0])
    data = open_dataset(str(tmp_path / "birds"))
    sweep = SimpleNamespace(models=[SimpleNamespace(dataset=data, measured=data)])
    said = {}
    for limit in (3, 4):
        cells = [replace(limited(cell, limit), dataset=data.name, method="source")]
        said[limit] = _notes(sweep, SimpleNamespace(todo=cells))  # type: ignore[arg-type]
    (note,) = said[3]
    assert f"the first 3 test images of {data.name} have only 1 of its 2 classes" in note
    assert said[4] == []


def test_labels_of_published_class_folders_are_those_of_the_images_that_are_scored(tmp_path: Path) -> None:
    tiny = TinyImageNetC(fakes.FAKE_TINY, fakes.make_tiny(tmp_path / "tiny"))
    shifted = fakes.make_natural(tmp_path / "r", fakes.FAKE_IMAGENET_R, (fakes.WNIDS[0], fakes.WNIDS[2]))
    natural = NaturalImageNet(fakes.FAKE_IMAGENET_R, shifted)
    for data, corruption, severity in ((tiny, "frost", 5), (natural, "natural", 0)):
        labels = labels_in_order(data)
        assert labels is not None
        assert labels.tolist() == data.corrupted(corruption, severity).labels.tolist()


# ---- few images of each class


def of_each(cells: list[Cell], images: int, classes: int) -> list[str]:
    said = notes_on_few_of_each(
        cells, lambda _: images, lambda _: classes, lambda name: method(name).per_class
    )
    return list(said)


def test_few_images_of_each_class_are_noted_for_what_is_estimated_from_them(cell: Cell) -> None:
    cells = [replace(cell, method=name, label=name) for name in ("source", "tent", "t3a", "lame", "t3a")]
    (note,) = of_each(cells, 1000, 1000)
    assert note.startswith("digits-c: 1,000 images of 1,000 classes are 1 per class.")
    assert note.endswith(": t3a (prototypes), lame (which images of a batch are alike).")


@pytest.mark.parametrize(("images", "noted"), [(4999, True), (5000, False), (0, False)])
def test_enough_images_and_an_unknown_number_are_not_noted(cell: Cell, images: int, noted: bool) -> None:
    assert bool(of_each([replace(cell, method="t3a")], images, 1000)) is noted
    assert of_each([replace(cell, method="tent")], images, 1000) == []
