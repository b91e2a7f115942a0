"""`ttabench new` writes a package that installs as it is, passes conform, and runs in a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.test_plugin_package import run, unpacked
from tests.unit.conftest import Run
from ttabench.cli import _new
from ttabench.cli._new import class_name, write_package
from ttabench.errors import UserError
from ttabench.store import load_frame


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package("my_new_method", tmp_path_factory.mktemp("new"))


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    return unpacked(package, target)


@pytest.mark.usefixtures("seen", "short_memory_check")
def test_it_conforms_on_every_net_and_is_swept(ttabench: Run, tmp_path: Path) -> None:
    done = ttabench("conform", "my_new_method")
    assert done.code == 0, done.out
    assert "n/a" not in done.out
    what = ("--methods", "my_new_method", "--archs", "resnet18", "--corruptions", "fog", "--limit", "60")
    swept = ttabench("sweep", *what, "--workers", "0", "--out", tmp_path / "results")
    assert swept.code == 0, swept.err
    rows = load_frame(tmp_path / "results").set_index("method")
    assert rows.loc["my_new_method", "status"] == "ok"


@pytest.mark.slow
def test_its_own_test_passes(package: Path, installed: Path) -> None:
    done = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "tests"))
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_command_says_what_comes_next(ttabench: Run, tmp_path: Path) -> None:
    done = ttabench("new", "fresh_one", "--out", tmp_path)
    assert done.code == 0, done.err
    assert f"pip install -e {tmp_path / 'fresh_one'}" in done.out
    assert "ttabench conform fresh_one" in done.out
    files = sorted(str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file())
    assert files == [
        "fresh_one/fresh_one/__init__.py", "fresh_one/fresh_one/method.py", "fresh_one/pyproject.toml",
        "fresh_one/tests/test_fresh_one.py",
    ]  # fmt: skip
    again = ttabench("new", "fresh_one", "--out", tmp_path)
    assert again.code == 2
    assert "is there already" in again.err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("My-Method", "'My-Method' is no name of a method; expected lower-case letters, digits and "
         "underscores, e.g. my_method."),
        ("class", "'class' is no name of a method"),
        ("3d", "'3d' is no name of a method"),
        ("../x", "'../x' is no name of a method"),
        ("tent", "there is a method 'tent' already"),
        ("json", "'json' is a Python package already, which would hide yours"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_one_is_refused(
    ttabench: Run,
    tmp_path: Path,
    name: str,
    sentence: str,
) -> None:
    done = ttabench("new", name, "--out", tmp_path)
    assert done.code == 2
    assert sentence in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_another_process_writes_at_the_same_time_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "fresh_one" / "pyproject.toml"

    def meanwhile(name: str) -> str:
        theirs.parent.mkdir()
        theirs.touch()
        return class_name(name)

    monkeypatch.setattr(_new, "class_name", meanwhile)
    with pytest.raises(UserError, match="fresh_one cannot be written"):
        write_package("fresh_one", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [theirs]


def test_the_class_is_named_after_the_method() -> None:
    assert class_name("my_new_method") == "MyNewMethod"
