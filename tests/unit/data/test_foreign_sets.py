"""Foreign sets: any dataset by its name, whatever is in it, and a natural shift by its own images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.unit.made_cells import cells
from ttabench.cell.protocol import Protocol, parse_call, parse_contamination
from ttabench.data import catalog, foreign
from ttabench.data.catalog import foreign_set
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.foreign import checked_foreign, coded
from ttabench.data.foreign_set import ForeignSet
from ttabench.errors import UnknownName, UserError
from ttabench.measure.contamination import foreign_images
from ttabench.provenance import current_code
from ttabench_reports.cells.frames import checked


class Made(Dataset):
    """Clean images are black; those of its shift are white."""

    name, num_classes, image_size = "cifar10.1", 10, 8
    mean = std = (0.5, 0.5, 0.5)

    def __init__(self, corruption: str) -> None:
        self.corruptions = (corruption,)

    def fingerprint(self) -> str:
        return "made"

    def train(self) -> Labelled:
        raise NotImplementedError

    def test(self) -> Labelled:
        return Labelled(np.zeros((5, 8, 8, 3), np.uint8), np.zeros(5, np.int64))

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        return Labelled(np.full((5, 8, 8, 3), 255, np.uint8), np.zeros(5, np.int64))


@each("name", ["cifar10.1", "cifar100-c", "imagenet-c[5]", "v1.2-images-local", "7-local"])
def test_every_name_of_a_dataset_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def opened(name: str, root: Path | None) -> Dataset:
        asked.append(name)
        return Made("fog")

    monkeypatch.setattr(catalog, "foreign_set", opened)
    protocol = Protocol(contamination=f"{name}(0.50)", batch_size=7)
    assert protocol.contamination == f"{name}(0.5)"
    measured = coded(protocol)
    assert replace(measured, contamination=protocol.contamination) == protocol
    assert parse_call(measured.contamination) is not None  # what the measuring code reads
    images = foreign_images(measured.contamination, np.zeros((4, 8, 8, 3), np.uint8), seed=0)
    assert (asked, len(images)) == ([name], 4)


def test_noise_stays_noise() -> None:
    for contamination in ("", "noise(0.2)"):
        protocol = Protocol(contamination=contamination)
        assert coded(protocol) is protocol


@each("text", ["a b(0.1)", "x(0.1", "(0.1)", "Upper(0.2)", "../up(0.2)", "x(1)(0.2)", "x"])
def test_what_is_no_name_with_a_share_is_refused(text: str) -> None:
    assert parse_contamination(text) is None
    with pytest.raises(ValueError, match=r"expected NAME\(ε\)"):
        Protocol(contamination=text)


def test_the_images_of_a_natural_shift_are_its_own() -> None:
    assert ForeignSet(Made("natural")).test().images.min() == 255
    assert ForeignSet(Made("fog")).test().images.max() == 0


def test_names_are_looked_up_before_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="did you mean 'digits-c'"):
        foreign_set("digit-c")
    with pytest.raises(UnknownName, match="did you mean"):
        catalog.dataset("coded-" + b"digit-c".hex())
    monkeypatch.setattr(foreign, "foreign_set", lambda name: ForeignSet(Made("fog")))
    with pytest.raises(UserError, match="are not foreign for a network"):
        checked_foreign("cifar10.1(0.2)", Made("fog"))


def test_how_a_foreign_set_is_read_counts_as_code() -> None:
    def files(contamination: str) -> set[str]:
        return {name.partition(":")[0] for name in current_code("tent", "digits-c", "fog", "",
                                                                 contamination).definitions}  # fmt: skip

    assert "ttabench/data/foreign_set.py" not in files("noise(0.2)")
    assert {"ttabench/data/foreign_set.py", "ttabench/data/own/plain_images.py"} <= files(
        "v1.2-images-local(0.2)"
    )
    assert "ttabench/data/published/natural_shifts.py" in files("cifar10.1(0.2)")


def test_tables_take_such_names() -> None:
    assert checked(cells(contamination="cifar10.1(0.2)"))["contamination"].unique() == ["cifar10.1(0.2)"]
