"""Mathematical properties of the methods that bring target features or activations to the source's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from tests.cases import each
from tests.unit.prepared_methods import ready
from ttabench.classifier import Classifier
from ttabench.conformance.nets import CLASSES, images, nets
from ttabench.conformance.watched_data import Target, WatchedSource
from ttabench.method import Architecture
from ttabench.nn import by_channel, norm_modules, on_output
from ttabench_methods import aqr
from ttabench_methods.actmad import ActMAD, ActMADConfig, distance
from ttabench_methods.actmad_vit import ActMADViT
from ttabench_methods.batch_moments import batch_moments
from ttabench_methods.coral import CORAL, CORALConfig, coral, noise
from ttabench_methods.neo import NEO, NEOConfig
from ttabench_methods.tca import TCA, TCAConfig, align, most_certain
from ttabench_methods.ttac import TTAC, Anchor, TTACConfig, absorb

TARGET = images(96, seed=2, shift=0.4)


@pytest.fixture(scope="module")
def tiny() -> dict[str, Classifier]:
    return nets()


# ---- NEO


def test_neo_cumulative_mean_is_that_of_all_images_so_far(tiny: dict[str, Classifier]) -> None:
    method = ready(NEO(tiny["LN ViT"]))
    for x in TARGET.split([40, 7, 49]):
        logits = method.adapt(x)
    with torch.no_grad():
        z = tiny["LN ViT"].features(TARGET)
        torch.testing.assert_close(method.mean, z.mean(0))
        torch.testing.assert_close(logits, tiny["LN ViT"].head(z[47:] - z.mean(0)))
    offline = ready(NEO(tiny["LN ViT"]))
    offline.fit(Target(TARGET.split(10)), 3)
    torch.testing.assert_close(offline.mean, z.mean(0))  # each pass sees the same images


def test_neo_undoes_a_shift_of_all_features_where_the_source_is_centred(tiny: dict[str, Classifier]) -> None:
    """Whatever constant is added to the features, logits are those of centred features."""
    net, shift = tiny["GN CNN"], 5.0
    with torch.no_grad():
        z = net.features(TARGET)
        method = ready(NEO(net))
        method.mean = (z + shift).mean(0)
        torch.testing.assert_close(method.centred(z + shift), net.head(z - z.mean(0)), atol=1e-4, rtol=1e-4)


def test_neo_continual_forgets_at_its_rate(tiny: dict[str, Classifier]) -> None:
    method = ready(NEO(tiny["BN CNN"], NEOConfig(form="continual", alpha=0.25)))
    for _ in range(3):
        method.adapt(TARGET)
    with torch.no_grad():
        m = tiny["BN CNN"].features(TARGET).mean(0)
    torch.testing.assert_close(method.mean, m * (1 - 0.75**3))


# ---- ActMAD

SOURCE = images(128, seed=3)  # what conformance's source serves


@pytest.mark.parametrize("name", ["BN CNN", "GN CNN", "LN ViT"])
def test_actmad_loss_is_zero_on_the_source_and_positive_elsewhere(
    tiny: dict[str, Classifier], name: str
) -> None:
    method = ready(ActMAD(tiny[name]), WatchedSource(ActMAD.needs))
    with torch.no_grad():
        assert method.loss(SOURCE) < 1e-5
        assert method.loss(TARGET) > 0.1


@pytest.mark.parametrize("name", ["BN CNN", "GN CNN", "LN ViT"])
def test_actmad_lowers_its_loss_and_leaves_head_and_stored_statistics(
    tiny: dict[str, Classifier], name: str
) -> None:
    method = ready(ActMAD(tiny[name], ActMADConfig(lr=1e-4)), WatchedSource(ActMAD.needs))
    before = method.loss(TARGET).item()
    for _ in range(10):
        scored = method.adapt(TARGET)
    assert method.loss(TARGET) < before
    assert torch.equal(scored, method.predict(TARGET))  # the pass after the update
    kept = dict(tiny[name].named_buffers()) | {"weight": tiny[name].linear.weight}
    now = dict(method.model.named_buffers()) | {"weight": method.model.linear.weight}
    assert all(torch.equal(now[key], kept[key]) for key in kept)


def test_actmad_moments_have_the_right_values_and_gradients() -> None:
    out = torch.randn(7, 3, 2, dtype=torch.double, requires_grad=True)
    for result, expected in zip(batch_moments(out), (out.mean(0), out.var(0)), strict=True):
        torch.testing.assert_close(result, expected)
    assert torch.autograd.gradcheck(batch_moments, (out,))


@pytest.mark.parametrize("chunk", [1, 10, 1 << 17])
def test_moments_do_not_depend_on_how_many_values_are_processed_together(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = torch.randn(4, 5, 3)
    expected = [moment.clone() for moment in batch_moments(out)]
    monkeypatch.setattr("ttabench_methods.batch_moments.CHUNK", chunk)
    assert all(map(torch.equal, batch_moments(out), expected))
    mean, variance = batch_moments(out[:1])
    assert torch.equal(mean, out[0])
    assert not variance.any()


def test_actmad_networks_may_go_on_in_place(tiny: dict[str, Classifier]) -> None:
    """As torchvision's and timm's ResNets do; the gradients are the same."""
    plain = ActMAD(tiny["BN CNN"])
    inplace = ActMAD(copy.deepcopy(tiny["BN CNN"]))
    for module in inplace.model.modules():
        if isinstance(module, torch.nn.ReLU):
            module.inplace = True
    for method in (plain, inplace):
        method.prepare(WatchedSource(ActMAD.needs))
    torch.testing.assert_close(plain.adapt(TARGET), inplace.adapt(TARGET))


def test_actmad_distance_is_half_blind_to_one_image() -> None:
    out, mean, variance = torch.randn(1, 3, 2, 2), torch.zeros(3, 2, 2), torch.ones(3, 2, 2)
    assert torch.equal(distance(out, mean, variance), out.abs().mean())


@each(
    "out",
    [
        torch.randn(6, 5, 4, 3),
        torch.randn(6, 5, 4, 3).to(memory_format=torch.channels_last),
        torch.randn(6, 4, 5).transpose(1, 2),
        torch.randn(5, 6, 4).transpose(0, 1),
        torch.randn(6, 10, 4)[:, ::2],
        torch.randn(6, 1, 4).expand(6, 5, 4),
        torch.randn(6, 7),
    ],
    ids=["contiguous", "channels last", "transposed", "batch inside", "strided", "expanded", "flat"],
)
def test_actmad_distance_and_its_gradient_are_the_same_in_every_layout(out: Tensor) -> None:
    mean, variance = torch.randn(out.shape[1:]), torch.rand(out.shape[1:])
    out = out.double().requires_grad_()
    plain = out.detach().contiguous().requires_grad_()
    expected = (plain.mean(0) - mean).abs().mean() + (plain.var(0) - variance).abs().mean()
    result = distance(out, mean, variance)
    torch.testing.assert_close(result, expected)
    (gradient,) = torch.autograd.grad(result, out)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, plain)[0])


def test_actmad_copies_no_outputs_whose_channels_are_last(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    monkeypatch.setattr(
        "ttabench_methods.actmad.batch_moments", lambda out: seen.append(out.flatten(1)) or batch_moments(out)
    )
    out = torch.randn(6, 5, 4, 3).to(memory_format=torch.channels_last).requires_grad_()
    result = distance(out, torch.zeros(5, 4, 3), torch.ones(5, 4, 3))
    assert seen[0].data_ptr() == out.data_ptr()
    assert torch.autograd.grad(result, out)[0].stride() == out.stride()


def test_actmad_official_rates() -> None:
    rates = {
        name: ActMAD.for_dataset(name, classes).get("lr", ActMADConfig().lr)
        for name, classes in (("cifar10-c", 10), ("cifar100-c", 100), ("imagenet-c", 1000))
    }
    assert rates == {"cifar10-c": 1e-2, "cifar100-c": 1e-3, "imagenet-c": 2.5e-4}


def test_actmad_vit_watches_what_each_block_puts_out(tiny: dict[str, Classifier]) -> None:
    method = ready(ActMADViT(tiny["LN ViT"]), WatchedSource(ActMADViT.needs))
    assert method.names == ["net.blocks.1.norm1", "net.norm"]
    net: Any = method.model.net
    caught: list[Tensor] = []
    hooks = [block.register_forward_hook(lambda _m, _i, out: caught.append(out)) for block in net.blocks]
    with torch.no_grad():
        tokens, _ = method.tokens(TARGET)
        torch.testing.assert_close(
            tokens, torch.cat([net.blocks[1].norm1(caught[0]), net.norm(caught[1])], dim=2)[:, 0]
        )
        assert method.distance(method.tokens(SOURCE)[0]) < 1e-10
        assert method.distance(tokens) > 1e-5
    for hook in hooks:
        hook.remove()


# ---- TTAC


def random_gaussian(seed: int, k: int = 6) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    root = torch.randn(k, k, generator=draw, dtype=torch.double)
    return torch.randn(k, generator=draw, dtype=torch.double), root @ root.T


def test_ttac_divergence_is_both_kullback_leibler_divergences_together() -> None:
    (m0, c0), (m1, c1) = random_gaussian(0), random_gaussian(1)
    bias = torch.tensor(0.3).double()
    result = Anchor(m0, c0, bias).divergence(m1, c1)
    ridge = bias * torch.eye(6)
    p, q = MultivariateNormal(m0, c0 + ridge), MultivariateNormal(m1, c1 + ridge)
    torch.testing.assert_close(result, kl_divergence(p, q) + kl_divergence(q, p))
    assert Anchor(m0, c0, bias).divergence(m0, c0).abs() < 1e-9


def test_ttac_running_gaussian_is_that_of_all_features_until_its_length() -> None:
    z = torch.randn(90, 5, dtype=torch.double)
    running = 0, torch.zeros(5).double(), torch.zeros(5, 5).double()
    for part in z.split([30, 17, 43]):
        running = absorb(part, running, length=90)
    torch.testing.assert_close(running[1], z.mean(0))
    torch.testing.assert_close(running[2], z.T.cov(correction=0))
    forgetful = absorb(z + 10, (0, *running[1:]), length=20)
    torch.testing.assert_close(forgetful[1], (z + 10).mean(0))  # more than its length: all of it


def test_ttac_covariance_stays_one_however_large_the_batch_unless_official() -> None:
    running = 100, torch.zeros(4).double(), torch.eye(4).double()
    z = torch.ones(60, 1).double() * torch.randn(4).double()  # a batch without spread
    for length in (10, 50, 100):
        assert torch.linalg.eigvalsh(absorb(z, running, length)[2]).min() > -1e-9
    assert torch.linalg.eigvalsh(absorb(z, running, 10, official=True)[2]).min() < -1


def test_ttac_learns_towards_the_source(tiny: dict[str, Classifier]) -> None:
    method = ready(TTAC(tiny["GN CNN"], TTACConfig(lr=1e-4, classes=False)), WatchedSource(TTAC.needs))

    def separate() -> float:
        with torch.no_grad():
            z = method.model.features(TARGET)
            return float(method.source.divergence(z.mean(0), z.T.cov(correction=0)))

    before = separate()
    for _ in range(5):
        method.adapt(TARGET)
    assert separate() < before
    assert method.whole[0] == 5 * len(TARGET)


def test_ttac_classes_take_what_is_predicted_with_confidence(tiny: dict[str, Classifier]) -> None:
    first = ready(TTAC(tiny["GN CNN"], TTACConfig(threshold=0.4)), WatchedSource(TTAC.needs))
    first.adapt(TARGET)
    with torch.no_grad():
        p = tiny["GN CNN"](TARGET).softmax(1)
    labels = torch.where(p.amax(1) > 0.4, p.argmax(1), -1)
    counts = {k: n for k, (n, *_) in first.by_class.items()}
    assert counts == {k: int((labels == k).sum()) for k in range(CLASSES)}
    assert sum(counts.values()) > 0


def test_ttac_leaves_out_class_covariances_that_have_no_room() -> None:
    assert TTAC.for_architecture(Architecture(num_classes=1000, num_features=2048)) == {"classes": False}
    assert TTAC.for_architecture(Architecture(num_classes=100, num_features=512)) == {}


# ---- CORAL


def test_coral_noise_is_what_draws_of_the_source_give() -> None:
    mean, covariance = random_gaussian(2, k=4)
    draws = MultivariateNormal(mean, covariance).sample((20_000, 30))
    moments = draws.mean(1), torch.stack([z.T.cov() for z in draws[:4000]])
    result = noise(covariance, 30)
    measured = (
        torch.stack([coral(covariance, c) for c in moments[1]]).mean(),
        (moments[0] - mean).square().mean(),
    )
    for ours, theirs in zip(result, measured, strict=True):
        assert ours.item() == pytest.approx(theirs.item(), rel=0.05)


def test_coral_loss_is_one_and_a_half_scales_on_the_source_and_falls_with_learning(
    tiny: dict[str, Classifier],
) -> None:
    method = ready(CORAL(tiny["LN ViT"], CORALConfig(lr=1e-6)), WatchedSource(CORAL.needs))
    torch.manual_seed(0)
    source = MultivariateNormal(method.mean, method.covariance + 1e-6 * torch.eye(len(method.mean)))
    z = source.sample((2000, 50))
    assert torch.stack([method.loss(part) for part in z]).mean() == pytest.approx(0.05 * 1.5, rel=0.05)
    with torch.no_grad():
        before = method.loss(method.model.features(TARGET))
        for _ in range(10):
            method.adapt(TARGET)
        assert method.loss(method.model.features(TARGET)) < before


# ---- LinearTCA


def test_tca_gradient_is_that_of_the_squared_distance() -> None:
    (_, target), (_, source) = random_gaussian(3), random_gaussian(4)
    w = torch.eye(6, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.Adam([w], 0.01)
    losses = []
    for _ in range(30):
        loss = (w.T @ target @ w - source).square().sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(align(target, source, 30, 0.01), w.detach())
    assert losses[-1] < losses[0]
    torch.testing.assert_close(align(target, target, 30, 0.01), torch.eye(6).double())


def test_tca_supports_are_the_most_certain_of_each_class() -> None:
    torch.manual_seed(0)
    labels, entropies = torch.randint(0, 4, (50,)), torch.rand(50)
    sizes = torch.tensor([3, 0, 100, 1])
    kept = set(most_certain(labels, entropies, sizes).tolist())
    for j, size in enumerate(sizes.tolist()):
        mine = (labels == j).nonzero()[:, 0]
        assert kept & set(mine.tolist()) == set(mine[entropies[mine].argsort()[:size]].tolist())


def test_tca_online_ends_where_offline_is(tiny: dict[str, Classifier]) -> None:
    online, offline = (TCA(tiny["BN CNN"], TCAConfig(filter_k=5)) for _ in range(2))
    for method in (online, offline):
        method.prepare()
    for x in TARGET.split(32):
        logits = online.adapt(x)
    offline.fit(Target(TARGET.split(32)), 4)  # one pass, whatever the epochs
    assert torch.equal(offline.predict(TARGET[-32:]), logits)
    assert len(online.supports) <= 5 * tiny["BN CNN"].num_classes
    with torch.no_grad():
        z = tiny["BN CNN"].features(TARGET)
    torch.testing.assert_close(online.target.second(1), z.T.cov())
    moved = (z - online.target.mean) @ online.map + online.source_mean
    torch.testing.assert_close(moved.mean(0), online.supports.mean(0))  # the supports' mean, exactly


# ---- AQR


def exact(quantiles_of: Tensor) -> Tensor:
    """Quantiles (C, LEVELS) of values (C, n), as the source gives them."""
    return quantiles_of.double().quantile(torch.tensor(aqr.levels()).double(), dim=1).T.to(quantiles_of)


@pytest.mark.parametrize(
    "shift",
    [lambda h: 3 * h - 1, lambda h: h + h**3 / 3, lambda h: h.exp(), lambda h: (h * 2).sinh()],
    ids=["affine", "cubic", "exponential", "sinh"],
)
def test_aqr_recovers_what_an_increasing_shift_has_done_to_each_channel(shift: Any) -> None:
    """The paper's claim for one hidden layer; mean and variance alone cannot, unless the shift is affine."""
    torch.manual_seed(0)
    h = torch.stack([torch.randn(20_000), torch.rand(20_000) * 4 - 2, torch.randn(20_000).abs() - 1])
    errors = []
    for cells in (32, 512, 16_384):
        x = shift(h).T.unsqueeze(-1).clone()
        result = aqr.recalibrate(x, exact(h), cells, samples=20_000)[..., 0].T
        errors.append(((result - h).square().mean() / h.var()).sqrt().item())
    assert errors[-1] < 0.005
    assert errors[0] >= errors[-1]
    y = shift(h)
    standard = (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)
    matched = standard * h.std(1, keepdim=True) + h.mean(1, keepdim=True)
    moments = ((matched - h).square().mean() / h.var()).sqrt().item()
    assert moments < 1e-5 or errors[-1] < moments / 20


