from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.conftest import ttabench
from ttabench import registry
from ttabench_reports.leaderboard import joined_folders

__all__ = ["ttabench"]


@pytest.fixture
def seen(installed: Path) -> Iterator[None]:
    """This process finds the package in the folder `installed` too, and nothing of it after the test."""
    forget_methods()
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(installed)
        yield
    forget_methods()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(installed)):
            del sys.modules[name]
    importlib.invalidate_caches()


def forget_methods() -> None:
    """What is kept about methods by name, as a new process has it."""
    registry._method.cache_clear()
    joined_folders._modules.cache_clear()
