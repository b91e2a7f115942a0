"""What of the source methods are served: the right numbers, once, and no more than declared."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.cli._facts import _source_data
from ttabench.conformance.nets import images, nets
from ttabench.errors import UserError
from ttabench.measure import source_statistics
from ttabench.measure.declared_source import STATISTICS, DeclaredSource
from ttabench.measure.source_access import SourceImages, SourceProvider
from ttabench.method import SOURCE_DATA, Method, Needs, NoConfig, SourceData
from ttabench.nn import entropy, norm_modules, on_output
from ttabench.nn.pixels import to_tensor

PIXELS = (images(300, seed=5).permute(0, 2, 3, 1) * 255).round().byte().numpy()
X = to_tensor(PIXELS, "cpu")
LEVELS = (0.01, 0.25, 0.5, 0.9, 0.999)
REQUESTS: dict[str, Callable[[SourceProvider, Classifier], Any]] = {
    "channels": lambda s, _: s.channels(),
    "norm_statistics": lambda s, net: s.norm_statistics(net),
    "quantiles": lambda s, net: s.quantiles(net, LEVELS),
    "gaussian": lambda s, net: s.gaussian(net),
    "class_gaussians": lambda s, net: s.class_gaussians(net),
    "entropies": lambda s, net: s.entropies(net),
    "features": lambda s, net: s.features(net),
    "batches": lambda s, _: s.batches(7),
}
KINDS = dict.fromkeys(REQUESTS, "statistics") | {"features": "features", "batches": "images"}


@pytest.fixture(scope="module")
def tiny() -> dict[str, Classifier]:
    return nets()


def serving(kind: str = "images", memo: Any = None) -> SourceImages:
    return SourceImages(lambda: PIXELS, Needs(source_data=kind), memo=memo)


def outputs(net: Classifier) -> dict[str, Tensor]:
    """Every norm layer's output for all images at once."""
    result: dict[str, Tensor] = {}
    with torch.no_grad(), on_output(dict(norm_modules(net)), lambda name, y: result.update({name: y})):
        net(X)
    return result


# ---- permission and record


@each("request_", REQUESTS)
@each("declared", SOURCE_DATA)
def test_each_kind_grants_itself_and_less(tiny: dict[str, Classifier], declared: str, request_: str) -> None:
    source = serving(declared)
    if SOURCE_DATA.index(declared) >= SOURCE_DATA.index(KINDS[request_]):
        REQUESTS[request_](source, tiny["BN CNN"])
        assert list(source.served.values()) == [300]
    else:
        with pytest.raises(PermissionError, match=KINDS[request_]):
            REQUESTS[request_](source, tiny["BN CNN"])
        assert not source.served


def test_needs_can_declare_each_statistic_and_list_each_in_words() -> None:
    statistics = {name for name, kind in KINDS.items() if kind == "statistics"}
    assert set(STATISTICS) == statistics
    for name in statistics:
        needs = Needs(source_data="statistics", source_statistics=(name,))
        assert _source_data(needs) == f"statistics: {STATISTICS[name]}"
        assert " of " in STATISTICS[name]


def test_needs_know_their_words() -> None:
    with pytest.raises(ValueError, match="'', 'statistics', 'features', 'images'"):
        Needs(source_data="labels")


def test_what_was_served_is_recorded_with_the_most_images(tiny: dict[str, Classifier]) -> None:
    source = serving()
    source.gaussian(tiny["GN CNN"], 40)
    source.gaussian(tiny["GN CNN"], 20)
    source.norm_statistics(tiny["GN CNN"], 1000, per_location=True)
    assert source.served == {
        "mean and covariance of features": 40,
        "mean and variance per channel and location of norm layers": 300,
    }


@each("name", [name for name in REQUESTS if name not in ("channels", "batches")])
def test_a_summary_is_computed_once_and_each_has_its_own_copy(tiny: dict[str, Classifier], name: str) -> None:
    memo: dict[Any, Any] = {}
    first = REQUESTS[name](serving(memo=memo), tiny["BN CNN"])
    (key,) = memo
    kept = memo[key]
    again = REQUESTS[name](serving(memo=memo), tiny["BN CNN"])
    assert memo[key] is kept
    for mine, other in zip(leaves(first), leaves(again), strict=True):
        assert torch.equal(mine, other)
        assert mine.data_ptr() != other.data_ptr()
    REQUESTS[name](serving(memo=memo), tiny["GN CNN"])
    assert memo[key] is not kept  # another classifier


