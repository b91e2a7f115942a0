"""Every registered method, third-party ones included, keeps the contract."""

from __future__ import annotations

import pytest

from ttabench.conformance import conform
from ttabench.registry import method, method_names

# The same method with less work, where the default would take the table too long.
LIGHTER: dict[str, dict[str, str]] = {
    "cotta": {"views": "2"},
    "memo": {"views": "2"},
    "quantile": {"size": "small", "quantiles_per_class": "20"},
    "sotta": {"threshold": "0.5"},  # so that its memory fills
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", method_names())
def test_conforms(name: str) -> None:
    failed = [check for check in conform(method(name), LIGHTER.get(name)) if not check.ok]
    assert [f"{check.name}: {check.detail}" for check in failed] == []


def test_lighter_settings_are_for_methods_that_exist() -> None:
    assert set(LIGHTER) <= set(method_names())
