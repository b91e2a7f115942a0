"""The learning rate at another batch size is that of the official scripts, and the row says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning import plan
from ttabench.classifier import Architecture
from ttabench.errors import UserError
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.plan import SourceFacts

METHODS = "tent,eata,sar,deyo,come,come[host=sar]"
RESNET = Architecture(norm_layers=("batch",), num_classes=1000)
GN = Architecture(norm_layers=("group",), num_classes=1000)
VIT = Architecture(norm_layers=("layer",), num_classes=1000, tags=("transformer",))


def rates(arch: Architecture, methods: str = METHODS, **options: Any) -> dict[str, tuple[float | None, str]]:
    """Method (and host) → learning rate and label, on ImageNet-C."""
    source = SourceFacts(
        name="net", dataset="imagenet-c", num_classes=1000, fingerprint="f", architecture=arch, checkpoint="c"
    )
    grid = make_grid({**DEFAULTS, "methods": methods, "corruptions": "fog", **options})
    found = {}
    for cell in (planned.cell for planned in plan(grid, [source])):
        config = dict(cell.config)
        if cell.method != "source":
            name = cell.method + (f"-{config['host']}" if "host" in config else "")
            found[name] = config["lr"], cell.label
    return found


def test_the_own_batch_size_changes_nothing() -> None:
    for arch in (RESNET, VIT):
        assert rates(arch) == rates(arch, batch_rate="fixed")
        assert rates(arch, batch_size=64) == rates(arch)  # 64 is the own one of all of them on ImageNet


@pytest.mark.parametrize("arch", [RESNET, GN])
def test_the_rates_of_resnet50(arch: Architecture) -> None:
    """0.00025 / 64 · B · 2 below 32 images, 0.00025 from there on."""
    for size in (1, 8, 31):
        official = 0.00025 / 64 * size * 2
        found = rates(arch, batch_size=size)
        doubled = 2 if size == 1 else 1
        for name in ("tent", "eata", "come-tent", "come-sar"):
            assert found[name][0] == pytest.approx(official), name
        for name in ("sar", "deyo"):
            assert found[name][0] == pytest.approx(doubled * official), name
    for size in (32, 64, 128):
        assert rates(arch, batch_size=size) == rates(arch)


def test_the_rates_of_vit() -> None:
    """0.001 / 64 · B."""
    for size in (1, 16, 128):
        found = rates(VIT, batch_size=size)
        doubled = 2 if size == 1 else 1
        for name in ("tent", "eata", "come-tent", "come-sar"):
            assert found[name][0] == pytest.approx(0.001 / 64 * size), name
        for name in ("sar", "deyo"):
            assert found[name][0] == pytest.approx(doubled * 0.001 / 64 * size), name


def test_the_row_says_it() -> None:
    assert rates(RESNET, batch_size=1)["sar"][1] == "sar[lr=1.5625e-05]"


def test_a_rate_that_is_set_to_what_is_the_default_elsewhere_is_in_the_name() -> None:
    """``tent`` alone would be the name of two rates: of the default here too, as tables print it."""
    given = "tent[lr=0.00025]"  # the default of TENT on ImageNet-C
    assert rates(RESNET, given, batch_size=1)["tent"] == (0.00025, given)
    assert rates(RESNET, given, batch_size=64)["tent"] == (0.00025, "tent")
    assert rates(VIT, "tent[lr=0.00025]")["tent"][1] == "tent[norms=all,lr=0.00025]"
    assert "lr=" not in rates(RESNET, batch_size=40)["sar"][1]


def test_a_rate_of_the_user_stays() -> None:
    assert rates(RESNET, "sar[lr=0.1]", batch_size=1)["sar"][0] == 0.1
    assert rates(RESNET, "sar", batch_size=1, set=["sar.lr=0.1"])["sar"][0] == 0.1


def test_fixed_keeps_the_rate() -> None:
    assert rates(RESNET, batch_size=1, batch_rate="fixed") == rates(RESNET)


def test_a_method_without_a_rule_keeps_its_rate() -> None:
    assert rates(RESNET, "rotta,cotta", batch_size=1) == rates(RESNET, "rotta,cotta")


def test_another_rule_is_no_rule() -> None:
    with pytest.raises(UserError, match="unknown batch rate 'offical'; did you mean 'official'"):
        rates(RESNET, batch_rate="offical")
