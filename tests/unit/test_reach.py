"""What counts as a method reaching for labels while it runs, and what does not."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

from ttabench.events import CellProgress
from ttabench.reach import watched_imports


def test_progress_that_a_worker_process_sends_is_not_the_method_reaching() -> None:
    with watched_imports() as reached:
        ForkingPickler.dumps(CellProgress("tent", 10, 5, 5, 4))
    assert list(reached) == []


def test_an_import_inside_a_function_is_noted() -> None:
    code = compile("import ttabench.scoring", "method.py", "exec")
    with watched_imports() as reached:
        exec(code, {"__name__": "my_methods.peek"})
    assert list(reached) == ["ttabench.scoring"]