def test_aqr_undoes_a_skewed_shift_as_exactly_as_it_says() -> None:
    h = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0))

    def error(shifted: Tensor, cells: int) -> float:
        x = shifted.T.unsqueeze(-1).clone()
        result = aqr.recalibrate(x, exact(h), cells, aqr.AQRConfig().samples)[..., 0].T
        return float((result - h).square().mean().sqrt())

    assert error(3 * h, aqr.AQRConfig().cells) == pytest.approx(0.035, abs=0.005)  # what the sample allows
    assert error(h.exp(), aqr.AQRConfig().cells) == pytest.approx(0.17, abs=0.02)
    assert error(h.exp(), 512) == pytest.approx(0.04, abs=0.005)


def test_aqr_is_monotone_and_goes_on_beyond_the_sample() -> None:
    torch.manual_seed(0)
    x = torch.randn(500, 2, 8)
    before = x.clone()
    after = aqr.recalibrate(x, exact(torch.randn(2, 4000) * 2 + 1), 64, samples=300)
    assert aqr.sampled(before, 300).shape[1] <= 300
    for c in range(2):
        order = before[:, c].flatten().argsort()
        assert (after[:, c].flatten()[order].diff() >= -1e-5).all()
    assert after[:, 0].amax() > 1 + 2 * 2


