"""Batch statistics and entropy minimisation: the properties their papers state."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.cases import each
from tests.unit.network_variants import NormAct
from ttabench import nn as tta
from ttabench.classifier import Classifier
from ttabench.conformance.nets import CLASSES, images, nets
from ttabench.errors import Alarm, UserError
from ttabench.method import Architecture, Method
from ttabench_methods.bn_stats import BNStats, BNStatsConfig
from ttabench_methods.eata import EATA, EATAConfig
from ttabench_methods.eta import ETA, ETAConfig
from ttabench_methods.fisher import fisher_information
from ttabench_methods.medbn import MedBN
from ttabench_methods.sar import SAR, SARConfig
from ttabench_methods.source import Source
from ttabench_methods.tent import Tent, TentConfig


@dataclass
class Images:
    """Clean source images in order."""

    count: int = 48

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        return iter(images(self.count, seed=3).double()[: limit or None].split(batch_size))

    def features(self, classifier: Classifier, limit: int = 0) -> Tensor:
        raise PermissionError


@pytest.fixture(scope="module")
def made() -> dict[str, Classifier]:
    return {name: net.double() for name, net in nets().items()}


@pytest.fixture(params=["BN CNN", "GN CNN", "LN ViT"])
def net(request: pytest.FixtureRequest, made: dict[str, Classifier]) -> Classifier:
    return made[request.param]


@pytest.fixture
def bn(made: dict[str, Classifier]) -> Classifier:
    return made["BN CNN"]


@pytest.fixture
def x() -> Tensor:
    return images(40, seed=2, shift=0.4).double()


def ready(method: Method[Any]) -> Any:
    method.prepare(Images())
    return method


def usual(cls: type[Method[Any]], net: Classifier, **config: Any) -> Any:
    """A method with its defaults for this net and number of classes."""
    defaults = {**cls.for_dataset("any", CLASSES), **cls.for_architecture(net.architecture())}
    return ready(cls(net, cls.Config(**{**defaults, **config})))


def weights(method: Method[Any]) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in method.model.named_parameters()}


def moved(before: dict[str, Tensor], method: Method[Any]) -> set[str]:
    return {name for name, now in weights(method).items() if not torch.equal(now, before[name])}


# ---- source, batch statistics, MedBN


def test_source_is_the_classifier(net: Classifier, x: Tensor) -> None:
    method = usual(Source, net)
    assert torch.equal(method.adapt(x), net(x))


def test_bn_stats_forget_the_source_statistics(bn: Classifier, x: Tensor) -> None:
    other = copy.deepcopy(bn)
    for name, buffer in other.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.add_(1)
    torch.testing.assert_close(usual(BNStats, bn).adapt(x), usual(BNStats, other).adapt(x))
    half = [ready(BNStats(source, BNStatsConfig(alpha=0.5))).adapt(x) for source in (bn, other)]
    assert not torch.allclose(*half)


def test_bn_stats_run_from_source_to_batch(bn: Classifier, x: Tensor) -> None:
    logits = [ready(BNStats(bn, BNStatsConfig(alpha=alpha))).adapt(x) for alpha in (0, 1e-6, 1 - 1e-6, 1)]
    torch.testing.assert_close(logits[0], bn(x).detach())
    torch.testing.assert_close(logits[1], logits[0], atol=1e-3, rtol=0)
    torch.testing.assert_close(logits[2], logits[3], atol=1e-3, rtol=0)
    prior = ready(BNStats(bn, BNStatsConfig(prior=16.0))).adapt(x)
    torch.testing.assert_close(prior, ready(BNStats(bn, BNStatsConfig(alpha=40 / 56))).adapt(x))


def test_a_minority_moves_medbn_a_bounded_way_and_bn_stats_as_far_as_it_likes(
    bn: Classifier, x: Tensor
) -> None:
    """Centres of the first layer, where 8 of 40 images are ever brighter."""
    for cls, bounded in ((BNStats, False), (MedBN, True)):
        method = usual(cls, bn)
        layer = next(module for _, module in tta.norm_modules(method.model))
        centres: list[Tensor] = []
        layer.register_forward_pre_hook(
            lambda m, i, c=centres: c.append(tta.channel_moments(i[0], m.statistics)[0])
        )
        for brightness in (0, 1e3, 1e4):
            bad = x.clone()
            bad[:8] += brightness
            method.adapt(bad)
        near, far = ((centre - centres[0]).norm().item() for centre in centres[1:])
        assert far == pytest.approx(near if bounded else 10 * near, rel=0.01)


@pytest.mark.parametrize("method", [Tent, EATA, ETA, SAR])
def test_medbn_as_a_statistic(method: type[Method[Any]], bn: Classifier, x: Tensor) -> None:
    """The first scored logits are MedBN's own: the statistics are the only difference."""
    torch.testing.assert_close(usual(method, bn, statistics="median").adapt(x), usual(MedBN, bn).adapt(x))


