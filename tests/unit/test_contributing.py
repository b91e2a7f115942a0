"""CONTRIBUTING's map of the code: complete, and without names that do not exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "ttabench"


def rows() -> list[tuple[list[str], list[str]]]:
    """The file names in the two columns of the map, row by row."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.partition("## Map of the code")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE)[2:]
    return [(names(files), names(content)) for files, content in cells]


def names(cell: str) -> list[str]:
    """Names in backticks that are folders (``nn/``) or Python files."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if name.endswith(("/", ".py"))]


def place(name: str) -> Path:
    """The path of a name in the first column: in the core, otherwise from the root of the repository."""
    return CORE / name if (CORE / name).exists() else ROOT / name


def test_the_map_names_every_module_and_folder_of_the_core() -> None:
    mapped = {place(name) for files, _ in rows() for name in files}
    existing = {path for path in CORE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert len(existing) > 20
    missing = sorted(path.name for path in existing - mapped)
    assert not missing, f"CONTRIBUTING's map lacks {missing}"


def test_the_map_names_every_folder_of_the_repository() -> None:
    mapped = {place(name).relative_to(ROOT).parts[0] for files, _ in rows() for name in files}
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    if not listed:
        pytest.skip("this is not a clone of the repository")
    folders = {name.partition("/")[0] for name in listed if "/" in name}
    assert len(folders) > 8
    assert not folders - mapped, f"CONTRIBUTING's map lacks {sorted(folders - mapped)}"


def test_every_name_in_the_map_exists() -> None:
    for files, content in rows():
        assert files
        for name in files:
            path = place(name)
            assert path.is_dir() if name.endswith("/") else path.is_file(), name
        for name in content:
            assert any((place(folder) / name).exists() for folder in files), name


def test_no_name_is_in_the_map_twice() -> None:
    files = [name for first, _ in rows() for name in first]
    assert len(files) == len(set(files))
