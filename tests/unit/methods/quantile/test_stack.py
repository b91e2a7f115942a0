"""Stacking: the second method sees decorrupted images, and both stand in the citation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import each
from tests.unit.made_quantile import classifier, shifted, source
from ttabench.measure.order_and_batches import Stream
from ttabench.method import Architecture, Method
from ttabench.registry import method
from ttabench_methods.quantile import Quantile
from ttabench_methods.quantile.paper import QuantilePaper
from ttabench_methods.quantile.stack import FIRST, SECOND, Decorrupted, Stack, StackConfig


def stacked(second: str = "cotta") -> Stack:
    torch.manual_seed(0)
    made = Stack(classifier(), StackConfig(second=second))  # type: ignore[arg-type]
    made.prepare(source())
    return made


def test_the_names_are_those_of_the_methods() -> None:
    for name, made in {**FIRST, **SECOND}.items():
        assert method(name) is made


@each("second", SECOND)
def test_both_papers_are_cited_and_both_needs_are_declared(second: str) -> None:
    config = StackConfig(second=second)  # type: ignore[arg-type]
    assert Quantile.paper in Stack.papers_of(config)
    assert SECOND[second].paper in Stack.papers_of(config)
    needs = Stack.needs_of(config)
    assert needs.gradient
    assert needs.source_data == "features"
    transformer = Architecture(norm_layers=("layer",), tags=("transformer",), num_classes=10)
    assert bool(needs.unmet(transformer)) == (second in ("bn_stats", "rotta"))


def test_the_second_method_sees_what_the_first_has_decorrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stacked("lame")
    stream = Stream(shifted(60)[0], np.arange(60), 30)
    given: list[Tensor] = []

    def fit(self: Method, batches: Decorrupted, epochs: int = 0) -> None:  # type: ignore[type-arg]
        given.extend(batches)
        assert batches.count == 60
        assert len(batches) == 2
        for positions, x in batches.shuffled():
            torch.testing.assert_close(x, torch.cat(given)[positions])

    monkeypatch.setattr(SECOND["lame"], "fit", fit)
    made.fit(stream, epochs=1)
    with torch.no_grad():
        expected = torch.cat([made.first.decorruptor(x) for x in stream])
    torch.testing.assert_close(torch.cat(given), expected)
    assert not torch.allclose(expected, torch.cat(list(stream)), atol=1e-3)


def test_it_undoes_a_shift_and_goes_back() -> None:
    x, labels = shifted(130)
    made, stream = stacked("lame"), Stream(x, np.arange(130), 130)
    batch = next(iter(stream))
    before = made.predict(batch)
    torch.manual_seed(1)
    made.fit(stream)
    assert float((made.predict(batch).argmax(1) == labels).float().mean()) > 0.95
    assert "decorruptor" in made.adapted()
    assert made.alarms()["alarm"] == ""
    made.reset()
    torch.testing.assert_close(made.predict(batch), before)


def test_the_first_method_is_the_one_that_is_named() -> None:
    made = Stack(classifier(), StackConfig(first="quantile_paper", second="lame"))
    made.prepare(source())
    assert (type(made.first), made.first.config.size) == (QuantilePaper, "paper")