def test_medians_are_for_batch_norm(made: dict[str, Classifier]) -> None:
    arch = made["LN ViT"].architecture()
    for cls in (Tent, EATA, ETA, SAR):
        config = cls.Config(**{**cls.for_architecture(arch), "statistics": "median"})
        assert cls.needs_of(config).unmet(arch) == "no batch norm"


# ---- TENT

UNDISTURBED: dict[type[Method[Any]], dict[str, Any]] = {
    Tent: {},
    EATA: {},
    ETA: {},
    SAR: {"reset_constant": 0.0},
}


@pytest.mark.parametrize("cls", [Tent, EATA, ETA, SAR])
def test_only_affine_parameters_of_norm_layers_move(
    cls: type[Method[Any]], net: Classifier, x: Tensor
) -> None:
    method = usual(cls, net, lr=0.01, **UNDISTURBED[cls])
    before = weights(method)
    buffers = {name: b.clone() for name, b in method.model.named_buffers()}
    method.adapt(x)
    assert moved(before, method) == set(method.parameters)
    assert {f"{n}.{leaf}" for n, _ in tta.norm_modules(method.model) for leaf in ("weight", "bias")} >= set(
        method.parameters
    )
    assert all(torch.equal(b, buffers[name]) for name, b in method.model.named_buffers())
    assert not any(m.training for m in method.model.modules() if isinstance(m, nn.Dropout))


@pytest.mark.parametrize("cls", [Tent, EATA, ETA, SAR])
def test_the_scored_logits_are_from_before_the_update(
    cls: type[Method[Any]], net: Classifier, x: Tensor
) -> None:
    method = usual(cls, net, lr=0.01, **UNDISTURBED[cls])
    before = method.predict(x)
    torch.testing.assert_close(method.adapt(x), before)
    assert not torch.allclose(method.predict(x), before)


def test_tent_lowers_the_entropy_of_its_batch(net: Classifier, x: Tensor) -> None:
    method = usual(Tent, net, optimizer="sgd", lr=1e-3)
    before = tta.entropy(method.adapt(x)).mean()
    assert tta.entropy(method.predict(x)).mean() < before


def test_tents_steps_are_adaptations_to_the_same_batch(net: Classifier, x: Tensor) -> None:
    three, one = usual(Tent, net, steps=3), usual(Tent, net)
    logits = three.adapt(x)
    for _ in range(3):
        last = one.adapt(x)
    assert torch.equal(logits, last)
    assert all(torch.equal(a, b) for a, b in zip(weights(three).values(), weights(one).values(), strict=True))


def test_norms_are_batch_where_there_is_batch_norm_and_all_elsewhere(made: dict[str, Classifier]) -> None:
    for cls in (Tent, EATA, ETA):
        for name, classifier in made.items():
            arch = classifier.architecture()
            config = cls.Config(**cls.for_architecture(arch))
            assert config.norms == ("batch" if name == "BN CNN" else "all")
            assert not cls.needs_of(config).unmet(arch)
            assert bool(cls.needs_of(cls.Config()).unmet(arch)) == (name != "BN CNN")


def test_norms_of_a_mixed_network() -> None:
    body = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, CLASSES),
    )  # fmt: skip
    classifier = Classifier(body, last="5")
    result = {
        norms: set(ready(Tent(classifier, TentConfig(norms=norms))).parameters) for norms in ("batch", "all")
    }
    assert result["batch"] == {"net.1.weight", "net.1.bias"}
    assert result["all"] == result["batch"] | {"net.2.weight", "net.2.bias"}


