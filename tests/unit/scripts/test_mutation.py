"""The lists of the mutation tests: they name what exists, and every night runs all of them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests" / "mutation" / name).read_text())


def functions_of(path: Path) -> Iterator[tuple[str, str]]:
    """The functions of a module, as mutmut names them, each with its source in one line."""
    source = path.read_text()
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("reports.")

    def within(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                lines = source.splitlines()[inner.lineno - 1 : inner.end_lineno]
                yield f"{name}.{inner.name}", " ".join(map(str.strip, lines))
                yield from within(inner, f"{name}.{inner.name}")

    yield from within(ast.parse(source), module.removesuffix(".__init__"))


def test_every_group_runs_at_night() -> None:
    matrix = re.search(r"group: \[(.*?)\]", (ROOT / ".github/workflows/nightly.yml").read_text())
    assert matrix
    assert matrix[1].split(", ") == list(read("groups.toml"))


def test_every_module_and_test_of_a_group_exists() -> None:
    for group in read("groups.toml").values():
        for pattern in group["modules"]:
            assert pattern.startswith(("ttabench/", "src/"))  # elsewhere the script changes nothing
            assert list(ROOT.glob(re.sub("^src/", "reports/", pattern))), pattern
        for name in (*group["tests"], *group.get("without", ())):
            path, _, test = name.partition("::")
            assert f"def {test}" in (ROOT / path).read_text(), name


def test_every_listed_survivor_changes_a_line_of_its_function_and_has_a_reason() -> None:
    """A line that is not there hides nothing, and the function may be in no group any more."""
    patterns = {pattern for group in read("groups.toml").values() for pattern in group["modules"]}
    paths = {path for pattern in patterns for path in ROOT.glob(re.sub("^src/", "reports/", pattern))}
    source = {name: text for path in paths for name, text in functions_of(path)}
    listed = read("survivors.toml")["survivor"]
    keys = [(one["function"], one["before"], one["after"]) for one in listed]
    assert len(keys) == len(set(keys))
    assert not [key for key in keys if key[1] not in source.get(key[0], "")]
    assert all(one["before"] != one["after"] and one["reason"] for one in listed)
