"""What counts as a method reaching for labels while it runs, and what does not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

import ttabench
from ttabench.data.catalog import local_names
from ttabench.errors import UnusableModel
from ttabench.provenance.forbidden_imports import forbidden_imports, refused_imports, watched_imports
from ttabench.run.progress_events import CellProgress


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module that can be imported; its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(code: str) -> str:
        name = f"written{abs(hash(code))}"
        (tmp_path / f"{name}.py").write_text(code)
        return name

    return write


def test_progress_that_a_worker_process_sends_is_not_the_method_reaching() -> None:
    with watched_imports() as reached:
        ForkingPickler.dumps(CellProgress("tent", 10, 5, 5, 4))
    assert list(reached) == []


def test_an_import_inside_a_function_is_noted() -> None:
    code = compile("import ttabench.measure.scoring", "method.py", "exec")
    with watched_imports() as reached:
        exec(code, {"__name__": "my_methods.peek"})
    assert list(reached) == ["ttabench.measure.scoring"]


@pytest.mark.parametrize(
    "code",
    [
        "import ttabench\nttabench.get_dataset('digits-c')",
        "import ttabench as t\ndef setup(): t.evaluate",
        "import ttabench.nn\nttabench.run_sweep",
        "from ttabench import get_dataset",
        "from ttabench import corrupt as c",
        "def setup():\n    from ttabench.data.catalog import dataset",
        "from ttabench.measure.test_set import test_set",
        "from ttabench.run.cell_images import images_of",
    ],
)
def test_no_module_is_a_way_to_labels(code: str, module: Callable[[str], str]) -> None:
    assert forbidden_imports(module(code))


def test_what_a_method_is_made_of_may_be_used(module: Callable[[str], str]) -> None:
    code = "import ttabench\nfrom ttabench import Method, nn\nttabench.Classifier, ttabench.UserError"
    assert forbidden_imports(module(code)) == []


def test_the_public_interface_is_noted_while_a_method_runs() -> None:
    ttabench.get_dataset  # noqa: B018 — once before
    with watched_imports() as reached:
        getattr(ttabench, "get_" + "dataset")
        ttabench.Classifier  # noqa: B018
    assert list(reached) == ["ttabench.api.lookup"]


@pytest.mark.parametrize(
    "code",
    [
        "import importlib\nimportlib.import_module('ttabench.data.catalog')",
        "__import__('ttabench.measure.scoring')",
        "import sys\nsys.modules['ttabench.data.catalog']",
    ],
)
def test_a_module_that_a_method_names_in_a_text_is_found(code: str, module: Callable[[str], str]) -> None:
    name = module(f'"""Not from ttabench.data.catalog."""\n{code}')
    (refused,) = forbidden_imports(name)
    assert refused.startswith(f"{name} imports ttabench.")


REACHES = [
    "import importlib\n    return importlib.import_module('ttab' + 'ench.data.catalog')",
    "return __import__('ttab' + 'ench.data.catalog', fromlist=['dataset'])",
    "import ttabench\n    return getattr(ttabench, 'get_' + 'dataset')",
    "import helper_of_reach\n    return helper_of_reach",
]


@pytest.mark.parametrize("body", REACHES)
def test_an_import_that_no_file_shows_is_refused(
    body: str, module: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module(f"def setup():\n    {body}\n")
    (tmp_path / "helper_of_reach.py").write_text("from ttabench.data import catalog\n")
    monkeypatch.delitem(sys.modules, "helper_of_reach", raising=False)
    setup = importlib.import_module(name).setup
    with refused_imports({name}), pytest.raises(UnusableModel, match="a method may not read datasets"):
        setup()
    with refused_imports({"another.method"}):  # such as a network of the user
        setup()


def test_the_harness_may_import_datasets_for_a_method(module: Callable[[str], str]) -> None:
    name = module("def setup(source):\n    return source()\n")
    setup = importlib.import_module(name).setup
    with refused_imports({name}):
        assert setup(local_names) is not None