@each("cls", [Tent, EATA])
@each(
    ("kinds", "classes", "expected"),
    [
        (("layer",), 1000, 1e-3),
        (("batch",), 1000, 2.5e-4),
        (("group",), 1000, 2.5e-4),
        (("layer",), 10, None),
    ],
)
def test_learning_rate_on_imagenet_is_higher_for_transformers(
    cls: type[Method[Any]], kinds: tuple[str, ...], classes: int, expected: float | None
) -> None:
    arch = Architecture(norm_layers=kinds, num_classes=classes)
    config = cls.Config(**{**cls.for_dataset("any", classes), **cls.for_architecture(arch)})
    assert config.lr == (cls.Config().lr if expected is None else expected)


# ---- EATA


def by_hand(method: EATA, x: Tensor, average: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
    """The gradient EATA's equations ask for, and which samples they keep."""
    e0, config = 0.4 * math.log(CLASSES), method.config
    with torch.enable_grad():
        p = method.model(x).softmax(dim=1)
        h = -(p * p.log()).sum(dim=1)
        kept = h < e0
        if average is not None:
            cosine = p @ average / (p.norm(dim=1) * average.norm())
            kept = kept & (cosine.abs() < config.d_margin)
        loss = ((e0 - h[kept].detach()).exp() * h[kept]).mean()
        gradients = torch.autograd.grad(loss, list(method.parameters.values()))
    return dict(zip(method.parameters, gradients, strict=True)), kept


def test_eta_follows_the_gradient_of_its_weighted_entropy(net: Classifier, x: Tensor) -> None:
    lr = 1e-4
    method = usual(ETA, net, lr=lr, momentum=0.0)
    first, second = x[::2], x[1::2]
    p = method.predict(first).softmax(1)
    _, kept = by_hand(method, first, None)
    assert 0 < kept.sum() < len(first)
    method.adapt(first)
    torch.testing.assert_close(method.average, p[kept].mean(0))
    before, average, p = weights(method), method.average, method.predict(second).softmax(1)
    reliable = by_hand(method, second, None)[1]
    cosines = F.cosine_similarity(average[None], p[reliable])
    middle = (cosines.min() + cosines.max()) / 2  # so that some are redundant, and some not
    method.config = replace(method.config, d_margin=middle.item())
    gradients, kept_then = by_hand(method, second, average)
    assert 0 < kept_then.sum() < reliable.sum()
    method.adapt(second)
    for name, gradient in gradients.items():
        torch.testing.assert_close(before[name] - weights(method)[name], lr * gradient)
    torch.testing.assert_close(method.average, 0.9 * average + 0.1 * p[kept_then].mean(0))
    assert method.alarms()["kept"] == round((kept.sum() + kept_then.sum()).item() / 40, 4)


def test_the_penalty_pulls_back_along_the_fisher_information(net: Classifier, x: Tensor) -> None:
    """EATA's step and ETA's differ by the gradient 2 β ω (θ − θ₀)."""
    lr, beta, away, steps = 0.1, 3.0, 0.01, {}
    for cls, alpha in ((EATA, beta), (ETA, 0.0)):
        method = usual(cls, net, lr=lr, momentum=0.0, fisher_alpha=alpha)
        with torch.no_grad():
            for parameter in method.parameters.values():
                parameter.add_(away)
        before = method.theta().detach().clone()
        method.adapt(x)
        steps[cls] = method.theta().detach() - before
        if cls is EATA:
            fisher = method.fisher
    assert fisher.min() >= 0
    assert fisher.max() > 0
    torch.testing.assert_close(steps[ETA] - steps[EATA], lr * 2 * beta * fisher * away)


class Logits(nn.Module):
    """Logits θ whatever the image: their gradient is known in closed form."""

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = nn.Parameter(theta)

    def forward(self, x: Tensor) -> Tensor:
        return self.theta + x.flatten(1)[:, : len(self.theta)]


def test_fisher_information_of_known_gradients() -> None:
    model = Logits(torch.tensor([0.3, 0.1, -0.2]))
    batches = [torch.randn(n, 3) for n in (4, 2)]
    expected = []
    for x in batches:  # ∂ CE / ∂ logits = softmax − one-hot, averaged over the batch
        logits = model(x).detach()
        expected.append((logits.softmax(1) - F.one_hot(logits.argmax(1), 3)).mean(0).square())
    result = fisher_information(model, [model.theta], batches)
    torch.testing.assert_close(result, torch.stack(expected).mean(0))


def test_redundant_and_unreliable_samples_change_nothing(net: Classifier, x: Tensor) -> None:
    method = usual(ETA, net, lr=0.1)
    method.adapt(x)
    sure = method.average * 1.0
    before, average = weights(method), method.average.clone()
    method.average = method.predict(x[:1]).softmax(1)[0]
    method.adapt(x[:1].repeat(4, 1, 1, 1))  # four times what is already known
    assert not moved(before, method)
    method.average = average
    method.e0 = 0.0
    method.adapt(x)
    assert not moved(before, method)
    assert torch.equal(method.average, sure)


@each("classes", [2, 3, 5, 9, 10, 43, 100, 200, 345, 1000])
@each("cls", [EATA, ETA])
def test_the_margin_for_a_dataset_admits_confident_samples(cls: type[EATA], classes: int) -> None:
    config = cls.Config(**cls.for_dataset("any", classes))
    assert config.d_margin > classes**-0.5
    assert config.d_margin < 1
    assert (config.fisher_alpha == 0) == (cls is ETA)


def test_a_margin_that_rejects_everything_is_told(bn: Classifier, x: Tensor) -> None:
    least = CLASSES**-0.5
    with pytest.warns(Alarm, match=r"d_margin 0\.05 < 1/√C"):
        method = usual(ETA, bn, d_margin=0.05)
    assert "d_margin" in method.alarms()["alarm"]
    with warnings.catch_warnings(action="error"):
        method = usual(ETA, bn, d_margin=least + 1e-6)
    assert method.alarms()["alarm"] == ""
    one_hot, uniform = torch.eye(CLASSES)[0], torch.full((CLASSES,), 1 / CLASSES)
    assert F.cosine_similarity(one_hot, uniform, dim=0).item() == pytest.approx(least)


def test_eta_needs_no_source_and_eata_says_that_it_does(bn: Classifier, x: Tensor) -> None:
    ETA(bn, ETAConfig(d_margin=0.9)).prepare()
    with pytest.raises(UserError, match="source images"):
        EATA(bn, EATAConfig(d_margin=0.9)).prepare()
    assert EATA.needs_of(EATAConfig(fisher_alpha=0.0)).source_data == ""
    assert EATA.needs_of(EATAConfig()).source_data == "images"
    assert ETA.needs_of(ETAConfig()).source_data == ""


# ---- SAR


def test_sar_leaves_the_top_out_where_batch_norms_have_activations() -> None:
    blocks = [nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), NormAct(3)) for _ in range(4)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, CLASSES))
    model = nn.Sequential(nn.Sequential(*blocks), *head)
    method = usual(SAR, Classifier(model, last="3"))
    assert {name.rpartition(".")[0] for name in method.parameters} == {f"net.0.{i}.1" for i in range(3)}


