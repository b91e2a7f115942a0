"""A third-party package, installed from its own pyproject.toml, is found, listed, conformed and swept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(folder: Path, *command: str, plugins: str = "on") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    env = os.environ | {"PYTHONPATH": path, "TTABENCH_PLUGINS": plugins, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, check=False, timeout=240
    )


CONFORM = """
import json
from ttabench.conformance import conform
from ttabench.registry import method, methods
print(json.dumps({
    "methods": sorted(methods()),
    "failed": [f"{c.name}: {c.detail}" for c in conform(method("mirror")) if not c.ok],
}))
"""


def test_it_is_found_and_conforms_and_the_broken_one_only_warns(installed: Path) -> None:
    done = run(installed, "-c", CONFORM)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"mirror", "tent", "source"} <= set(found["methods"])
    assert "unfinished" not in found["methods"]
    assert found["failed"] == []
    assert "ttabench-mirror" in done.stderr
    assert "RuntimeError: this module is not finished" in done.stderr


def test_plugins_can_be_turned_off(installed: Path) -> None:
    names = "from ttabench.registry import method_names; print(*method_names())"
    assert "mirror" in run(installed, "-c", names).stdout.split()
    done = run(installed, "-W", "error", "-c", names, plugins="off")
    assert done.returncode == 0, done.stderr
    assert "mirror" not in done.stdout.split()
    assert "source" in done.stdout.split()
