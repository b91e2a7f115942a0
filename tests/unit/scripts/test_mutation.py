"""The lists of the mutation tests: they name what exists, and every night runs all of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests" / "mutation" / name).read_text())


def path_of(function: str) -> Path:
    """The file of a function such as ``ttabench.cell.Cell.from_json``."""
    parts = function.split(".")
    for end in range(len(parts), 0, -1):
        for folder in (ROOT, ROOT / "reports"):
            place = folder.joinpath(*parts[:end])
            if place.with_suffix(".py").is_file():
                return place.with_suffix(".py")
            if (place / "__init__.py").is_file():
                return place / "__init__.py"
    raise AssertionError(f"{function} is in no module")


def test_every_group_runs_at_night() -> None:
    matrix = re.search(r"group: \[(.*?)\]", (ROOT / ".github/workflows/nightly.yml").read_text())
    assert matrix
    assert matrix[1].split(", ") == list(read("groups.toml"))


def test_every_module_and_test_of_a_group_exists() -> None:
    for group in read("groups.toml").values():
        for pattern in group["modules"]:
            assert list(ROOT.glob(re.sub("^src/", "reports/", pattern))), pattern
        for name in (*group["tests"], *group.get("without", ())):
            path, _, test = name.partition("::")
            assert f"def {test}" in (ROOT / path).read_text(), name


def test_every_listed_survivor_is_in_a_module_and_has_a_reason() -> None:
    listed = read("survivors.toml")["survivor"]
    keys = [(one["function"], one["before"], one["after"]) for one in listed]
    assert len(keys) == len(set(keys))
    for function, before, after in keys:
        assert path_of(function).is_file()
        assert before != after
    assert all(one["reason"] for one in listed)
