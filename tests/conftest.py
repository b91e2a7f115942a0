"""Shared by all tests: a private cache, and where the real data is if it is there."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from functools import cache
from importlib import metadata
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from ttabench.system.cores import ONE_NUMPY_THREAD, available_cores

# Tests run on all cores already. This holds for NumPy and torch below, and for processes that tests start.
os.environ.update(ONE_NUMPY_THREAD, OMP_NUM_THREADS="1")

import pytest
import torch
from hypothesis import Phase, settings

from ttabench.system import environment
from ttabench.system.garbage_collection import paused

# What is set for the user's own sweeps, terminal, network or cluster is nothing to the tests, nor what a CI
# service sets.
OF_THE_USER = (
    "CI", "GITHUB_ACTIONS", "COLUMNS", "LINES", "TERMINAL_WIDTH", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
    "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT",
    "RAY_ADDRESS", "WANDB_PROJECT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TTABENCH_DATA", "TTABENCH_DECODED_GB",
    "TTABENCH_PLUGINS", "TTABENCH_SOURCE_GB",
)  # fmt: skip
for name in [name for name in os.environ if name.upper() in OF_THE_USER or name.startswith("SLURM_")]:
    del os.environ[name]
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every process of a sweep would compile all modules again
sys.dont_write_bytecode = False  # nor does each run of the tests prepare its assertions again
torch.set_num_threads(1)  # everything here is small: threads would only wait for each other
# Every file of results has ten versions of what is installed, which does not change here.
environment.metadata = SimpleNamespace(  # type: ignore[assignment]
    version=cache(metadata.version), PackageNotFoundError=metadata.PackageNotFoundError
)
# A test that takes long on a busy machine is no failure.
settings.register_profile("usual", deadline=None)
settings.load_profile("usual")
# For mutation tests: a failure is enough, the smallest example is not searched.
settings.register_profile(
    "no-shrinking", phases=(Phase.explicit, Phase.generate), derandomize=True, database=None, deadline=None
)
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real images and reference data beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("the reference data folder ../shared is not there")
    return SHARED


@pytest.fixture(scope="session")
def cache_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all processes of a run: what one has trained, generated or parsed, the others read."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"


@pytest.fixture(autouse=True)
def _private_variables(cache_of_the_run: Path) -> Generator[None]:
    """No test touches the user's cache, and what it or its code does to the environment ends with it."""
    with patch.dict(os.environ, TTABENCH_CACHE=str(cache_of_the_run)):
        yield


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """What a test draws does not depend on those before it. The seed is none that code or tests set."""
    torch.manual_seed(20_200_229)


@pytest.fixture
def short_memory_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """State that has not grown in a quarter of the long stream of `conform` is followed on at night only."""
    from ttabench.conformance import run
    from ttabench.conformance.case import Case

    monkeypatch.setattr(run, "Case", lambda *given, first: Case(*given, first=False))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays until the end: Python need not look through it for what can be freed."""
    with paused():
        result = yield
    gc.freeze()
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests with the marker `gpu` run where CUDA does."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU: torch.cuda.is_available() is false")


FREEZE_EVERY = 200  # tests
_done = count(1)


def pytest_runtest_logfinish() -> None:
    """What tests have left, such as imported modules, stays too: each look at a large heap takes a second."""
    if next(_done) % FREEZE_EVERY == 0:
        gc.collect()
        gc.freeze()


# Their tests take longest, most of it in other processes.
FIRST = (
    "cli/test_sweep.py",
    "run/test_executors_local.py",
    "scripts/test_reference_results.py",
    "sweep/test_two_sweeps.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, the files with the longest tests first: none of these runs alone at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.path.as_posix().endswith(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """``-n auto``: one more than there are cores, since tests of whole sweeps wait for other processes."""
    return available_cores() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The processes share what is left at the end: the last files are slow, and one would have them all."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None
