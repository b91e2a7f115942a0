"""What counts as a method reaching for labels while it runs, and what does not."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

import ttabench
from ttabench.events import CellProgress
from ttabench.reach import forbidden_imports, watched_imports


def test_progress_that_a_worker_process_sends_is_not_the_method_reaching() -> None:
    with watched_imports() as reached:
        ForkingPickler.dumps(CellProgress("tent", 10, 5, 5, 4))
    assert list(reached) == []


def test_an_import_inside_a_function_is_noted() -> None:
    code = compile("import ttabench.scoring", "method.py", "exec")
    with watched_imports() as reached:
        exec(code, {"__name__": "my_methods.peek"})
    assert list(reached) == ["ttabench.scoring"]


@pytest.mark.parametrize(
    "code",
    [
        "import ttabench\nttabench.get_dataset('digits-c')",
        "import ttabench as t\ndef setup(): t.evaluate",
        "import ttabench.nn\nttabench.run_sweep",
        "from ttabench import get_dataset",
        "from ttabench import corrupt as c",
        "def setup():\n    from ttabench.data.catalog import dataset",
    ],
)
def test_the_public_interface_is_no_way_to_labels(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"peeks{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert forbidden_imports(name)


def test_what_a_method_is_made_of_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "honest.py").write_text(
        "import ttabench\nfrom ttabench import Method, nn\nttabench.Classifier, ttabench.UserError"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert forbidden_imports("honest") == []


def test_the_public_interface_is_noted_while_a_method_runs() -> None:
    ttabench.get_dataset  # noqa: B018 — once before
    with watched_imports() as reached:
        getattr(ttabench, "get_" + "dataset")
        ttabench.Classifier  # noqa: B018
    assert list(reached) == ["ttabench.api.names"]