@pytest.mark.parametrize("shape", [(6, 5, 4, 4), (7, 3, 5, 2), (30, 40, 1, 1), (9, 4, 1, 1)])
def test_aqr_is_the_same_in_every_memory_format(shape: tuple[int, ...]) -> None:
    """Each value goes through the map of its own channel, wherever it lies."""
    torch.manual_seed(0)
    x = torch.randn(shape) * torch.arange(1, 1 + shape[1])[:, None, None]
    quantiles = exact(torch.randn(shape[1], 500) + 10 * torch.arange(shape[1])[:, None])
    result = [
        aqr.recalibrate(each.flatten(2), quantiles, 16, samples=1000)
        for each in (
            x.clone(),
            x.to(memory_format=torch.channels_last),
            x.transpose(0, 1).clone().transpose(0, 1),
        )
    ]
    alone = [aqr.recalibrate(x[:, [c]].flatten(2), quantiles[[c]], 16, 1000) for c in range(shape[1])]
    for one in result:
        torch.testing.assert_close(one, torch.cat(alone, dim=1))
    assert (result[0].mean((0, 2)) - 10 * torch.arange(shape[1])).abs().max() < 1


def test_aqr_samples_come_from_all_images_rows_and_columns() -> None:
    image, row, column = torch.meshgrid(torch.arange(100), torch.arange(32), torch.arange(32), indexing="ij")
    for values, distinct in ((image, 100), (row, 32), (column, 32)):
        for shape in ((100, 1, 1024), (100 * 1024, 1, 1)):  # as in batch norm, and as tokens in layer norm
            some = aqr.sampled(values.float().view(shape), 2048)[0]
            counts = some.long().bincount()
            assert len(some) == 2048
            assert len(counts) == distinct
            assert counts.min() > 0.6 * 2048 / distinct
            assert counts.max() < 1.5 * 2048 / distinct


