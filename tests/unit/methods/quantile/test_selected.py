"""Quantile matching on all images and on a part of them: which of the two decorruptors is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.methods.quantile.test_recalibrated import SETTINGS, pixels
from ttabench.conformance.nets import images, nets
from ttabench.measure.order_and_batches import Stream
from ttabench.measure.source_access import SourceImages
from ttabench.registry import method
from ttabench_methods.quantile import Quantile, QuantileConfig
from ttabench_methods.quantile.selected import DrawnImages, SelectedQuantile, SelectedQuantileConfig


def prepared(one: Quantile) -> Quantile:
    one.prepare(SourceImages(lambda: pixels(images(200, seed=5)), one.needs_of(one.config)))
    return one


def selected(**settings: object) -> SelectedQuantile:
    torch.manual_seed(0)
    one = SelectedQuantile(nets()["BN CNN"], SelectedQuantileConfig(**{**SETTINGS, **settings}))  # type: ignore[arg-type]
    prepared(one)
    return one


def plain() -> Quantile:
    torch.manual_seed(0)
    return prepared(Quantile(nets()["BN CNN"], QuantileConfig(**SETTINGS)))  # type: ignore[arg-type]


def dark(count: int = 60) -> Stream:
    """Images of a camera with another exposure, 25 in a batch."""
    return Stream(pixels(0.2 + 0.5 * images(count, seed=7)), np.arange(count), 25)


def fitted(one: Quantile, to: Stream | DrawnImages) -> Quantile:
    torch.manual_seed(1)
    one.fit(to)
    return one


def same(one: Quantile, other: Quantile) -> bool:
    pairs = zip(one.decorruptor.state_dict().values(), other.decorruptor.state_dict().values(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def loss(one: Quantile, stream: Stream) -> float:
    """The quantile loss of all images."""
    with torch.no_grad():
        features = torch.cat([one.model.features(one.decorruptor(x)) for x in stream])
    return one.matching.loss_of(features / one.matching.unit)


@pytest.mark.parametrize(
    ("losses", "kept"), [((2.0, 3.0), "all"), ((2.0, 2.9), "part"), ((2.0, 1.0), "part")]
)
def test_the_longer_training_is_kept_where_it_is_worth_it(
    losses: tuple[float, float], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = selected(part=30)
    claimed = iter(losses)
    monkeypatch.setattr(one, "_loss", lambda batches: next(claimed))
    fitted(one, dark())
    assert same(one, fitted(plain(), dark())) == (kept == "all")
    assert len(one.losses) == 3
    assert one.views is not None


@pytest.mark.parametrize(("worth", "kept"), [(1e-9, 1), (1e9, 0)])
def test_the_losses_that_are_compared_are_those_of_all_images(worth: float, kept: int) -> None:
    one = fitted(selected(part=30, worth=worth), dark())
    assert isinstance(one, SelectedQuantile)
    assert one.compared[0] == pytest.approx(loss(fitted(plain(), dark()), dark()), rel=1e-4)
    assert one.compared[kept] == pytest.approx(loss(one, dark()), rel=1e-4)
    assert one.alarms()["loss_of_part"] == pytest.approx(one.compared[1], abs=1e-6)


@pytest.mark.parametrize("part", [60, 1000])
def test_with_few_images_it_is_quantile_matching(part: int) -> None:
    one = fitted(selected(part=part), dark())
    assert isinstance(one, SelectedQuantile)
    assert same(one, fitted(plain(), dark()))
    assert one.compared == []
    assert "loss_of_part" not in one.alarms()


def test_the_second_training_does_not_go_on_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the weights of the start and an optimiser without moments."""
    one = selected(part=30)
    start = {name: value.clone() for name, value in one.decorruptor.state_dict().items()}
    fit, seen = Quantile.fit, []

    def watched(self: Quantile, batches: Stream, epochs: int = 0) -> None:
        weights = self.decorruptor.state_dict()
        seen.append(
            (all(torch.equal(weights[name], start[name]) for name in start), len(self.optimizer.state))
        )
        fit(self, batches, epochs)

    monkeypatch.setattr(Quantile, "fit", watched)
    fitted(one, dark())
    assert seen == [(True, 0), (True, 0)]


def test_a_part_is_drawn_at_random_and_keeps_the_order_of_the_set() -> None:
    stream = dark()
    whole = torch.cat(list(stream))
    torch.manual_seed(3)
    part = DrawnImages(stream, 30)
    places = [int((whole == image).flatten(1).all(1).nonzero()[0, 0]) for image in torch.cat(list(part))]
    assert places == sorted(set(places))
    assert len(places) == part.count == 30
    assert places != list(range(30))
    assert [len(x) for x in part] == [25, 5]
    assert len(part) == 2
    visited = torch.cat([positions for positions, _ in part.shuffled()])
    assert sorted(visited.tolist()) == list(range(30))
    for positions, x in part.shuffled():
        assert torch.equal(x, part.images[positions])


def test_a_reset_forgets_the_choice() -> None:
    one = selected(part=30)
    before = {name: value.clone() for name, value in one.decorruptor.state_dict().items()}
    fitted(one, dark())
    one.reset()
    assert one.compared == []
    assert all(torch.equal(value, before[name]) for name, value in one.decorruptor.state_dict().items())


def test_statistics_of_target_images_are_refused() -> None:
    with pytest.raises(ValueError, match="both decorruptors share one classifier; set source"):
        SelectedQuantileConfig(batch_norm="target")
    assert method("quantile_selected") is SelectedQuantile
