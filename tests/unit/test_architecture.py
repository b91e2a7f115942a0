"""The house rules that are easy to break by accident."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("ttabench", "ttabench_methods", "ttabench_reports")


def imports(file: Path) -> set[str]:
    """Absolute names of our own modules that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:  # a package's own files
                assert node.level == 1, file
                continue
            inside = node.module in OURS  # from ttabench import nn
            found |= {f"{node.module}.{a.name}" for a in node.names} if inside else {node.module or ""}
    return {name for name in found if name.split(".")[0] in OURS}


def files(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


def test_cell_and_protocol_import_nothing_of_ours() -> None:
    assert imports(ROOT / "ttabench/protocol.py") == set()
    assert imports(ROOT / "ttabench/cell.py") == {"ttabench.protocol"}


def test_methods_import_only_the_contract_and_the_mechanics() -> None:
    allowed = {"ttabench.method", "ttabench.nn", "ttabench.errors", "ttabench.figure"}
    for file in files("methods"):
        outside = {name for name in imports(file) if not name.startswith("ttabench_methods")}
        assert outside <= allowed, f"{file}: {outside - allowed}"


def test_reports_import_only_the_store_side() -> None:
    allowed = {"store", "stats", "cell", "protocol", "errors"}
    for file in files("reports"):
        for name in imports(file):
            top, _, rest = name.partition(".")
            light = name.startswith("ttabench.corruptions.names")
            assert top == "ttabench_reports" or rest in allowed or light, f"{file}: {name}"


def test_the_core_reaches_methods_and_reports_only_through_entry_points() -> None:
    for file in files("ttabench"):
        assert not {n for n in imports(file) if n.split(".")[0] != "ttabench"}, file


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import ttabench.cli", ("torch", "pandas", "numpy", "rich.progress", "matplotlib")),
        ("import ttabench.store, ttabench.stats", ("torch", "matplotlib")),
        ("import ttabench_reports", ("torch", "pandas", "matplotlib")),
        ("import ttabench_reports.tables, ttabench_reports.latex, ttabench_reports.compare", ("torch",)),
        ("import ttabench_reports.plots", ("torch",)),
        ("import ttabench.models.architectures.names", ("torch",)),
        ("import ttabench.corruptions.names", ("torch", "cv2", "scipy")),
    ],
)
def test_imports_stay_light(statement: str, forbidden: tuple[str, ...]) -> None:
    script = f"import sys; {statement}; print([m for m in {forbidden!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