@pytest.mark.parametrize("n", [20, 200, 2000])
def test_aqr_tails_are_calibrated_whatever_the_batch_size(n: int) -> None:
    """On the source itself the extremes of n values stay where n values have them, on average.

    Mapping least to least and largest to largest would take them to the ends of all source values.
    """
    draw = torch.Generator().manual_seed(n)
    source = torch.randn(1, 200_000, generator=draw)
    quantiles, extremes = exact(source), []
    for _ in range(200):
        x = torch.randn(n, 1, 1, generator=draw)
        largest = x.max().item()
        extremes.append(aqr.recalibrate(x, quantiles, 128, samples=n).max().item() - largest)
    error = sum(extremes) / len(extremes)
    naive = source.max().item() - torch.randn(200, n, generator=draw).amax(1).mean().item()
    assert abs(error) < 0.25
    assert abs(error) < naive / 4


def test_aqr_leaves_a_constant_channel_and_the_source_as_they_are(tiny: dict[str, Classifier]) -> None:
    result: dict[str, Tensor] = {}
    same = torch.full((10, 1, 4), 3.5)
    assert torch.equal(aqr.recalibrate(same.clone(), exact(torch.randn(1, 100)), 64, 100), same)
    for net in tiny.values():
        method = aqr.AQR(net)
        method.prepare(WatchedSource(aqr.AQR.needs))
        layers = dict(norm_modules(net))
        with torch.no_grad(), on_output(layers, lambda name, out: result.update({name: out.clone()})):
            net(SOURCE)
        for name, out in result.items():
            x = by_channel(layers[name], out)
            y = aqr.recalibrate(x.clone(), method.quantiles[name], 128, x.numel())
            assert (y - x).square().mean() < 0.015**2 * x.var()
        result.clear()