def test_sar_steps_along_the_gradient_found_at_the_sharp_point(net: Classifier, x: Tensor) -> None:
    method = usual(SAR, net, lr=0.1, momentum=0.0, reset_constant=0.0)
    twin = copy.deepcopy(method.model)
    theta = [p for name, p in twin.named_parameters() if name in method.parameters]
    e0 = 0.4 * math.log(CLASSES)

    def entropies() -> Tensor:
        p = twin(x).softmax(dim=1)
        return -(p * p.log()).sum(dim=1)

    h = entropies()
    gradients = torch.autograd.grad(h[h < e0].mean(), theta)
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    before = [p.detach().clone() for p in theta]
    with torch.no_grad():
        for p, g in zip(theta, gradients, strict=True):
            p.add_(0.05 * g / norm)
    second = entropies()
    kept = (h < e0) & (second < e0)
    assert 0 < kept.sum() < len(x)
    gradients = torch.autograd.grad(second[kept].mean(), theta)
    method.adapt(x)
    for p, g, name in zip(before, gradients, method.parameters, strict=True):
        torch.testing.assert_close(p - method.parameters[name].detach(), 0.1 * g)
    torch.testing.assert_close(method.average, second[kept].mean().detach())


def test_sar_leaves_the_top_alone_by_structure_or_by_name(made: dict[str, Classifier]) -> None:
    for name, frozen, left in (("BN CNN", "net.layer4.1", 4), ("LN ViT", "net.norm", 2)):
        method = usual(SAR, made[name])
        owners = {parameter.rpartition(".")[0] for parameter in method.parameters}
        assert frozen not in owners
        assert len(owners) == left
    quirky = usual(SAR, made["LN ViT"], official_quirks=True)  # two blocks: the names stop at the last norm
    assert len(quirky.parameters) == 2 * 4


