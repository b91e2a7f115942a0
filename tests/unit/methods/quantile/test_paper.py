"""The paper's quantile matching as a method of its own: its settings, and that it works as it stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.cases import each
from tests.unit.made_quantile import classifier, shifted, source
from ttabench.measure.order_and_batches import Stream
from ttabench.registry import method
from ttabench_methods.quantile import Quantile, QuantilePaper, QuantilePaperConfig
from ttabench_methods.quantile.strict import QuantileStrict


def test_it_is_registered_under_a_name_of_its_own() -> None:
    assert method("quantile_paper") is QuantilePaper
    assert QuantilePaper.paper == Quantile.paper


def test_its_settings_are_the_papers() -> None:
    config = QuantilePaperConfig()
    assert (config.start, config.bank, config.size) == ("identity", "epoch", "paper")
    assert config.minibatch in range(128, 513)
    assert (config.proximity, config.per_class, config.information) == (0, 0, 0)
    assert not config.standardise
    assert config.regulariser > 0  # a term of the paper's, of a weight it does not give


@each(("classes", "points"), [(10, 1000), (100, 1000), (200, 2000)])
@each("dataset", ["cifar10", "digits-c"])
def test_points_are_as_many_as_in_its_tables_or_it_is_declared(
    dataset: str, classes: int, points: int
) -> None:
    """Nothing else depends on the dataset. The paper has 1,000 points in Table 1."""
    for cls in (QuantilePaper, QuantileStrict):
        settings = cls.for_dataset(dataset, classes)
        assert set(settings) == {"quantiles_per_class"}
        assert classes * settings["quantiles_per_class"] == points
        more = "10 per class where there are more than 100 classes, while the paper's tables have 1,000"
        assert points == 1000 or more in cls.deviations


@pytest.mark.slow
def test_it_undoes_a_shift_with_its_6_2_million_parameters() -> None:
    x, labels = shifted(64)
    torch.manual_seed(0)
    adapter = QuantilePaper(classifier(), QuantilePaperConfig(minibatch=32, quantiles_per_class=10, lr=1e-3))
    adapter.prepare(source())
    assert sum(p.numel() for p in adapter.decorruptor.parameters()) == pytest.approx(6.2e6, rel=0.01)
    stream = Stream(x, np.arange(64), 64)

    def accuracy() -> float:
        return float((adapter.predict(next(iter(stream))).argmax(1) == labels).float().mean())

    before = accuracy()
    adapter.fit(stream)
    assert before < 0.8
    assert accuracy() > 0.95