def test_aqr_layers_have_the_sources_quantiles_afterwards(tiny: dict[str, Classifier]) -> None:
    net = tiny["BN CNN"]
    method = aqr.AQR(net, aqr.AQRConfig(samples=100_000))
    method.prepare(WatchedSource(aqr.AQR.needs))
    result: dict[str, Tensor] = {}
    layers = dict(norm_modules(method.model))
    # outside of the method's own hooks, which come later, only the map's result is seen by what follows
    following = {name: method.model.get_submodule(name.rpartition(".")[0])[2] for name in layers}
    with on_output(following, lambda name, out: result.update({name: out})):
        method.adapt(TARGET)
    assert result.keys() == layers.keys()
    for name, out in result.items():
        median = by_channel(layers[name], out).transpose(0, 1).flatten(1).quantile(0.5, dim=1)
        expected = method.quantiles[name][:, aqr.LEVELS // 2].relu()
        assert (median - expected).abs().mean() < 0.01


# ---- what they are served


@each("cls", [NEO, ActMAD, ActMADViT, TTAC, CORAL, TCA, aqr.AQR])
def test_they_belong_together_and_say_what_they_were_served(cls: type, tiny: dict[str, Classifier]) -> None:
    assert cls.family == "alignment"
    method = ready(cls(tiny["LN ViT" if cls.needs.tags else "BN CNN"]), WatchedSource(cls.needs))
    assert bool(method.served) == bool(cls.needs.source_data)