def leaves(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
        return
    for part in value.values() if isinstance(value, dict) else value:
        yield from leaves(part)


# ---- the numbers, against the same from all images at once


@pytest.mark.parametrize("name", ["BN CNN", "GN CNN", "LN ViT"])
def test_norm_statistics_are_those_of_all_images_together(tiny: dict[str, Classifier], name: str) -> None:
    whole = outputs(tiny[name])
    layers = dict(norm_modules(tiny[name]))
    there = serving().norm_statistics(tiny[name], per_location=True)
    each = serving().norm_statistics(tiny[name])
    assert set(there) == set(each) == set(whole)
    for layer, y in whole.items():
        for result, expected in zip(there[layer], (y.mean(0), y.var(0)), strict=True):
            torch.testing.assert_close(result, expected)
        rows = y.flatten(0, 1) if name == "LN ViT" else y.permute(0, 2, 3, 1).flatten(0, 2)
        assert torch.equal(source_statistics.rows(layers[layer], y), rows)
        for result, expected in zip(each[layer], (rows.mean(0), rows.var(0)), strict=True):
            torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", ["norm_statistics", "gaussian", "entropies", "features"])
def test_of_a_network_that_trains_the_summaries_are_those_of_eval_mode(
    tiny: dict[str, Classifier], name: str
) -> None:
    net = copy.deepcopy(tiny["BN CNN"])
    expected = REQUESTS[name](serving(), net.eval())
    before = {key: value.clone() for key, value in net.state_dict().items()}
    net.train()
    assert_same(REQUESTS[name](serving(), net), expected)
    assert net.training
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_summaries_of_some_images_are_not_those_of_all(tiny: dict[str, Classifier]) -> None:
    net = tiny["BN CNN"]
    some = {
        "norm_statistics": lambda s: s.norm_statistics(net, 40), "gaussian": lambda s: s.gaussian(net, 40),
        "class_gaussians": lambda s: s.class_gaussians(net, 40), "entropies": lambda s: s.entropies(net, 40),
        "features": lambda s: s.features(net, 40), "quantiles": lambda s: s.quantiles(net, LEVELS, 40),
    }  # fmt: skip
    for name, request in some.items():
        both = serving()
        REQUESTS[name](both, net)
        assert_same(request(both), request(serving()))


def assert_same(one: Any, other: Any) -> None:
    """The same tensors, or tuples or dictionaries of them."""
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
        return
    assert len(one) == len(other)
    for key in one if isinstance(one, dict) else range(len(one)):
        assert_same(one[key], other[key])


def test_channels_of_layer_norm_are_last_unless_it_is_for_images() -> None:
    class LayerNorm2d(nn.LayerNorm):
        pass

    y = torch.randn(2, 5, 4, 3)
    assert source_statistics.rows(nn.LayerNorm(3), y).shape == (40, 3)
    assert source_statistics.rows(LayerNorm2d(5), y).shape == (24, 5)
    assert source_statistics.rows(nn.BatchNorm2d(5), y).shape == (24, 5)


def test_gaussians_are_those_of_all_features_together(tiny: dict[str, Classifier]) -> None:
    net = tiny["BN CNN"]
    with torch.no_grad():
        z, logits = net.features_and_logits(X)
    mean, covariance = serving().gaussian(net)
    torch.testing.assert_close(mean, z.mean(0))
    torch.testing.assert_close(covariance, z.T.cov(correction=0))
    counts, means, covariances = serving().class_gaussians(net)
    labels = logits.argmax(1)
    assert torch.equal(counts, labels.bincount(minlength=net.num_classes))
    for j in range(net.num_classes):
        ours = z[labels == j]
        expected = ours.mean(0) if len(ours) else torch.zeros_like(mean)
        torch.testing.assert_close(means[j], expected)
        torch.testing.assert_close(covariances[j], ours.T.cov(correction=0) if len(ours) else 0 * covariance)


def test_entropies_are_sorted_and_follow_the_temperature(tiny: dict[str, Classifier]) -> None:
    net = tiny["LN ViT"]
    with torch.no_grad():
        expected = entropy(net(X) / 1.5).sort().values
    torch.testing.assert_close(serving().entropies(net, temperature=1.5), expected)
    assert serving().entropies(net).mean() < expected.mean()


@pytest.mark.parametrize("name", ["BN CNN", "GN CNN", "LN ViT"])
def test_quantiles_are_right_up_to_a_cell_of_the_histogram(tiny: dict[str, Classifier], name: str) -> None:
    layers = dict(norm_modules(tiny[name]))
    result = serving().quantiles(tiny[name], LEVELS)
    for layer, y in outputs(tiny[name]).items():
        rows = source_statistics.rows(layers[layer], y).T.double()
        exact = rows.quantile(torch.tensor(LEVELS).double(), dim=1).T
        cell = (rows.amax(1) - rows.amin(1)) / source_statistics.CELLS
        near = np.sort(rows.numpy(), axis=1)
        step = torch.from_numpy(np.diff(near, axis=1).max(axis=1))  # between neighbours in the tails
        assert ((result[layer] - exact).abs() <= (cell + step)[:, None]).all()
        assert (result[layer].diff(dim=1) >= 0).all()


def test_a_channel_that_never_moves_has_its_value_for_quantiles() -> None:
    counts = torch.tensor([[7, 0, 0, 0]])
    same = torch.tensor([2.5])
    torch.testing.assert_close(
        source_statistics.invert(counts, same, same, (0.1, 0.9)), torch.full((1, 2), 2.5)
    )


@each("name", STATISTICS)
def test_a_statistic_that_a_method_does_not_name_is_refused(name: str) -> None:
    """Tables say what a method was given: nothing may be given that it does not declare."""
    others = tuple(other for other in STATISTICS if other != name)
    needs = Needs(source_data="images", source_statistics=others)
    served = SourceImages(lambda: np.zeros((2, 8, 8, 3), np.uint8), needs)
    source = DeclaredSource(served, needs)
    with pytest.raises(PermissionError, match=rf"source data: {name}\(\), which its Needs do not declare"):
        getattr(source, name)
    assert all(getattr(source, other) == getattr(served, other) for other in (*others, "batches", "served"))


class KeepsItsSource(Method[NoConfig]):
    name = "keeps_its_source"

    def setup(self, source: SourceData | None) -> None:
        self.kept = {"later": source}

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)


def test_a_method_that_keeps_its_source_is_refused_with_a_sentence() -> None:
    needs = Needs(source_data="images")
    source: Any = DeclaredSource(SourceImages(lambda: np.zeros((2, 8, 8, 3), np.uint8), needs), needs)
    with pytest.raises(UserError, match=r"keeps `source` after setup\(\), and reset\(\) cannot restore it"):
        KeepsItsSource(nets()["BN CNN"]).prepare(source)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UserError, match="keeps `source`"):
            copied(source)
