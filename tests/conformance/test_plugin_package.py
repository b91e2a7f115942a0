"""A third-party package, installed from its own pyproject.toml, is found, listed, conformed and swept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.conftest import Run
from ttabench import registry
from ttabench.errors import UserError
from ttabench.store import load_frame
from ttabench.sweep.chosen_methods import parse_settings

PACKAGE = Path(__file__).resolve().parents[1] / "plugin_package"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed the package into; nothing else can see it."""
    folder = tmp_path_factory.mktemp("plugins")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), str(PACKAGE)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if "No module named pip" in done.stderr or "No module named 'hatchling'" in done.stderr:
        pytest.skip("pip and hatchling are needed to install the plugin package")
    assert done.returncode == 0, done.stderr
    return folder


def unpacked(package: Path, folder: Path) -> Path:
    """`folder` with the wheel of a package, as pip puts it there; nothing else can see it."""
    build = pytest.importorskip("hatchling.build")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(package)
        wheel = folder / build.build_wheel(str(folder))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    wheel.unlink()
    return folder


def run(folder: Path, *command: str, plugins: str = "on") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    env = os.environ | {"PYTHONPATH": path, "TTABENCH_PLUGINS": plugins, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.usefixtures("seen")
def test_it_is_found_and_listed_and_the_broken_one_only_warns(ttabench: Run) -> None:
    with pytest.warns(UserWarning, match="this module is not finished") as warned:
        found = registry.methods()
    assert {"mirror", "tent", "source"} <= set(found)
    assert "unfinished" not in found
    listed = ttabench("list", "methods")
    assert listed.code == 0, listed.err
    assert "mirror" in listed.out
    assert "Traceback" not in listed.err
    for told in (str(warned[0].message), listed.err):
        assert "ttabench-mirror" in told
        assert "RuntimeError: this module is not finished" in told


def test_plugins_can_be_turned_off(installed: Path) -> None:
    names = "from ttabench.registry import method_names; print(*method_names())"
    assert "mirror" in run(installed, "-c", names).stdout.split()
    done = run(installed, "-W", "error", "-c", names, plugins="off")
    assert done.returncode == 0, done.stderr
    assert "mirror" not in done.stdout.split()
    assert "source" in done.stdout.split()


@pytest.mark.usefixtures("seen", "short_memory_check")
def test_the_command_line_conforms_it(ttabench: Run) -> None:
    conformed = ttabench("conform", "mirror[weight=0.3]")
    assert conformed.code == 0, conformed.out + conformed.err
    assert re.search(r"\n\d\d checks, 0 failed\.\n$", conformed.out)
    broken = ttabench("conform", "unfinished")
    assert broken.code == 2
    assert "ttabench-mirror" in broken.err
    assert "Traceback" not in broken.err


@pytest.mark.usefixtures("seen")
def test_a_sweep_of_all_methods_leaves_out_the_broken_one(ttabench: Run, tmp_path: Path) -> None:
    what = ["--methods", "all", "--archs", "resnet18", "--corruptions", "fog", "--out", str(tmp_path)]
    planned = ttabench("sweep", *what, "--dry-run")
    assert planned.code == 0, planned.err
    assert "mirror" in planned.out
    assert "unfinished" not in planned.out
    assert planned.err.count("this module is not finished") == 1
    assert planned.err.startswith("ttabench: warning: skipped: method 'unfinished' of package ")


@pytest.mark.usefixtures("seen")
@pytest.mark.filterwarnings("ignore:skipped")
def test_the_broken_one_is_not_offered() -> None:
    for ask in (lambda: registry.method("unfinish"), lambda: parse_settings(["unfinish.lr=1"], ["tent"])):
        with pytest.raises(UserError, match="unknown method 'unfinish'") as problem:
            ask()
        assert "unfinished" not in str(problem.value)


@pytest.mark.slow
def test_the_table_of_all_methods_takes_it_and_skips_the_broken_one(installed: Path) -> None:
    table = str(PACKAGE.parent / "conformance" / "test_all_methods.py")
    done = run(installed, "-m", "pytest", "-p", "no:cacheprovider", "-k", "mirror or unfinished", table)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout


@pytest.mark.usefixtures("seen")
def test_it_is_swept(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    what = ["--methods", "mirror,mirror[weight=0]", "--archs", "resnet18", "--corruptions", "fog"]
    done = ttabench("sweep", *what, "--limit", "40", "--workers", "0", "--out", out)
    assert done.code == 0, done.err
    rows = load_frame(out).set_index("method")
    assert set(rows["status"]) == {"ok"}
    assert set(rows.index) == {"source", "mirror", "mirror[weight=0]"}
    assert rows.loc["mirror[weight=0]", "accuracy"] == rows.loc["source", "accuracy"]
