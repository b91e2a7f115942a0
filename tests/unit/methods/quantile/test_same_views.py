"""Views that show the same: which there are, what is averaged, and the alarm where they disagree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import each
from tests.unit.made_quantile import classifier, images, prepared, shifted, to_bytes
from ttabench.measure.order_and_batches import Stream
from ttabench.nn.pixels import to_tensor
from ttabench_methods.quantile import Quantile
from ttabench_methods.quantile.paper import QuantilePaper
from ttabench_methods.quantile.same_views import Views
from ttabench_methods.quantile.same_views import shifted as moved


def result(method: Quantile, x: Tensor) -> Views:
    return Views(method.matching, method.matching.features(x), x)


@each(("down", "right"), [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])
def test_an_image_is_moved_by_a_pixel(down: int, right: int) -> None:
    x = torch.rand(2, 3, 6, 5)
    view = moved(x, down, right)
    assert view.shape == x.shape
    inside = torch.roll(x, (down, right), (2, 3))[..., 1:-1, 1:-1]
    assert torch.equal(view[..., 1:-1, 1:-1], inside)


def test_the_mirror_is_a_symmetry_where_mirrored_images_are_as_near_to_the_source() -> None:
    """The classes are told apart by colour, which the mirror leaves; not so where left and right differ."""
    method, x = prepared({}), images(300, 2)[0]
    assert result(method, to_tensor(to_bytes(x))).mirror
    x[:, :, :4] *= 0.5
    lopsided = prepared({}, images_of_source=x)
    assert not result(lopsided, to_tensor(to_bytes(x))).mirror


@pytest.mark.parametrize("mirror", [False, True])
def test_predictions_are_means_of_log_probabilities_over_the_views(mirror: bool) -> None:
    method, x = prepared({}), torch.rand(7, 3, 8, 8)
    views = result(method, x)
    views.mirror = mirror
    seen = list(views.of(x))
    assert len(seen) == (10 if mirror else 5)
    assert torch.equal(seen[0], x)
    expected = sum(classifier()(view).log_softmax(1) for view in seen) / len(seen)
    torch.testing.assert_close(views.average(method.model, x), expected)


def test_offline_they_are_used_as_the_settings_say() -> None:
    stream = Stream(shifted(60)[0], np.arange(60), 60)
    x = next(iter(stream))
    for used in (False, True):
        method = prepared({"views": used, "epochs": 1})
        method.fit(stream)
        assert method.views is not None
        with torch.no_grad():
            single = method.model(method.decorruptor(x)).log_softmax(1)
        assert torch.allclose(method.predict(x).log_softmax(1), single, atol=1e-5) != used
        method.reset()
        torch.testing.assert_close(method.predict(x), classifier()(x))


def test_there_is_an_alarm_where_views_disagree() -> None:
    method = prepared({"epochs": 1})
    method.fit(Stream(shifted(60)[0], np.arange(60), 60))
    assert method.views is not None
    method.views.agreement = 0.9
    assert method.alarms()["alarm"] == ""
    method.views.agreement = 0.5
    assert "only 50%" in method.alarms()["alarm"]
    assert method.alarms()["agreement"] == 0.5
    for agreement, told in ((0.72, False), (0.7199, True)):  # as docs/quantile.md says
        method.views.agreement = agreement
        assert bool(method.alarms()["alarm"]) == told
    assert (Quantile.viewed, QuantilePaper.viewed) == (256, 512)


def test_agreement_is_the_share_of_the_same_class() -> None:
    method, x = prepared({}), torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    views = result(method, x)
    view = x.flip(-1) if views.mirror else moved(x, 0, 1)
    same = classifier()(x).argmax(1) == classifier()(view).argmax(1)
    assert views.agreement == pytest.approx(float(same.float().mean()))
    assert views.agreement > 0
