"""`ttabench data show`: the picture has every image that was asked for, pixel for pixel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit import data_fakes as fakes
from tests.unit.conftest import Run
from ttabench.data.own.generate_corrupted import generate
from ttabench.data.own.open_own import open_own
from ttabench.data.show import GAP, LINE, picture


@pytest.fixture
def root(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", images=fakes.natural_images(8), labels=[0, 1] * 4)
    for names, levels in ((["fog", "snow"], [1, 5]), (["contrast"], [1])):
        generate(tmp_path / "x.npz", root=tmp_path, corruptions=names, severities=levels, workers=0)
    return tmp_path


def panel(sheet: Image.Image, row: int, column: int) -> Any:
    """The image at a place of the grid, one pixel for each of its own."""
    x, y = GAP + column * (128 + GAP), LINE + 2 * GAP + row * (128 + LINE + GAP) + LINE
    return np.asarray(sheet.crop((x, y, x + 128, y + 128)))[::4, ::4]


def test_every_corruption_is_there_pixel_for_pixel(root: Path, ttabench: Run) -> None:
    done = ttabench(
        "data", "show", "x-c-local", "--root", root, "--image", "3", "--out", root / "new" / "x.png"
    )
    assert (done.code, done.out.strip()) == (0, str(root / "new" / "x.png"))
    data = open_own(root / "x-c-local")
    sheet = Image.open(root / "new" / "x.png")
    assert (panel(sheet, 0, 0) == data.test().images[3]).all()
    for column, corruption in enumerate(data.corruptions, 1):
        shown = panel(sheet, 0, column)
        if 5 in data.severities(corruption):
            assert (shown == data.corrupted(corruption, 5).images[3]).all()
        else:
            assert (shown == 255).all()
    rows = picture(data, 3, 0)
    for row, corruption in enumerate(data.corruptions, 1):
        assert (panel(rows, row, 0) == data.corrupted(corruption, 1).images[3]).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--image", "8"), "has 8 test images; expected --image from 0 to 7"),
        (("--severity", "4"), "has no severity 4; there: 1, 5"),
        (("--out", "x.jpg"), "expected the name of a PNG file, such as x.png"),
        (("--out", "x.npz/x.png"), "cannot be written"),
    ],
)
def test_what_cannot_be_shown(
    root: Path, ttabench: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(root)
    before = sorted(root.iterdir())
    done = ttabench("data", "show", "x-c-local", "--root", root, *options)
    assert done.code == 2
    assert says in done.err
    assert sorted(root.iterdir()) == before


def test_the_class_has_its_name_where_images_are_in_class_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    titles = []

    def note_title(panels: Any, columns: int, title: str) -> None:
        titles.append(title)

    monkeypatch.setattr("ttabench.data.show._grid", note_title)
    for part in ("test", "fog/1"):
        for seed, name in enumerate(("crow", "owl")):
            fakes.write_png(tmp_path / "birds-C" / part / name / "0.png", fakes.clean_images(1, seed=seed)[0])
    for image in (0, 1):
        picture(open_own(tmp_path / "birds-C"), image)
    picture(open_own(root / "x-c-local"), 1)
    assert [title.partition(", ")[2] for title in titles] == [
        "class 0 (crow), severity 1",
        "class 1 (owl), severity 1",
        "class 1, severity 5",
    ]
