from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ttabench.provenance import current_code, forget, module_facts
from ttabench.provenance.module_facts import facts_of, hash_of, keep
from ttabench.provenance.normal_form import code_hash

CODE = b"import numpy.linalg\nfrom . import near\nfrom ..far import thing\nA = 1\n"
NewProcess = Callable[[], None]


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NewProcess:
    """An empty cache. A call forgets what this process knows; the cache stays."""
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))

    def forget() -> None:
        monkeypatch.setattr(module_facts, "_KNOWN", module_facts._Known())

    forget()
    return forget


def forbid_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_found", "_hash"):
        monkeypatch.setattr(module_facts, name, lambda *of: pytest.fail("parsed again"))


def cached(folder: Path) -> Path:
    (file,) = (folder / "facts").iterdir()
    return file


def test_imports_are_absolute_for_the_package_that_the_text_stands_in(new_process: NewProcess) -> None:
    assert facts_of(CODE).imported("a.b") == {
        "numpy.linalg", "a.b", "a.b.near", "a.far", "a.far.thing"
    }  # fmt: skip
    assert facts_of(CODE).imported("x.y.z") == {
        "numpy.linalg", "x.y.z", "x.y.z.near", "x.y.far", "x.y.far.thing"
    }  # fmt: skip


def test_imports_in_functions_count_and_those_for_types_do_not(new_process: NewProcess) -> None:
    code = (
        b"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import never\nelse:\n    import always\n"
        b"def f():\n    import inside\n"
    )
    assert facts_of(code).imported("a") == {"typing", "typing.TYPE_CHECKING", "always", "inside"}


def test_imports_by_a_call_with_the_whole_name_count(new_process: NewProcess) -> None:
    code = (
        b"import importlib\nfrom importlib import import_module\nx = importlib.import_module('a.first')\n"
        b"def f(name):\n    return import_module('second'), __import__(\"third\"), import_module(name)\n"
        b"y = import_module('.near', __package__), import_module(''), import_module(), g('fourth')\n"
        b"z = import_module(name='fifth'), import_module(package='sixth')\n"
    )
    modules = {"importlib", "importlib.import_module", "a.first", "second", "third", "fifth"}
    assert facts_of(code).imported("") == modules


@pytest.mark.parametrize("name", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_what_is_not_for_types_counts(new_process: NewProcess, name: str) -> None:
    code = (
        f"if not {name}:\n    import always\nelse:\n    import never\nif {name} or x:\n    import perhaps\n"
    )
    assert facts_of(code.encode()).imported("a") == {"always", "perhaps"}


@pytest.mark.parametrize("source", [b"\x7fELF\0\0", b"print 'Python 2'\n", b"x = '\xff'\n", b"def"])
def test_what_is_no_python_has_the_hash_of_its_bytes(new_process: NewProcess, source: bytes) -> None:
    assert facts_of(source).imports == ()
    assert len(hash_of(source)) == 16
    assert hash_of(source) != hash_of(source + b"\n")


def test_a_second_process_parses_nothing(new_process: NewProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    first = facts_of(CODE), hash_of(CODE)
    keep()
    new_process()
    forbid_parsing(monkeypatch)
    assert (facts_of(CODE), hash_of(CODE)) == first
    assert first[1] == code_hash(CODE)


def test_a_process_reads_what_another_one_has_found_since_it_began(
    new_process: NewProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of a sweep ask about the same modules, and begin together."""
    facts_of(b"A = 1")
    began = module_facts._KNOWN
    new_process()
    facts_of(CODE)
    keep()
    monkeypatch.setattr(module_facts, "_KNOWN", began)
    forbid_parsing(monkeypatch)
    assert facts_of(CODE).imports


def test_a_changed_text_has_facts_of_its_own(new_process: NewProcess) -> None:
    facts_of(CODE)
    keep()
    new_process()
    changed = CODE.replace(b"A = 1", b"import torch")
    assert hash_of(changed) == code_hash(changed) != code_hash(CODE)
    assert "torch" in facts_of(changed).imported("a.b")


def test_two_processes_add_to_each_other(new_process: NewProcess, tmp_path: Path) -> None:
    for code in (b"A = 1", b"A = 2"):
        new_process()
        hash_of(code)
        keep()
    kept = module_facts._read(cached(tmp_path))["hashes"]
    assert {*kept.values()} == {code_hash(b"A = 1"), code_hash(b"A = 2")}


@pytest.mark.parametrize("place", [0, 80, -1])
def test_a_damaged_cache_is_not_believed(new_process: NewProcess, tmp_path: Path, place: int) -> None:
    hash_of(CODE)
    keep()
    stored = bytearray(cached(tmp_path).read_bytes())
    stored[place] ^= 1
    cached(tmp_path).write_bytes(stored)
    new_process()
    assert hash_of(CODE) == code_hash(CODE)
    keep()  # and is written again
    new_process()
    assert module_facts._read(cached(tmp_path)) != {}


def test_a_hand_edited_hash_is_not_believed(new_process: NewProcess, tmp_path: Path) -> None:
    hash_of(CODE)
    keep()
    stored = cached(tmp_path).read_bytes()
    cached(tmp_path).write_bytes(stored.replace(code_hash(CODE).encode(), b"0" * 16))
    new_process()
    assert hash_of(CODE) == code_hash(CODE)


@pytest.mark.parametrize("module", ["normal_form", "definitions"])
def test_another_code_that_finds_facts_has_a_file_of_its_own(
    new_process: NewProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    before = module_facts._file()
    edited = tmp_path / "edited.py"
    edited.write_bytes(Path(getattr(module_facts, module).__file__).read_bytes() + b"# another\n")
    monkeypatch.setattr(getattr(module_facts, module), "__file__", str(edited))
    module_facts._version.cache_clear()
    try:
        assert module_facts._file() != before
    finally:
        module_facts._version.cache_clear()


def test_the_cache_gives_the_definitions_back_as_they_were(new_process: NewProcess) -> None:
    code = b"from a import b\nclass A(b):\n    @staticmethod\n    def f(x): return b(x.y)\ndef g(): A\n"
    first = facts_of(code)
    keep()
    new_process()
    assert facts_of(code) == first
    assert first.definitions["A"].members["f"].free


def test_a_cache_that_cannot_be_written_costs_only_time(
    new_process: NewProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "a file"))
    assert hash_of(CODE) == code_hash(CODE)
    keep()


def test_the_cache_does_not_grow_for_ever(
    new_process: NewProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_facts, "MOST", 3)
    for code in (b"A = 1", b"A = 2", b"A = 3", b"A = 4"):
        new_process()
        hash_of(code)
        keep()
    kept = module_facts._read(cached(tmp_path))["hashes"]
    assert [*kept.values()] == [code_hash(b"A = 4")]


def test_the_hash_of_code_is_the_same_with_facts_from_the_cache(
    new_process: NewProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cache sorts names. If that counted, results of a user's network were stale in the next process."""
    (tmp_path / "nets_of_a_user.py").write_text(
        "import torch\nfrom math import *\nfrom os.path import *\n\n"
        "def zebra():\n    return torch.zeros(3)\n\n"
        "class Apple(torch.nn.Module):\n    def run(self):\n        return zebra()\n"
        "    def forward(self, x):\n        return torch.relu(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for _ in range(2):
        new_process()
        forget()
        found.append(current_code("source", "digits-c", arch="nets_of_a_user:Apple"))
    forget()
    assert "nets_of_a_user.py" in found[0].definitions
    assert found[0].source == found[1].source
