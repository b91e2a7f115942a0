"""Definitions by the names that messages show."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ttabench.provenance import shown_definitions
from ttabench.provenance.shown_definitions import functions_of, node_of

TEXT = """
import os
FIRST, PLACES = 1, 2
SIZE: int = 3
A = B = 4

def function(x):
    return x

async def later():
    pass

class Class:
    field = 5
    other: int = 6

    def method(self):
        return self.field

    async def wait(self):
        pass

class Empty:
    def method(self):
        pass
"""
PLACE = "ttabench/nn/made_up.py"


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the module ttabench.nn.made_up, and of the package ttabench.nn.folder."""
    file = tmp_path / "made_up.py"
    file.write_text(TEXT)
    modules = {"ttabench.nn.made_up": file, "ttabench.nn.folder": file}
    monkeypatch.setattr(shown_definitions, "module_file", modules.get)
    return file


def text_of(shown: str) -> str | None:
    node = node_of(shown)
    return None if node is None else ast.unparse(node)


def test_a_definition_is_found_by_its_name(made_up: Path) -> None:
    assert text_of(f"{PLACE}: function") == "def function(x):\n    return x"
    assert text_of(f"{PLACE}: later") == "async def later():\n    pass"
    assert text_of(f"{PLACE}: SIZE") == "SIZE: int = 3"
    assert text_of(f"{PLACE}: A") == text_of(f"{PLACE}: B") == "A = B = 4"
    assert text_of(f"{PLACE}: Class.method") == "def method(self):\n    return self.field"
    assert text_of(f"{PLACE}: Class.wait") == "async def wait(self):\n    pass"
    assert text_of(f"{PLACE}: Class.other") == "other: int = 6"
    assert text_of("ttabench/nn/folder/__init__.py: function") == text_of(f"{PLACE}: function")


def test_a_class_is_without_its_functions(made_up: Path) -> None:
    assert text_of(f"{PLACE}: Class") == "class Class:\n    field = 5\n    other: int = 6"
    assert text_of(f"{PLACE}: Empty") == "class Empty:\n    pass"


def test_what_there_is_no_definition_of_is_none(made_up: Path) -> None:
    for shown in ("gone", "Class.gone", "statements", "os"):
        assert node_of(f"{PLACE}: {shown}") is None, shown
    assert node_of(PLACE) is None
    assert node_of("ttabench/nn/gone.py: function") is None
    assert node_of("mine/nn/made_up.py: function") is None


def test_the_functions_among_definitions_have_a_file_and_a_name(made_up: Path) -> None:
    shown = ["function", "later", "Class.method", "Class", "Class.field", "SIZE", "gone"]
    found = functions_of([f"{PLACE}: {name}" for name in shown] + ["mine/a.py: function", PLACE])
    assert found == {f"{PLACE}: {name}": (made_up, name) for name in ("function", "later", "Class.method")}


def test_definitions_of_each_package_of_ttabench_are_found() -> None:
    shown = "ttabench_methods/source.py: Source.adapt"
    ((file, name),) = functions_of([shown, "torch/nn/functional.py: relu"]).values()
    assert (file.name, name) == ("source.py", "Source.adapt")
