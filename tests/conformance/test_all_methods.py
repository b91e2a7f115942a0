"""Every registered method, third-party ones included, keeps the contract."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from ttabench.classifier import Classifier
from ttabench.conformance import conform, run
from ttabench.conformance.nets import nets
from ttabench.errors import UserError
from ttabench.method import Method
from ttabench.registry import METHODS, entry_points, method, method_names

# The same method with less work, where the default would take the table too long, and for tiny nets.
LIGHTER: dict[str, dict[str, str]] = {
    "cotta": {"views": "2"},
    "rmt": {"warmup_images": "200"},
    "tea": {"sgld_steps": "2", "buffer": "100"},
    "adacontrast": {"queue": "256", "refine_after": "8"},
    "dpcore": {"steps": "2", "capacity": "10"},
    "memo": {"views": "2"},
    "foa": {"population": "6"},
    "quantile": {"size": "small", "quantiles_per_class": "5", "epochs": "4", "recent": "256"},
    "quantile_paper": {"size": "small", "quantiles_per_class": "5"},
    "quantile_strict": {"size": "small", "quantiles_per_class": "5"},
    "quantile_aqr": {"size": "small", "quantiles_per_class": "5"},
    "quantile_selected": {"size": "small", "quantiles_per_class": "5", "part": "16"},
    "stack": {"second": "tent"},
    "sotta": {"threshold": "0.5"},  # so that its memory fills
}


# At each commit the net with batch norm, or, for these methods, the transformer; at night all.
TRANSFORMER = (
    "actmad_vit",
    "deyo",
    "dpcore",
    "foa",
    "lame",
    "neo",
    "quantile",
    "quantile_paper",
    "quantile_strict",
    "rem",
    "sar",
    "source",
    "t3a",
)
# They take longest, or share nearly all code with one of the others. At each commit their parts, their hosts
# or their recorded traces are tried.
AT_NIGHT = (
    "actmad", "adacontrast", "asr", "cmf", "come", "coral", "cotta", "deyo", "dpcore", "eta", "foa", "medbn",
    "memo", "note", "poem", "quantile_aqr", "quantile_paper", "quantile_selected", "quantile_strict", "rdumb",
    "rem", "rmt", "roid", "rotta", "spa", "stack", "tca", "tea", "ttac",
)  # fmt: skip


def others_at_night(each_commit: Collection[str]) -> list[Any]:
    """Every method: at each commit these and those of other packages; at night all."""
    return [
        pytest.param(name, marks=() if name in each_commit or foreign(name) else pytest.mark.slow)
        for name in method_names()
    ]


def foreign(name: str) -> bool:
    """Whether a method comes from another package."""
    return not entry_points(METHODS)[name].value.startswith("ttabench_methods")


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", [name for name in method_names() if name not in AT_NIGHT])
def test_conforms(name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if not foreign(name):  # one of another package runs on all nets
        monkeypatch.setattr(run, "nets", lambda: net_of(name))
        request.getfixturevalue("short_memory_check")
    assert failures(name) == []


def net_of(name: str) -> dict[str, Classifier]:
    """The net on which a method is tried at each commit."""
    net = "LN ViT" if name in TRANSFORMER else "BN CNN"
    return {net: nets()[net]}


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
    assert {*LIGHTER, *TRANSFORMER, *AT_NIGHT} <= set(method_names())
