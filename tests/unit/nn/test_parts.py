"""Small parts that methods share: moments, outputs by channel, optimisers, and what TENT's kin adapt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tests.unit.prepared_methods import ready
from ttabench import nn as tta
from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.method import Architecture, Needs, Paper


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# ---- moments


@pytest.mark.parametrize("sizes", [(7,), (1, 6), (2, 4, 1), (1, 1, 1, 1, 3)])
def test_moments_of_parts_are_those_of_all_rows(sizes: tuple[int, ...]) -> None:
    rows = torch.randn(7, 3, dtype=torch.float64) + 5
    variance, covariance = tta.RunningMoments("variance"), tta.RunningMoments("covariance")
    for part in rows.split(sizes):
        variance.add(part)
        covariance.add(part)
    assert variance.count == covariance.count == 7
    torch.testing.assert_close(variance.mean, rows.mean(0))
    torch.testing.assert_close(variance.second(), rows.var(0, correction=0))
    torch.testing.assert_close(variance.second(1), rows.var(0, correction=1))
    torch.testing.assert_close(covariance.mean, rows.mean(0))
    torch.testing.assert_close(covariance.second(), torch.cov(rows.T, correction=0))
    torch.testing.assert_close(covariance.second(1), torch.cov(rows.T, correction=1))


def test_two_rows_have_one_degree_of_freedom() -> None:
    moments = tta.RunningMoments("variance")
    moments.add(torch.tensor([[0.0], [2.0]]))
    assert (moments.second(1).item(), moments.second().item()) == (2.0, 1.0)


def test_the_moments_of_one_row_have_no_spread_and_those_of_images_keep_their_shape() -> None:
    moments = tta.RunningMoments("variance")
    moments.add(torch.ones(1, 2))
    assert moments.second(1).tolist() == [0.0, 0.0]
    images = torch.randn(5, 3, 4, 4)
    moments = tta.RunningMoments("variance")
    moments.add(images)
    torch.testing.assert_close(moments.second(), images.var(0, correction=0))


def test_channel_moments_are_biased_unless_told_otherwise_and_0_for_one_value() -> None:
    x = torch.randn(6, 3, 4, dtype=torch.float64)
    rows = x.transpose(0, 1).flatten(1)
    for statistics, correction in (("batch", 0), ("unbiased", 1)):
        mean, variance = tta.channel_moments(x, statistics)
        torch.testing.assert_close(mean, rows.mean(1))
        torch.testing.assert_close(variance, rows.var(1, correction=correction))
    assert tta.channel_moments(x[:1, :, :1], "unbiased")[1].tolist() == [0.0] * 3
    torch.testing.assert_close(tta.channel_moments(x)[1], rows.var(1, correction=0))


@pytest.mark.parametrize("kind", ["variance", "covariance"])
def test_moments_have_the_precision_of_the_rows_also_under_autocast(kind: Any) -> None:
    rows = torch.randn(16, 3)
    plain, half = tta.RunningMoments(kind), tta.RunningMoments(kind)
    assert half.count == 0
    plain.add(rows)
    with torch.autocast("cpu", torch.bfloat16):
        half.add(rows)
    assert half.spread.dtype == torch.float32
    assert torch.equal(half.spread, plain.spread)


def test_the_unbiased_variance_of_two_values_is_divided_by_one() -> None:
    x = torch.tensor([1.0, 4.0]).view(2, 1)
    assert tta.channel_moments(x, "unbiased")[1].item() == pytest.approx(4.5)
    assert tta.channel_moments(x)[1].item() == pytest.approx(2.25)


# ---- outputs


class LayerNorm2d(nn.LayerNorm):
    """As timm has it: channels are not last."""


def test_outputs_by_channel() -> None:
    tokens = torch.randn(2, 5, 3)
    result = tta.by_channel(nn.LayerNorm(3), tokens)
    assert result.shape == (10, 3, 1)
    assert torch.equal(result[:, :, 0], tokens.reshape(10, 3))
    maps = torch.randn(2, 3, 4, 5)
    for layer in (nn.BatchNorm2d(3), nn.GroupNorm(1, 3), LayerNorm2d(3)):
        assert torch.equal(tta.by_channel(layer, maps), maps.reshape(2, 3, 20))
    assert tta.by_channel(nn.BatchNorm1d(3), maps[:, :, 0, 0]).shape == (2, 3, 1)


# ---- losses and updates


def test_the_stabilised_entropy_has_the_floor_inside_the_logarithm() -> None:
    logits = torch.randn(4, 5)
    p = logits.softmax(1)
    torch.testing.assert_close(tta.stabilised_entropy(logits), -(p * (p + 1e-6).log()).sum(1))
    half = tta.stabilised_entropy(logits.bfloat16())
    assert (half.dtype, half.shape) == (torch.float32, (4,))
    # A probability of 0 counts 0, and the floor raises that of 1 by 10⁻⁶.
    sure = tta.stabilised_entropy(torch.tensor([[0.0, -1000.0]], dtype=torch.float64))
    assert sure.item() == pytest.approx(-1e-6, rel=1e-5)


def test_the_mean_of_one_row_is_that_row() -> None:
    values = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    assert tta.masked_mean(values, torch.tensor([False, True])).tolist() == [5.0, 7.0]


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("adam", lambda p: torch.optim.Adam(p, 0.1, betas=(0.8, 0.999), weight_decay=0.3)),
        ("adamw", lambda p: torch.optim.AdamW(p, 0.1, betas=(0.8, 0.999), weight_decay=0.3)),
        ("sgd", lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, weight_decay=0.3)),
        ("nesterov", lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, weight_decay=0.3, nesterov=True)),
    ],
)
def test_an_optimiser_is_torchs_with_all_settings(kind: str, reference: Any) -> None:
    ours, theirs = (nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    made, expected = tta.make_optimizer(kind, [ours], 0.1, 0.8, 0.3), reference([theirs])
    for _ in range(4):
        for parameter, optimizer in ((ours, made), (theirs, expected)):
            tta.minimise((parameter**3).sum(), optimizer)
    torch.testing.assert_close(ours, theirs)
    assert made.defaults["fused"]  # one operation for many small parameters


def test_an_optimiser_has_momentum_and_no_decay_by_default_and_other_kinds_are_refused() -> None:
    made = tta.make_optimizer("sgd", [nn.Parameter(torch.zeros(1))], 0.1)
    assert (made.defaults["momentum"], made.defaults["weight_decay"], made.defaults["dampening"]) == (
        0.9,
        0,
        0,
    )
    with pytest.raises(UserError) as problem:
        tta.make_optimizer("adm", [], 0.1)
    assert str(problem.value) == "optimizer is 'adm'; expected adam, adamw, sgd or nesterov."


def test_a_moving_average_is_a_mixture_and_begins_with_the_first_value() -> None:
    new = torch.tensor([4.0], requires_grad=True)
    first = tta.moving_average(None, new)
    assert (first.item(), first.requires_grad) == (4.0, False)
    assert tta.moving_average(torch.tensor([2.0]), new).item() == pytest.approx(0.9 * 2 + 0.1 * 4)
    assert tta.moving_average(torch.tensor([2.0]), new, 0.25).item() == pytest.approx(0.25 * 2 + 0.75 * 4)


# ---- batch norm


def test_a_replaced_layer_uses_the_batch_alone_and_lets_gradients_through() -> None:
    source = nn.BatchNorm2d(3, affine=False).train()
    layer = tta.AdaptiveBatchNorm(source)
    assert (layer.weight, layer.bias, layer.affine, layer.training) == (None, None, False, True)
    assert (layer.running_mean, layer.running_var) == (None, None)
    x = (3 * torch.randn(4, 3, 2, 2) + 1).requires_grad_()
    torch.testing.assert_close(layer(x), source(x))
    mixed = tta.AdaptiveBatchNorm(nn.BatchNorm2d(3, affine=False).eval(), weight=0.5)
    assert not mixed.training
    (gradient,) = torch.autograd.grad(mixed(x).square().sum(), x)
    fixed = tta.AdaptiveBatchNorm(nn.BatchNorm2d(3, affine=False), weight=0.5, gradient=False)
    (without,) = torch.autograd.grad(fixed(x).square().sum(), x)
    assert not torch.allclose(gradient, without)


def test_a_replaced_layer_keeps_size_stability_constant_and_parameters() -> None:
    source = nn.BatchNorm2d(3, eps=0.5)
    nn.init.uniform_(source.weight)
    layer = tta.AdaptiveBatchNorm(source)
    assert (layer.num_features, layer.eps, layer.affine) == (3, 0.5, True)
    assert (layer.weight, layer.bias) == (source.weight, source.bias)
    assert [name for name, _ in layer.named_buffers()] == []
    x = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(layer.eval()(x), source.train()(x))
    plain = tta.AdaptiveBatchNorm(nn.BatchNorm2d(3, affine=False))
    assert (plain.weight, plain.bias, list(plain.parameters())) == (None, None, [])
    assert layer.mix == plain.mix == 1.0


@pytest.mark.parametrize("statistics", ["median", "unbiased"])
def test_a_replaced_layer_normalises_with_the_statistics_asked_for(statistics: str) -> None:
    x = torch.randn(5, 3, 2, 2).exp()
    centre, spread = tta.channel_moments(x, statistics)
    source = nn.BatchNorm2d(3)
    expected = nn.functional.batch_norm(x, centre, spread, source.weight, source.bias, eps=source.eps)
    torch.testing.assert_close(tta.AdaptiveBatchNorm(source, statistics)(x), expected)


@pytest.mark.parametrize("absent", ["running_mean", "running_var"])
def test_a_layer_with_half_of_its_stored_statistics_cannot_be_mixed(absent: str) -> None:
    layer = nn.BatchNorm2d(3)
    setattr(layer, absent, None)
    with pytest.raises(UserError) as refused:
        tta.AdaptiveBatchNorm(layer, weight=0.5)
    assert str(refused.value) == (
        "a BatchNorm2d layer of the model has no stored statistics to mix with; "
        "use only the statistics of the batch, or another model."
    )


def test_gradients_flow_through_the_statistics_of_a_whole_network_unless_told_otherwise() -> None:
    gradients = []
    for options in ({}, {"gradient": True}, {"gradient": False}):
        model = nn.Sequential(nn.BatchNorm2d(3))
        tta.adapt_batch_norm(model, weight=0.5, **options)
        torch.manual_seed(0)
        x = torch.randn(4, 3, 2, 2).requires_grad_()
        gradients += torch.autograd.grad(model(x).square().sum(), x)
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.allclose(gradients[0], gradients[2])


def test_estimating_batch_norm_leaves_other_norm_layers_alone() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), nn.InstanceNorm2d(4, track_running_stats=True)).eval()
    nn.init.ones_(model[1].running_mean)
    tta.estimate_batch_norm(model, [torch.randn(8, 4, 3, 3) + 2])
    assert model[1].running_mean.tolist() == [1.0] * 4
    assert model[0].running_mean.mean() > 1


def test_layers_of_one_kind_are_counted() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.LayerNorm(4))
    assert tta.describe(model, tta.norm_affine(model)) == "2 BatchNorm2d, 1 LayerNorm (24 parameters)"
    assert tta.describe(model, {}) == "nothing (0 parameters)"


def test_running_statistics_are_torchs_own_with_another_momentum() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.LayerNorm(2))
    tta.use_running_statistics(net, "batch", 0.3)
    assert type(net[0]) is nn.BatchNorm2d
    assert net[0].momentum == 0.3
    assert not hasattr(net[1], "momentum")
    median = nn.Sequential(nn.BatchNorm2d(3))
    tta.use_running_statistics(median, "median", 0.3)
    layer = median[0]
    assert (layer.statistics, layer.mix, layer.track, layer.momentum) == ("median", 0.3, True, 0.3)


# ---- source images


def test_source_images_are_asked_for_in_random_order() -> None:
    class Given:
        def batches(self, *asked: Any, **named: Any) -> Any:
            return iter([(asked, named)])

    assert list(tta.source_batches(Given(), 5, 9)) == [((5, 9), {"shuffle": True})]  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=r"^this method needs clean source images; pass source data to prepare\(source\)\.$"
    ):
        tta.source_batches(None, 5, 9)


# ---- methods that learn norm layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(tta.NormSettings):
    pass


ONE, TWO = (
    Paper(key=key, title=key, authors="A, B", venue="ICLR", year=2021) for key in ("one", "two")
)  # fmt: skip


class Learner(tta.NormAdapter[Settings]):
    name = "learner"
    Config = Settings
    paper = ONE
    needs: ClassVar[Needs] = Needs(source_data="images")
    median_paper = TWO
    skip: ClassVar[tuple[str, ...]] = ()

    def setup(self, source: Any) -> None:
        self.collect(self.skip, weight_decay=0.25)

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)


def net() -> Classifier:
    body = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 2)
    )
    return Classifier(body, last="4")


def arch(*kinds: Any, classes: int = 10) -> Architecture:
    return Architecture(norm_layers=kinds, num_classes=classes)


def test_what_is_learnt_and_how() -> None:
    method = ready(Learner(net(), Settings(norms="all", optimizer="sgd", lr=0.5, momentum=0.7)))
    assert [p.numel() for p in method.parameters.values()] == [4] * 4
    assert method.adapted() == "1 BatchNorm2d, 1 GroupNorm (16 parameters)"
    (group,) = method.optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.5, 0.7, 0.25)
    assert [id(p) for p in group["params"]] == [id(p) for p in method.parameters.values()]
    assert all(p.requires_grad for p in method.parameters.values())
    batch = ready(Learner(net(), Settings(statistics="median")))
    assert batch.adapted() == "1 BatchNorm2d (8 parameters)"
    layer = next(m for m in batch.model.modules() if isinstance(m, tta.AdaptiveBatchNorm))
    assert (layer.statistics, layer.mix, layer.prior, layer.track) == ("median", 1.0, 0.0, False)


def test_weights_decay_only_where_a_method_says_so() -> None:
    class Plain(Learner):
        def setup(self, source: Any) -> None:
            self.collect()

    method = ready(Plain(net(), Settings(optimizer="adamw")))
    assert method.optimizer.param_groups[0]["weight_decay"] == 0


def test_layers_can_be_left_out() -> None:
    class Skips(Learner):
        skip = tuple(name for name, _ in tta.norm_modules(net(), "batch"))

    method = ready(Skips(net(), Settings(norms="all")))
    assert method.adapted() == "1 GroupNorm (8 parameters)"
    with pytest.raises(UserError, match="the model has no batch norm layer with a weight or bias to adapt"):
        Skips(net(), Settings()).prepare()


def test_needs_are_the_kinds_of_norm_that_are_adapted() -> None:
    every = ("batch", "group", "layer", "instance")
    for settings, kinds in (
        (Settings(), ("batch",)), (Settings(norms="all"), every),
        (Settings(norms="all", statistics="median"), ("batch",)),
    ):  # fmt: skip
        assert Learner.needs_of(settings) == Needs(source_data="images", norm_layers=kinds)
    assert (tta.norm_needs("all"), tta.norm_needs("batch")) == (every, ("batch",))


def test_models_without_batch_norm_get_all_norms_and_transformers_their_rate() -> None:
    assert Learner.for_architecture(arch("batch", "layer")) == {}
    assert Learner.for_architecture(arch("layer")) == {"norms": "all"}

    class Rates(Learner):
        vit_lr = 0.1

    class ImageNet(Learner):
        imagenet_vit_lr = 0.2

    assert Rates.for_architecture(arch("layer")) == {"norms": "all", "lr": 0.1}
    assert Rates.for_architecture(arch("group")) == {"norms": "all"}
    assert Rates.for_architecture(arch("batch")) == {}
    assert ImageNet.for_architecture(arch("layer", classes=1000)) == {"norms": "all", "lr": 0.2}
    assert ImageNet.for_architecture(arch("layer", classes=999)) == {"norms": "all"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class AllNorms(Settings):
        norms: Any = "all"

    class Every(Learner):
        Config = AllNorms

    assert Every.for_architecture(arch("layer")) == {}


def test_the_median_adds_its_paper() -> None:
    assert Learner.papers_of(Settings()) == (ONE,)
    assert Learner.papers_of(Settings(statistics="median")) == (ONE, TWO)
    assert tta.NormAdapter.median_paper is None
