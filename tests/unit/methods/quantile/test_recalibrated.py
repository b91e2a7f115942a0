"""Quantile matching with recalibrated norm layers: AQR at one end, both at the other, chosen by the loss."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.conformance.nets import images, nets
from ttabench.measure.order_and_batches import Stream
from ttabench.measure.source_access import SourceImages
from ttabench.registry import method
from ttabench_methods.aqr import AQR
from ttabench_methods.quantile import Quantile, QuantileConfig
from ttabench_methods.quantile.recalibrated import SHARES, RecalibratedQuantile, recalibration

SETTINGS = {"epochs": 2, "minibatch": 20, "quantiles_per_class": 10, "lr": 1e-2}
ALL = ("BN CNN", "GN CNN", "LN ViT")


def pixels(x: Tensor) -> np.ndarray:
    return (x.permute(0, 2, 3, 1) * 255).round().byte().numpy()


def made(net: Classifier, kind: type[Quantile] = RecalibratedQuantile, **settings: object) -> Quantile:
    torch.manual_seed(0)
    one = kind(net, QuantileConfig(**{**SETTINGS, **settings}))  # type: ignore[arg-type]
    one.prepare(SourceImages(lambda: pixels(images(200, seed=5)), one.needs_of(one.config)))
    return one


def dark(count: int = 60) -> Stream:
    """Images of a camera with another exposure."""
    return Stream(pixels(0.2 + 0.5 * images(count, seed=7)), np.arange(count), 30)


# Group norm at night: the outputs of its layers have the form of those of batch norm.
@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow if "GN" in name else ()) for name in ALL])
def net(request: pytest.FixtureRequest) -> Classifier:
    return nets()[request.param]


def losses(one: RecalibratedQuantile, stream: Stream) -> dict[float, float]:
    """The quantile loss of the recalibrated features at each share, computed here."""
    result = {}
    with torch.no_grad(), recalibration(one.model, one.quantiles):
        for share in SHARES:
            changed = [x + share * (one.decorruptor(x) - x) for x in stream]
            features = torch.cat([one.model.features(x) for x in changed])
            result[share] = one.matching.loss_of(features / one.matching.unit)
    return result


def test_the_share_has_the_lowest_loss_and_is_forgotten_by_a_reset(net: Classifier) -> None:
    one = made(net)
    assert isinstance(one, RecalibratedQuantile)
    one.fit(dark())
    expected = losses(one, dark())
    assert len(set(expected.values())) == len(SHARES)  # so that the choice is one
    assert expected[one.share] == pytest.approx(min(expected.values()), rel=1e-4)
    assert one.alarms()["share"] == one.share
    one.share = 0.25
    one.reset()
    assert one.share == 1.0


def test_at_share_0_it_is_aqr_and_at_1_aqr_on_decorrupted_images(net: Classifier) -> None:
    one, stream = made(net, views=False), dark()
    assert isinstance(one, RecalibratedQuantile)
    one.fit(stream)
    aqr = AQR(net)
    aqr.prepare(SourceImages(lambda: pixels(images(200, seed=5)), AQR.needs))
    x = next(iter(stream))
    one.share = 0.0
    assert torch.equal(one.predict(x), aqr.predict(x))
    one.share = 1.0
    with torch.no_grad():
        decorrupted = one.decorruptor(x)
    assert torch.equal(one.predict(x), aqr.predict(decorrupted))
    assert not torch.equal(one.predict(x), aqr.predict(x))


def test_the_decorruptor_is_that_of_quantile_matching(net: Classifier) -> None:
    one, plain = made(net), made(net, Quantile)
    for fitted in (one, plain):
        torch.manual_seed(1)
        fitted.fit(dark())
    for mine, theirs in zip(one.decorruptor.parameters(), plain.decorruptor.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_outside_the_block_the_network_is_as_it_was(net: Classifier) -> None:
    one = made(net)
    assert isinstance(one, RecalibratedQuantile)
    x = next(iter(dark()))
    with torch.no_grad():
        before = one.model(x)
        with recalibration(one.model, one.quantiles):
            inside = one.model(x)
        with pytest.raises(RuntimeError, match="stop"), recalibration(one.model, one.quantiles):
            raise RuntimeError("stop")
        assert torch.equal(one.model(x), before)
        assert torch.equal(copy.deepcopy(one.model)(x), before)
    assert not torch.allclose(inside, before, atol=1e-3)


def test_online_each_batch_has_its_share() -> None:
    one = made(nets()["BN CNN"])
    assert isinstance(one, RecalibratedQuantile)
    for x in dark():
        logits = one.adapt(x)
        assert one.share in SHARES
        assert torch.equal(logits, one.predict(x))


def test_both_papers_are_cited_and_what_it_reads_is_declared() -> None:
    assert method("quantile_aqr") is RecalibratedQuantile
    cited = RecalibratedQuantile.papers_of(QuantileConfig())
    assert cited == (Quantile.paper, AQR.paper)
    needs = RecalibratedQuantile.needs_of(QuantileConfig())
    assert (needs.gradient, needs.source_data) == (True, "features")
    assert needs.source_statistics == ("channels", "quantiles")
    assert RecalibratedQuantile.needs_of(QuantileConfig(batch_norm="target")).norm_layers == ("batch",)
