"""Class folders whose names are numbers."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import each
from ttabench.data.own.class_checks import classes_in_order, order_of_numbers


@each(
    ("names", "says"),
    [
        ("0 1 2 10 11", "class 2 is folder 10, not 2. .* with zeros in front: 00, 01 …"),
        ("1 2 9 100", "class 1 is folder 100, not 2. .* with zeros in front: 001, 002 …"),
        ("0 1 2", ""),
        ("00 01 02 10", ""),
        ("10 2 cat", ""),
        ("class1 class2 class10", "class 1 is folder class10, not class2. .* in front: class01, class02 …"),
        ("n01 n02 n10", ""),
        ("a1 b10 b2", ""),
        ("1_cat 2_dog 10_owl", "class 0 is folder 10_owl, not 1_cat. .* in front: 01_cat, 02_dog …"),
        ("1.cat 9.b52 10.owl", "class 1 is folder 10.owl, not 9.b52. .* in front: 01.cat, 09.b52 …"),
        ("01_cat 02_dog 10_owl", ""),
        ("2_cat 3_dog owl", ""),
        ("2024-01-05 2024-1-11", ""),
    ],
)
def test_another_order_than_that_of_the_numbers_is_said(tmp_path: Path, names: str, says: str) -> None:
    for name in names.split():
        (tmp_path / name).mkdir()
    if says:
        (sentence,) = order_of_numbers(tmp_path)
        assert re.search(says, sentence)
    else:
        assert order_of_numbers(tmp_path) == []
    assert order_of_numbers(tmp_path / "images.npz") == []


def test_the_order_of_class_folders_is_listed_up_to_ten(tmp_path: Path) -> None:
    assert classes_in_order(tmp_path) == ""
    for name in ("owl", "crow"):
        (tmp_path / name).mkdir()
    assert classes_in_order(tmp_path) == "classes: 0 crow, 1 owl"
    assert classes_in_order(tmp_path / "images.npz") == ""
    for number in range(9):
        (tmp_path / f"wren{number}").mkdir()
    listed = classes_in_order(tmp_path)
    assert listed.startswith("classes: 0 crow, 1 owl, 2 wren0, ")
    assert listed.endswith(", 9 wren7, …")
