"""Methods that rules and compute ratios name, and the cells that they mean."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning import plan
from ttabench.cell import Cell
from ttabench.errors import UserError
from ttabench.method import Architecture
from ttabench.sweep.grid import Grid
from ttabench.sweep.named_method import check_ratios, given_ratio, named_method
from ttabench.sweep.plan import SourceFacts

BATCH = Architecture(norm_layers=("batch",), num_classes=10)
LAYER = Architecture(norm_layers=("layer",), num_classes=10)
RESNET = SourceFacts("resnet18", "digits-c", 10, "f", BATCH, "c")
CCT = SourceFacts("cct", "digits-c", 10, "f", LAYER, "d")


def cells(*methods: str, source: SourceFacts = RESNET, **options: Any) -> list[Cell]:
    asked = Grid(methods=methods, archs=("any",), corruptions=("fog",), **options)
    return [item.cell for item in plan(asked, [source]) if item.cell.method != "source"]


def test_a_method_is_named_by_the_settings_that_are_in_force() -> None:
    (plain,), (given,), (official,) = cells("tent"), cells("tent[lr=0.0010]"), cells("tent", batch_size=16)
    lr = dict(plain.config)["lr"]
    for name in ("tent", f"tent[lr={lr}]", f"tent[lr={lr:e}]"):  # of its default too
        assert named_method(name).names(plain), name
    assert named_method("tent[lr=0.001]").names(given)
    assert official.label != "tent"  # the rate of official scripts at this batch size
    assert named_method(official.label).names(official)
    assert not named_method(official.label).names(plain)
    assert named_method("tent[norms=all]").names(*cells("tent", source=CCT))  # of the network
    assert not named_method("tent[norms=all]").names(plain)
    assert not named_method("eata").names(plain)
    assert named_method("quantile+cotta").names(*cells("quantile+cotta"))
    (label,) = (cell.label for cell in cells("tent[lr=0.123456789]"))
    assert named_method(label).names(*cells("tent[lr=0.123456789]"))


def test_a_ratio_holds_however_its_method_is_spelled() -> None:
    """The name with the most settings counts, and a label that no user wrote is a name too."""
    (given,) = cells("tent[lr=0.0010]")
    assert given_ratio((("tent[lr=0.0010]", 3.0), ("tent", 2.0)), given) == 3.0
    (both,) = cells("tent[norms=all]", batch_size=16)
    assert given_ratio((("tent[norms=all]", 3.0),), both) == 3.0
    assert given_ratio((("tent", 2.0), (both.label, 4.0), ("tent[norms=all]", 3.0)), both) == 4.0
    crossed = cells("tent", settings=("tent.lr=0.01,0.02",))
    assert [given_ratio((("tent[lr=0.01]", 3.0),), cell) for cell in crossed] == [3.0, None]


def test_two_ratios_of_one_cell_are_refused_where_they_differ() -> None:
    (cell,) = cells("tent[norms=all,lr=0.1]")
    two = (("tent[norms=all]", 3.0), ("tent[lr=0.1]", 4.0))
    with pytest.raises(UserError) as problem:
        given_ratio(two, cell)
    assert str(problem.value) == (
        f"--pace-ratio gives {cell.label} two ratios, as tent[norms=all] and as tent[lr=0.1]; "
        "name it with all of its settings."
    )
    assert given_ratio((*two, ("tent[lr=0.1,norms=all]", 5.0)), cell) == 5.0
    assert given_ratio((("tent[norms=all]", 3.0), ("tent[lr=0.1]", 3.0)), cell) == 3.0


def test_a_ratio_of_no_cell_is_refused() -> None:
    crossed = cells("tent", settings=("tent.lr=0.01,0.02",))
    check_ratios((("tent", 2.0), ("tent[lr=0.01]", 3.0), ("eata", 4.0)), crossed)
    with pytest.raises(UserError) as problem:
        check_ratios((("tent[lr=0.03]", 3.0),), crossed)
    assert str(problem.value) == (
        "--pace-ratio tent[lr=0.03]=3 is of no cell; this sweep has tent[lr=0.01], tent[lr=0.02]."
    )
    paced = {"pace": 1.0, "pace_ratio": (("tent[lr=0.03]", 3.0),)}
    with pytest.raises(UserError, match="is of no cell"):
        cells("tent", **paced)
