"""The wheel, installed into a fresh environment outside of the repository, works as the repository does.

The environment sees the libraries of this one, so that nothing is downloaded, but not this checkout.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def ran(command: Sequence[str | Path], where: Path) -> str:
    """What a command printed; it must succeed, outside of the repository."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=where, env=env, capture_output=True, text=True, check=False,
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = "import os, sys, hatchling.build as h; os.chdir(sys.argv[1]); h.build_wheel(sys.argv[2])"
    ran([sys.executable, "-c", build, ROOT, folder], folder)
    (made,) = folder.glob("*.whl")
    return made


def libraries() -> list[str]:
    """Folders of installed libraries, editable checkouts left out."""
    return [path for path in sys.path if path.endswith("site-packages")] or site.getsitepackages()


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    interpreter = home / "bin" / "python"
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:  # what pip does with a pure wheel, but for the script
        archive.extractall(packages)
    # Plain entries of sys.path: .pth files in these folders, which name checkouts, are not read.
    (packages / "libraries.pth").write_text("\n".join(libraries()) + "\n")
    return interpreter


def test_the_wheel_holds_the_three_packages_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"ttabench", "ttabench_methods", "ttabench_reports"}
    assert "ttabench/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]
    weights = {Path(name).name for name in names if name.startswith("ttabench/models/pretrained/digits-c/")}
    assert {Path(name).suffix for name in weights} == {".json", ".md", ".safetensors"}


def test_it_is_imported_from_there(python: Path, tmp_path: Path) -> None:
    code = "import ttabench, ttabench_methods, ttabench_reports; print(ttabench.__file__)"
    assert Path(ran([python, "-c", code], tmp_path).strip()).is_relative_to(python.parents[1])


def ttabench(python: Path, where: Path, *arguments: str | Path) -> str:
    return ran([python, "-c", "from ttabench.cli import main; main()", *arguments], where)


def test_it_lists_its_methods(python: Path, tmp_path: Path) -> None:
    output = ttabench(python, tmp_path, "list", "methods")
    for method in ("source", "tent", "quantile", "foa"):
        assert method in output


def test_it_runs_a_tiny_sweep(python: Path, tmp_path: Path) -> None:
    options = ("--methods", "tent", "--archs", "resnet18", "--corruptions", "fog", "--limit", "40")
    ttabench(python, tmp_path, "sweep", *options, "--workers", "0", "--out", tmp_path / "results")
    ttabench(python, tmp_path, "report", tmp_path / "results", "--format", "csv,html")
    assert "tent" in "".join(table.read_text() for table in tmp_path.rglob("*.csv"))
