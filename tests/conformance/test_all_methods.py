"""Every registered method, third-party ones included, keeps the contract."""

from __future__ import annotations

from typing import Any

import pytest

from ttabench.conformance import conform
from ttabench.errors import UserError
from ttabench.method import Method
from ttabench.registry import METHODS, entry_points, method, method_names

# The same method with less work, where the default would take the table too long.
LIGHTER: dict[str, dict[str, str]] = {
    "cotta": {"views": "2"},
    "memo": {"views": "2"},
    "quantile": {"size": "small", "quantiles_per_class": "20"},
    "quantile_paper": {"size": "small", "quantiles_per_class": "20"},
    "stack": {"second": "tent"},
    "sotta": {"threshold": "0.5"},  # so that its memory fills
}


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", method_names())
def test_conforms(name: str) -> None:
    failed = [check for check in conform(imported(name), LIGHTER.get(name)) if not check.ok]
    assert [f"{check.name}: {check.detail}" for check in failed] == []


def imported(name: str) -> type[Method[Any]]:
    try:
        return method(name)
    except UserError as problem:
        owner = entry_points(METHODS)[name].dist
        if owner is None or owner.name == "ttabench":
            raise
        pytest.skip(str(problem))


def test_lighter_settings_are_for_methods_that_exist() -> None:
    assert set(LIGHTER) <= set(method_names())