@pytest.mark.parametrize("quirks", [False, True])
def test_recovery_restores_the_source_and_only_the_official_code_goes_on_doing_so(
    bn: Classifier, x: Tensor, quirks: bool
) -> None:
    method = usual(SAR, bn, lr=0.01, official_quirks=quirks, reset_constant=10.0)
    source = weights(method)
    method.adapt(x)
    assert not moved(source, method)
    assert method.counts["resets"] == 1
    assert (method.average is None) == (not quirks)
    assert bool(method.optimizer.state) == quirks
    method.config = SARConfig(lr=0.01, official_quirks=quirks, reset_constant=0.0)
    method.adapt(x)
    assert moved(source, method) == set(method.parameters)
    assert method.counts["resets"] == 1
    method.e0 = 0.0  # nothing is reliable, so that the average stays as it is
    method.config = SARConfig(lr=0.01, official_quirks=quirks, reset_constant=10.0)
    method.adapt(x)
    assert method.counts["resets"] == (2 if quirks else 1)


@pytest.mark.parametrize("quirks", [False, True])
def test_a_batch_without_reliable_samples_moves_only_the_official_code(
    bn: Classifier, x: Tensor, quirks: bool
) -> None:
    method = usual(SAR, bn, lr=0.01, official_quirks=quirks, reset_constant=0.0)
    method.adapt(x)
    method.e0, before, average = 0.0, weights(method), method.average
    method.adapt(x)
    assert bool(moved(before, method)) == quirks
    assert method.average is average


def test_a_recovery_constant_above_clean_entropy_is_told(bn: Classifier, x: Tensor) -> None:
    clean = bn(x).detach()
    h = tta.entropy(clean)
    mean = float(h[h < 0.4 * math.log(clean.shape[1])].mean())
    assert SAR.needs_of(SARConfig()).source_data == ""
    above, below = (usual(SAR, bn, reset_constant=factor * mean) for factor in (1.01, 0.99))
    assert f"> mean entropy {mean:.3g} of clean images" in above.check(clean)
    assert below.check(clean) == ""
    assert below.check(torch.zeros_like(clean)) == ""  # no reliable image: nothing is known


def test_resets_on_most_batches_are_told(bn: Classifier, x: Tensor) -> None:
    method = usual(SAR, bn, reset_constant=10.0)
    method.adapt(x)
    method.adapt(x)
    assert method.alarms()["resets"] == 2
    assert "reset after 2 of 2 batches" in method.alarms()["alarm"]


@pytest.mark.parametrize("cls", [Tent, EATA, SAR])
@pytest.mark.parametrize("statistics", ["batch", "median"])
def test_reset_is_bitwise_with_either_statistics(
    cls: type[Method[Any]], statistics: str, bn: Classifier, x: Tensor
) -> None:
    method = usual(cls, bn, statistics=statistics, optimizer="adam", lr=0.01, **UNDISTURBED[cls])
    first = [method.adapt(x[:20]), method.adapt(x[20:])]
    method.reset()
    assert all(torch.equal(a, method.adapt(b)) for a, b in zip(first, (x[:20], x[20:]), strict=True))
