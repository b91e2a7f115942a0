"""Shared mechanics: what is true of each, whatever its code looks like."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tests.unit.network_variants import NormAct
from ttabench import nn as tta
from ttabench.conformance.nets import DropPath, images, nets
from ttabench.errors import UserError

STATISTICS = ("batch", "median")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def trained(channels: int = 3, layer: type[nn.Module] = nn.BatchNorm2d) -> nn.Module:
    """A batch norm in eval mode, with an affine part and statistics of its own, in float64."""
    made = layer(channels).double().eval()
    with torch.no_grad():
        for tensor in (made.weight, made.bias, made.running_mean):
            tensor.normal_()
        made.running_var.uniform_(0.5, 2)
    return made


def replaced(layer: nn.Module, **how: object) -> tta.AdaptiveBatchNorm:
    body = nn.Sequential(copy.deepcopy(layer))
    tta.adapt_batch_norm(body, **how)
    return body[0]


def some(*shape: int) -> Tensor:
    return 2 * torch.randn(*shape, dtype=torch.float64) + 1


# ---- statistics


@pytest.mark.parametrize(("layer", "shape"), [(nn.BatchNorm2d, (6, 3, 4, 5)), (nn.BatchNorm1d, (6, 3))])
@pytest.mark.parametrize("training", [True, False])
def test_batch_statistics_are_those_of_training_mode(
    layer: type[nn.Module], shape: tuple[int, ...], training: bool
) -> None:
    source = trained(3, layer)
    ours = replaced(source).train(training)
    x = some(*shape).requires_grad_()
    y = x.detach().clone().requires_grad_()
    weight = torch.randn(shape, dtype=torch.float64)
    out, expected = ours(x), source.train()(y)
    torch.testing.assert_close(out, expected)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.weight.grad, source.weight.grad)


@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_single_value_per_channel_leaves_the_bias(statistics: str) -> None:
    source = trained(3, nn.BatchNorm1d)
    out = replaced(source, statistics=statistics)(some(1, 3))
    torch.testing.assert_close(out, source.bias[None])


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("how", [{"weight": 0.3}, {"prior": 14.0}])
def test_a_mixture_is_linear_in_the_moments(statistics: str, how: dict[str, float]) -> None:
    source, x = trained(), some(6, 3, 4, 4)
    w = how.get("weight", 6 / (6 + 14))  # prior N: n / (N + n)
    m, v = tta.channel_moments(x, statistics)
    expected = F.batch_norm(
        x,
        (1 - w) * source.running_mean + w * m,
        (1 - w) * source.running_var + w * v,
        source.weight,
        source.bias,
    )
    layer = replaced(source, statistics=statistics, **how)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer.train()(x), expected)  # nothing was stored, in neither mode


def test_the_ends_of_the_mixture_are_source_and_batch() -> None:
    source, x = trained(), some(6, 3, 4, 4)
    torch.testing.assert_close(replaced(source, weight=0.0)(x), source(x))
    torch.testing.assert_close(replaced(source, prior=1e12)(x), source(x))
    torch.testing.assert_close(replaced(source, prior=1e-12)(x), replaced(source)(x))


@pytest.mark.parametrize("statistics", STATISTICS)
def test_tracked_statistics_move_in_train_mode_only_and_carry_gradient(statistics: str) -> None:
    source, x = trained(), some(6, 3, 4, 4)
    layer = replaced(source, statistics=statistics, weight=0.2, track=True)
    torch.testing.assert_close(layer(x), source(x))
    assert torch.equal(layer.running_mean, source.running_mean)
    m, v = tta.channel_moments(x, statistics)
    out = layer.train()(x)
    mean, var = 0.8 * source.running_mean + 0.2 * m, 0.8 * source.running_var + 0.2 * v
    torch.testing.assert_close(layer.running_mean, mean)
    torch.testing.assert_close(layer.running_var, var)
    assert not layer.running_mean.requires_grad
    torch.testing.assert_close(out, F.batch_norm(x, mean, var, source.weight, source.bias))
    torch.testing.assert_close(layer.eval()(x), out)  # what was stored is what was used

    def fresh(values: Tensor) -> Tensor:
        return replaced(source, statistics=statistics, weight=0.2, track=True).train()(values)

    assert torch.autograd.gradcheck(fresh, (some(3, 3, 2, 2).requires_grad_(),))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=21), st.lists(st.floats(-1e6, 1e6), max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_minority_cannot_move_the_median_out_of_the_rest(clean: list[float], bad: list[float]) -> None:
    bad = bad[: (len(clean) - 1) // 2] if len(clean) > 1 else []
    x = torch.tensor(clean + bad, dtype=torch.float64).view(-1, 1)
    centre, spread = tta.channel_moments(x, "median")
    assert min(clean) <= centre.item() <= max(clean)
    assert centre.item() == sorted(clean + bad)[(len(x) - 1) // 2]  # the lower one of two
    torch.testing.assert_close(spread.item(), ((x - centre) ** 2).mean().item())


def test_moments_of_unknown_statistics() -> None:
    with pytest.raises(UserError, match="batch or median"):
        tta.channel_moments(some(2, 3), "mode")


def test_a_layer_without_stored_statistics_cannot_be_mixed() -> None:
    layer = nn.BatchNorm2d(3, track_running_stats=False)
    with pytest.raises(UserError, match="no stored statistics"):
        replaced(layer, weight=0.5)
    replaced(layer)(torch.rand(2, 3, 4, 4))


@pytest.mark.parametrize("how", [{}, {"statistics": "median"}, {"weight": 0.2, "track": True}])
def test_adapted_layers_survive_pickling_and_half_precision(how: dict[str, object]) -> None:
    layer = replaced(trained().float(), **how).train()
    x = torch.randn(8, 3, 4, 4)
    wide = copy.deepcopy(layer)(x)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), wide)
    narrow = layer(x.bfloat16())
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.float(), wide, atol=0.05, rtol=0.05)


def test_only_batch_norm_is_touched() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Dropout(0.5)).eval()
    before = {name: id(module) for name, module in model.named_modules()}
    affine = model[1].weight
    tta.use_batch_statistics(model)
    changed = [name for name, module in model.named_modules() if id(module) != before[name]]
    assert changed == ["1"]
    assert model[1].weight is affine
    assert not model[3].training


# ---- which layers


def test_norm_affine_finds_weights_and_biases_of_the_kinds_asked_for() -> None:
    model = nn.Sequential(
        nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1), nn.LayerNorm(4, bias=False)
    )
    model.requires_grad_(False)
    assert list(tta.norm_affine(model, "batch")) == ["0.weight", "0.bias"]
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["0.weight", "0.bias"]
    result = tta.norm_affine(model, skip={"1"})
    assert list(result) == ["0.weight", "0.bias", "3.weight"]
    assert tta.describe(model, result) == "1 BatchNorm2d, 1 LayerNorm (12 parameters)"


def test_norm_affine_says_where_there_is_nothing() -> None:
    with pytest.raises(UserError, match="no batch norm layer"):
        tta.norm_affine(nn.Sequential(nn.GroupNorm(2, 4)), "batch")
    with pytest.raises(UserError, match="no norm layer"):
        tta.norm_affine(nn.BatchNorm2d(4, affine=False))


def test_describe_names_the_layers_of_the_model_not_ours() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4))
    tta.use_batch_statistics(model)
    assert tta.describe(model, tta.norm_affine(model)) == "1 BatchNorm2d (8 parameters)"


def test_set_norm_mode_leaves_dropout_and_stochastic_depth_alone() -> None:
    model = nets()["LN ViT"]
    tta.set_norm_mode(model, train=True)
    training = {type(m) for m in model.modules() if m.training}
    assert nn.LayerNorm in training
    assert not training & {nn.Dropout, DropPath}
    tta.set_norm_mode(model, train=False)
    assert not any(m.training for m in model.modules())


@pytest.mark.parametrize(
    ("norms", "statistics", "kinds"),
    [("batch", "batch", 1), ("all", "batch", 4), ("batch", "median", 1), ("all", "median", 1)],
)
def test_norm_needs(norms: str, statistics: str, kinds: int) -> None:
    assert len(tta.norm_needs(norms, statistics)) == kinds
    assert "batch" in tta.norm_needs(norms, statistics)


class Block(nn.Module):
    def __init__(self, norm: str) -> None:
        super().__init__()
        self.add_module(f"{norm}1", nn.LayerNorm(2))
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
        self.add_module(f"{norm}2", nn.LayerNorm(2))


class ViT(nn.Module):
    """Named as timm names its own, or otherwise."""

    def __init__(self, depth: int, blocks: str = "blocks", norm: str = "norm", stem: bool = False) -> None:
        super().__init__()
        if stem:  # a convolutional stem, itself a list of blocks
            self.stem = nn.Sequential(
                *(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)) for _ in range(3))
            )
        self.add_module(blocks, nn.ModuleList(Block(norm) for _ in range(depth)))
        self.add_module(norm, nn.LayerNorm(2))
        self.head = nn.Linear(2, 2)


class ResNet(nn.Module):
    """Stages of residual blocks, with shortcuts that are lists of a convolution and a norm layer."""

    def __init__(self, stages: tuple[int, ...], name: str = "layer", final: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
        for i, depth in enumerate(stages, 1):
            self.add_module(f"{name}{i}", nn.Sequential(*(self.block() for _ in range(depth))))
        if final:
            self.bn = nn.BatchNorm2d(2)

    def block(self) -> nn.Module:
        block = Block("bn")
        block.shortcut = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
        return block


def owners(names: set[str], depth: int) -> set[str]:
    return {".".join(name.split(".")[:depth]) for name in names}


@pytest.mark.parametrize("model", [ViT(12), ResNet((2, 2, 2, 2)), ResNet((3, 4, 23, 3))])
def test_structure_and_names_agree_where_the_names_were_made_for(model: nn.Module) -> None:
    assert tta.top_norms(model)
    assert tta.top_norms(model) == tta.top_norms_by_name(model)


@pytest.mark.parametrize(
    ("model", "depth", "top"),
    [
        (ViT(12, "layers", "ln"), 2, {"layers.9", "layers.10", "layers.11", "ln"}),
        (ViT(7, stem=True), 2, {"blocks.5", "blocks.6", "norm"}),
        (ViT(2), 2, {"blocks.1", "norm"}),
        (ResNet((3, 3, 3)), 1, {"layer3"}),
        (ResNet((4, 4, 4), "block", final=True), 1, {"block3", "bn"}),
        (nn.Sequential(*(nn.BatchNorm2d(2) for _ in range(13))), 1, {"10", "11", "12"}),
        (nn.Sequential(nn.BatchNorm2d(2)), 1, {"0"}),
        (nn.Linear(2, 2), 1, set()),
    ],
)
def test_the_top_is_the_last_stage_or_quarter_and_what_follows(
    model: nn.Module, depth: int, top: set[str]
) -> None:
    assert owners(tta.top_norms(model), depth) == top
    wrapped = nn.Module()
    wrapped.net = model
    assert tta.top_norms(wrapped) == {f"net.{name}" for name in tta.top_norms(model)}


def test_the_top_by_name_sees_through_the_classifier_and_misses_other_names() -> None:
    wrapped = nn.Module()
    wrapped.net = ViT(12)
    assert owners(tta.top_norms_by_name(wrapped), 3) == {
        "net.blocks.9", "net.blocks.10", "net.blocks.11", "net.norm",
    }  # fmt: skip
    assert not tta.top_norms_by_name(ViT(12, "layers", "ln"))


# ---- objectives


def test_entropy_lies_between_nought_and_ln_c() -> None:
    assert tta.entropy(torch.zeros(2, 7)).tolist() == pytest.approx([math.log(7)] * 2)
    assert tta.entropy(torch.tensor([[1e4, 0.0, -1e4]])).tolist() == [0]
    logits = 5 * torch.randn(50, 7)
    h = tta.entropy(logits)
    assert ((h > 0) & (h < math.log(7))).all()
    expected = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(h, expected)
    assert tta.entropy(logits.bfloat16()).dtype == torch.float32


def test_soft_cross_entropy_is_entropy_plus_divergence() -> None:
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(tta.soft_cross_entropy(a, a), tta.entropy(a))
    divergence = F.kl_div(a.log_softmax(1), b.log_softmax(1), log_target=True, reduction="none").sum(1)
    torch.testing.assert_close(tta.soft_cross_entropy(a, b), tta.entropy(b) + divergence)


def test_masked_mean() -> None:
    values = torch.randn(5, 3, requires_grad=True)
    mask = torch.tensor([True, False, True, True, False])
    torch.testing.assert_close(tta.masked_mean(values, mask), values[mask].mean(0))
    torch.testing.assert_close(tta.masked_mean(values[:, 0], mask), values[mask, 0].mean())
    nothing = tta.masked_mean(values, torch.zeros(5, dtype=torch.bool))
    nothing.sum().backward()
    assert not nothing.any()
    assert not values.grad.any()


# ---- updates


def parameters() -> Iterator[nn.Parameter]:
    return (nn.Parameter(torch.randn(n, dtype=torch.float64)) for n in (3, 5))


def test_sharpness_goes_rho_up_the_gradient_and_comes_back_bitwise() -> None:
    theta = list(parameters())
    before = [p.detach().clone() for p in theta]
    (theta[0].sum() * 2 + theta[1].square().sum()).backward()
    gradient = torch.cat([p.grad for p in theta])
    with tta.sharpness(theta, 0.05):
        moved = torch.cat([p.detach() - old for p, old in zip(theta, before, strict=True)])
        assert moved.norm().item() == pytest.approx(0.05, abs=1e-12)
        torch.testing.assert_close(moved / 0.05, gradient / gradient.norm())
        assert all(p.grad is None for p in theta)
        theta[0].sum().backward()
    assert all(torch.equal(p, old) for p, old in zip(theta, before, strict=True))
    assert theta[0].grad.tolist() == [1, 1, 1]


def test_sharpness_without_a_gradient_stays_and_an_error_inside_restores() -> None:
    theta = list(parameters())
    before = [p.detach().clone() for p in theta]
    for p in theta:
        p.grad = torch.zeros_like(p)
    with tta.sharpness(theta, 0.05):
        assert all(torch.equal(p, old) for p, old in zip(theta, before, strict=True))
    theta[0].sum().backward()
    with pytest.raises(RuntimeError, match="inside"), tta.sharpness(theta, 0.05):
        raise RuntimeError("inside")
    assert all(torch.equal(p, old) for p, old in zip(theta, before, strict=True))


def test_moving_average_starts_with_the_first_value() -> None:
    first = torch.tensor([1.0, 2.0], requires_grad=True)
    average = tta.moving_average(None, first)
    assert average.tolist() == [1, 2]
    assert not average.requires_grad
    assert tta.moving_average(average, torch.zeros(2), 0.75).tolist() == [0.75, 1.5]


def test_a_pull_of_the_whole_way_restores_what_became_nan() -> None:
    net = nn.Linear(2, 2)
    parameters = dict(net.named_parameters())
    anchor = tta.snapshot(parameters)
    with torch.no_grad():
        net.weight.fill_(torch.nan)
    tta.pull(parameters, anchor)
    assert torch.equal(net.weight, anchor["weight"])


def test_average_parameters_does_not_drift_where_both_agree() -> None:
    student = nn.Sequential(nn.Linear(40, 40), nn.BatchNorm1d(40))
    teacher = copy.deepcopy(student)
    with torch.no_grad():
        student[1].weight.add_(1)
        student[1].running_mean.add_(1)
    for _ in range(10):
        tta.average_parameters(teacher, student, 0.9)
    assert torch.equal(teacher[0].weight, student[0].weight)
    torch.testing.assert_close(student[1].weight - teacher[1].weight, torch.full((40,), 0.9**10))
    assert not teacher[1].running_mean.any()


def test_make_optimizer() -> None:
    assert tta.make_optimizer("adam", parameters(), 0.1, 0.8).defaults["betas"] == (0.8, 0.999)
    sgd = tta.make_optimizer("sgd", parameters(), 0.1, 0.8, 0.01)
    assert (sgd.defaults["momentum"], sgd.defaults["weight_decay"]) == (0.8, 0.01)
    with pytest.raises(UserError, match="adam, adamw, sgd or nesterov"):
        tta.make_optimizer("lbfgs", parameters(), 0.1)


def test_minimise_takes_one_step_on_this_gradient_alone() -> None:
    theta = nn.Parameter(torch.ones(2))
    theta.grad = torch.full((2,), 100.0)
    tta.minimise((3 * theta).sum(), torch.optim.SGD([theta], 0.1))
    torch.testing.assert_close(theta.detach(), torch.full((2,), 0.7))


def test_source_batches_ask_for_a_source() -> None:
    with pytest.raises(UserError, match="source images"):
        tta.source_batches(None, 8, 0)


def test_adapted_models_run_on_whole_nets() -> None:
    """Batch statistics of a whole net are those of training mode, seen from the logits."""
    model = nets()["BN CNN"]
    x = images(16, seed=5)
    reference = copy.deepcopy(model)
    for module in reference.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    tta.use_batch_statistics(model)
    torch.testing.assert_close(model(x), reference(x))


class NormOdd(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_batch_norm_with_an_activation_keeps_it() -> None:
    x = torch.randn(8, 4, 5, 5)
    model = nn.Sequential(NormAct(4))
    expected = model.train()(x)
    tta.use_batch_statistics(model.eval())
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert float(model(x).detach().min()) == 0.0
    assert set(dict(tta.norm_modules(model))) == {"0"}  # so that what was found before is found after


def test_a_batch_norm_that_does_something_unknown_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        tta.use_batch_statistics(nn.Sequential(NormOdd(4)))
    assert str(refused.value) == (
        "NormOdd at '0' is a batch norm that ttabench does not know; "
        "use nn.BatchNorm2d, or a method that does not change batch norm."
    )


def test_estimated_batch_norm_has_the_statistics_of_the_batches_and_uses_them() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(3, momentum=0.3).eval()
    model, batches = nn.Sequential(layer), [torch.randn(8, 3, 4, 4) * 2 + 1, torch.randn(8, 3, 4, 4)]
    tta.estimate_batch_norm(model, batches)
    means = torch.stack([x.mean((0, 2, 3)) for x in batches]).mean(0)
    variances = torch.stack([x.var((0, 2, 3)) for x in batches]).mean(0)
    torch.testing.assert_close(layer.running_mean, means)
    torch.testing.assert_close(layer.running_var, variances)
    assert not layer.training
    assert layer.momentum == 0.3
    shape = (1, 3, 1, 1)
    expected = (batches[0] - means.view(shape)) / (variances.view(shape) + layer.eps).sqrt()
    torch.testing.assert_close(model(batches[0]), expected)


def test_channel_statistics_are_those_of_all_pixels() -> None:
    torch.manual_seed(0)
    x = torch.rand(17, 3, 5, 4) * torch.tensor([1.0, 2.0, 0.1]).view(1, 3, 1, 1) + 3
    mean, std = tta.channel_statistics(x.split(5))
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(std, x.std((0, 2, 3), correction=0), rtol=1e-3, atol=1e-4)
