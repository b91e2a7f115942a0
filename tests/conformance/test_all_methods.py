"""Every registered method, third-party ones included, keeps the contract."""

from __future__ import annotations

from typing import Any

import pytest

from ttabench.conformance import conform
from ttabench.conformance.nets import nets
from ttabench.errors import UserError
from ttabench.method import Method
from ttabench.registry import METHODS, entry_points, method, method_names

# The same method with less work, where the default would take the table too long, and for tiny nets.
LIGHTER: dict[str, dict[str, str]] = {
    "cotta": {"views": "2"},
    "rmt": {"warmup_images": "400"},
    "memo": {"views": "2"},
    "quantile": {"size": "small", "quantiles_per_class": "20"},
    "quantile_paper": {"size": "small", "quantiles_per_class": "20"},
    "quantile_aqr": {"quantiles_per_class": "20"},
    "stack": {"second": "tent"},
    "sotta": {"threshold": "0.5"},  # so that its memory fills
}


# Both kinds of networks; a convolutional one with the other norm layers at night. Some take long on each.
NETS = ("BN CNN", "LN ViT")
FEWER = {
    "memo": ("BN CNN",), "quantile": ("LN ViT",), "quantile_paper": ("LN ViT",),
    "quantile_aqr": ("BN CNN",),  # a kind of quantile
    "stack": ("BN CNN",),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", method_names())
def test_conforms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if imported(name).__module__.startswith("ttabench_methods"):  # one of another package runs on all nets
        some = {net: classifier for net, classifier in nets().items() if net in FEWER.get(name, NETS)}
        monkeypatch.setattr("ttabench.conformance.run.nets", lambda: some)
    assert failures(name) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
@pytest.mark.parametrize("name", method_names())
def test_conforms_on_all_nets(name: str) -> None:
    assert failures(name) == []


def failures(name: str) -> list[str]:
    checks = conform(imported(name), LIGHTER.get(name))
    return [f"{check.name}: {check.detail}" for check in checks if not check.ok]


def imported(name: str) -> type[Method[Any]]:
    try:
        return method(name)
    except UserError as problem:
        owner = entry_points(METHODS)[name].dist
        if owner is None or owner.name == "ttabench":
            raise
        pytest.skip(str(problem))


def test_the_tables_are_of_methods_that_exist() -> None:
    assert {*LIGHTER, *FEWER} <= set(method_names())
