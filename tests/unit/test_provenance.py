from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ttabench import provenance
from ttabench.provenance import changes, code_hash, combined, current_modules

CACHES = (provenance._current_modules, provenance.module_hash, provenance._imports, provenance._file)


def forget() -> None:
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str, str], dict[str, str]]]:
    """Write a file of a stranger's package and give the modules of its method."""
    package = tmp_path / "some_methods"
    package.mkdir()
    method = "from some_methods import helper, references\nfrom ttabench.nn import entropy\n"
    for name, code in (
        ("__init__", ""),
        ("mine", method),
        ("helper", "A = 1"),
        ("unused", ""),
        ("references", ""),
    ):
        (package / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    point = SimpleNamespace(module="some_methods.mine")
    monkeypatch.setattr(provenance, "entry_points", lambda group: {"mine": point})

    def write(file: str, code: str) -> dict[str, str]:
        (package / f"{file}.py").write_text(code)
        forget()
        return dict(current_modules("mine", "digits-c"))

    yield write
    forget()


def test_comments_docstrings_and_layout_are_not_code() -> None:
    plain = b"def f(x):\n    return x + 1\n"
    same = b'"""About."""\n\n\ndef f(x):  # adds\n    """Adds."""\n    return (x +\n        1)\n'
    assert code_hash(plain) == code_hash(same)
    assert code_hash(plain) != code_hash(plain.replace(b"1", b"2"))
    assert code_hash(b'A = "text"') != code_hash(b'A = "other"')


def test_what_a_method_imports_from_its_distribution_counts(
    mine: Callable[[str, str], dict[str, str]],
) -> None:
    before = mine("helper", "A = 1")
    assert "some_methods.helper" in before
    assert mine("helper", "A = 1  # the same") == before
    assert changes(before, mine("helper", "A = 2")) == ["some_methods/helper.py changed"]


@pytest.mark.parametrize("file", ["references", "unused"])
def test_papers_and_what_is_not_imported_do_not_count(
    mine: Callable[[str, str], dict[str, str]], file: str
) -> None:
    assert mine(file, "A = 1") == mine(file, "A = 2")


def test_the_scoring_code_the_reader_of_the_data_and_the_networks_count() -> None:
    modules = current_modules("tent", "digits-c")
    for name in ("nn.batch_norm", "scoring", "stream", "source", "method", "worker", "data.digits",
                 "corruptions.noise", "models.architectures.resnet"):  # fmt: skip
        assert modules[f"ttabench.{name}"], name
    assert modules["ttabench_methods.tent"]
    for name in modules:
        assert not name.startswith(
            ("ttabench.cli", "ttabench.store", "ttabench_reports", "ttabench.data.fetch")
        )


def test_corruptions_count_only_where_they_are_applied() -> None:
    assert "ttabench.corruptions.noise" not in current_modules("tent", "cifar10-c")
    assert "ttabench.data.published.cifar" in current_modules("tent", "cifar10-c")
    assert "ttabench.data.published.imagenet" in current_modules("tent", "imagenet-c")
    assert "ttabench.data.own.own_dataset" in current_modules("tent", "cifar10-c-local")
    assert "ttabench.data.mixed" in current_modules("tent", "digits-c", "mixed")
    assert "ttabench.data.mixed" not in current_modules("tent", "digits-c")


def test_methods_have_code_of_their_own_and_nobody_has_none() -> None:
    hashes = {combined(current_modules(name, "digits-c")) for name in ("source", "tent", "quantile")}
    assert len(hashes) == 3
    assert combined(current_modules("nobody", "digits-c")) == ""


def test_changes_are_named() -> None:
    then, now = {"a.b": "1", "c": "2"}, {"a.b": "3", "d": "4"}
    assert changes(then, now) == ["a/b.py changed", "c.py is gone", "d.py is new"]
    assert changes(then, then) == []


def test_it_imports_no_torch_and_runs_no_method() -> None:
    code = (
        "import sys; from ttabench.provenance import current_modules; "
        "assert len(current_modules('tent', 'digits-c')) > 20; "
        "sys.exit('torch' in sys.modules or 'ttabench_methods.tent' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
