"""Mathematical properties of LAME, T3A, DeYO, ROID, MEMO, SHOT, FOA and of CMA-ES and AugMix beneath them."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from tests.unit.prepared_methods import ready
from ttabench.classifier import Classifier
from ttabench.conformance.nets import CLASSES, images, nets
from ttabench.conformance.state import difference, snapshot
from ttabench.conformance.watched_data import Target, WatchedSource
from ttabench.errors import UserError
from ttabench.measure.source_access import SourceImages
from ttabench.method import Needs
from ttabench.models.architectures.build import build
from ttabench.nn import AdaptiveBatchNorm, entropy, set_norm_mode
from ttabench_methods import augmix, colour, deyo, lame, memo, roid, shot, t3a
from ttabench_methods.centroids import nearest_centroid
from ttabench_methods.cma_es import CMAES
from ttabench_methods.deyo import DeYO, DeYOConfig
from ttabench_methods.foa import FOA, FOAConfig
from ttabench_methods.lame import LAME, LAMEConfig
from ttabench_methods.memo import MEMO, MEMOConfig
from ttabench_methods.prompts import Prompted, blocks_of
from ttabench_methods.roid import ROID, ROIDConfig
from ttabench_methods.shot import SHOT, SHOTConfig
from ttabench_methods.t3a import T3A, T3AConfig

SEEDS = st.integers(0, 2**16)


@pytest.fixture(scope="module")
def tiny() -> dict[str, Classifier]:
    return nets()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def random_probabilities(seed: int, rows: int, classes: int, sharpness: float = 3.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(rows, classes, generator=draw, dtype=torch.double)).softmax(1)


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


# ---- LAME


def features_and_log_q(seed: int, rows: int = 24) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    features = normalize(torch.randn(rows, 6, generator=draw, dtype=torch.double), dim=1)
    return features, random_probabilities(seed, rows, 5).log()


def lame_objective(log_z: Tensor, log_q: Tensor, w: Tensor) -> Tensor:
    z = log_z.exp()
    return (z * (log_z - log_q)).sum() - (z * (w @ z)).sum() / 2


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(["rbf", "linear"]))
def test_lame_each_step_lowers_the_objective_where_affinities_are_positive_semidefinite(
    seed: int, kind: str
) -> None:
    features, log_q = features_and_log_q(seed)
    w = lame.affinities(features, kind, 5)
    values = [lame_objective(log_q, log_q, w).item()]
    values += [lame_objective(lame.correct(log_q, w, n)[0], log_q, w).item() for n in range(1, 8)]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(values))
    assert values[-1] < values[0]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kind", ["knn", "rbf", "linear"])
def test_lame_affinities_are_as_defined(kind: str, symmetric: bool) -> None:
    """Against plain loops; neighbours of neighbours are not mutual in this batch."""
    features, _ = features_and_log_q(3, rows=9)
    n, k = len(features), 3
    distance = [[float((a - b).norm()) for b in features] for a in features]
    w = torch.zeros(n, n).double()
    if kind == "linear":
        w = features @ features.T
    elif kind == "knn":
        for i, row in enumerate(distance):
            for j in sorted(set(range(n)) - {i}, key=row.__getitem__)[:k]:
                w[i, j] = 1
        assert not torch.equal(w, w.T)
    else:
        sigma = sum(sorted(row)[k - 1] for row in distance) / n  # the image itself counts as the first
        w = (-torch.tensor(distance, dtype=torch.double).square() / (2 * sigma**2)).exp()
    if symmetric:
        w = (w + w.T) / 2
    torch.testing.assert_close(lame.affinities(features, kind, k, symmetric), w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["knn", "rbf", "linear"])
def test_lame_result_is_a_distribution_and_a_fixed_point(kind: str) -> None:
    features, log_q = features_and_log_q(3)
    w = lame.affinities(features, kind, 3, symmetric=True)
    log_z, steps = lame.correct(log_q, w / 4, 200)
    assert steps < 200
    assert torch.allclose(log_z.logsumexp(1), torch.zeros(len(log_z)).double())
    again = torch.log_softmax(log_q + w / 4 @ log_z.exp(), 1)
    assert torch.allclose(again.exp(), log_z.exp(), atol=1e-3)


def test_lame_makes_three_steps_at_least_and_as_many_as_allowed_at_most() -> None:
    features, log_q = features_and_log_q(2)
    assert lame.correct(log_q, torch.zeros(24, 24).double(), 100)[1] == 3  # at rest from the start
    w = lame.affinities(features, "linear", 5)
    assert [lame.correct(log_q, w, n)[1] for n in (1, 2, 5)] == [1, 2, 5]


def test_lame_without_neighbours_changes_nothing(tiny: dict[str, Classifier]) -> None:
    features, log_q = features_and_log_q(1, rows=1)
    assert torch.allclose(lame.correct(log_q, lame.affinities(features, "knn", 5), 100)[0], log_q)
    x = images(7, seed=9)
    for config in (LAMEConfig(affinity="knn", neighbours=1), LAMEConfig(bound=0.0)):
        method = ready(LAME(tiny["BN CNN"], config))
        alone = torch.cat([method.predict(image) for image in torch.split(x, 1)])
        assert torch.allclose(alone.exp(), method.model(x).softmax(1), atol=1e-6)


def test_lame_the_weight_scales_the_affinities(tiny: dict[str, Classifier]) -> None:
    x = images(20, seed=9)
    settings = {"affinity": "linear", "iterations": 4}
    method = LAME(tiny["BN CNN"], LAMEConfig(**settings, bound=0.3))  # type: ignore[arg-type]
    method.prepare()
    with torch.no_grad():
        z, logits = method.model.features_and_logits(x)
    phi = normalize(z, dim=1)
    expected = lame.correct((logits.softmax(1) + 1e-10).log(), 0.3 * phi @ phi.T, 4)[0]
    assert torch.allclose(method.predict(x), expected, atol=1e-4)


def test_lame_with_uniform_affinity_contracts_the_batch_to_its_majority() -> None:
    log_q = random_probabilities(5, 40, 4, sharpness=1.0).log()
    log_z, _ = lame.correct(log_q, torch.ones(40, 40).double(), 100)
    majority = log_q.exp().mean(0).argmax()
    assert (log_z.argmax(1) == majority).all()
    assert log_z.exp().std(0).max() < log_q.exp().std(0).max()


@pytest.mark.parametrize("kind", ["knn", "rbf"])
def test_lame_an_unsure_image_follows_its_cluster(kind: str) -> None:
    centres = torch.eye(3).double()
    features = normalize(centres.repeat_interleave(8, 0) + 0.01 * torch.randn(24, 3).double(), dim=1)
    p = 0.9 * one_hot(torch.arange(3).repeat_interleave(8), 3).double() + 0.1 / 3
    p[0] = torch.tensor([0.4, 0.5, 0.1])
    log_z, _ = lame.correct(p.log(), lame.affinities(features, kind, 5), 100)
    assert p[0].argmax() == 1
    assert log_z.argmax(1).tolist() == [0] * 8 + [1] * 8 + [2] * 8


@pytest.mark.parametrize("kind", ["knn", "rbf", "linear"])
def test_lame_does_not_depend_on_the_order_of_the_batch(tiny: dict[str, Classifier], kind: str) -> None:
    method = LAME(tiny["BN CNN"].double(), LAMEConfig(affinity=kind))  # type: ignore[arg-type]
    method.prepare()
    x, order = images(20, seed=9).double(), torch.randperm(20)
    assert torch.allclose(method.predict(x)[order], method.predict(x[order]), atol=1e-9)
    tiny["BN CNN"].float()


# ---- T3A


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 60), st.integers(1, 6))
def test_t3a_keeps_the_lowest_entropies_of_each_class(seed: int, size: int, count: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (size,), generator=draw)
    entropies = torch.rand(size, generator=draw).mul(8).round()  # with ties: the earlier one stays
    expected = [
        position
        for position in range(size)
        if sum(
            1
            for other in range(size)
            if labels[other] == labels[position]
            and (entropies[other], other) < (entropies[position], position)
        )
        < count
    ]
    assert t3a.most_certain(labels, entropies, count).tolist() == expected


def test_t3a_starts_as_the_normalised_last_layer_and_stays_bounded(tiny: dict[str, Classifier]) -> None:
    method = ready(T3A(tiny["LN ViT"], T3AConfig(filter_k=3)))
    x = images(64, seed=5)
    with torch.no_grad():
        z = method.model.features(x)
    weight = normalize(method.model.linear.weight.detach(), dim=1)
    assert torch.allclose(method.predict(x), z @ weight.T, atol=1e-5)
    for seed in range(6):
        method.adapt(images(32, seed=seed))
        assert int(method.labels.bincount().max()) <= 3
    assert method.labels.bincount().tolist() == [3] * CLASSES
    assert torch.allclose(method.supports.norm(dim=1), torch.ones(3 * CLASSES))


def test_t3a_without_a_filter_does_not_care_how_the_stream_is_cut(tiny: dict[str, Classifier]) -> None:
    x, outcome = images(60, seed=4), []
    for size in (60, 15, 4):
        method = ready(T3A(tiny["BN CNN"], T3AConfig(filter_k=1000)))
        for part in torch.split(x, size):
            method.adapt(part)
        outcome.append(method.predict(x))
    assert torch.allclose(outcome[0], outcome[1], atol=1e-4)
    assert torch.allclose(outcome[0], outcome[2], atol=1e-4)


def test_t3a_the_first_supports_have_the_entropies_that_the_last_layer_gives_them(
    tiny: dict[str, Classifier],
) -> None:
    """They decide which of the first supports are outlived; a bias counts, the length of a row too."""
    model = copy.deepcopy(tiny["BN CNN"])
    with torch.no_grad():
        weight = model.linear.weight
        weight.mul_(1 / weight.norm(dim=1, keepdim=True))  # short rows: the last layer is unsure of them
        model.linear.bias.copy_(torch.linspace(-1, 1, CLASSES))
    method = ready(T3A(model, T3AConfig(filter_k=1)))
    weight, bias = weight.detach(), model.linear.bias.detach()
    p = (weight @ weight.T + bias).softmax(1)
    unsure = torch.special.entr(p).sum(1)
    assert unsure.min() > 0.3
    assert (unsure - torch.special.entr((weight @ weight.T).softmax(1)).sum(1)).abs().max() > 0.1
    assert torch.allclose(method.entropies, unsure, atol=1e-5)
    x = images(64, seed=5)
    with torch.no_grad():
        logits = model(x)
    best = torch.full_like(unsure, torch.inf).scatter_reduce_(0, logits.argmax(1), entropy(logits), "amin")
    assert 0 < int((best < unsure).sum()) < CLASSES  # some outlive the batch, some do not
    method.adapt(x)
    assert torch.allclose(method.entropies[method.labels.argsort()], torch.minimum(unsure, best), atol=1e-5)


def test_t3a_first_labels_are_the_classes_or_officially_what_the_last_layer_says(
    tiny: dict[str, Classifier],
) -> None:
    model = copy.deepcopy(tiny["BN CNN"])
    with torch.no_grad():
        model.linear.bias[2] = 1e6  # everything is of class 2
    labels = []
    for quirks in (False, True):
        method = ready(T3A(model, T3AConfig(official_quirks=quirks)))
        labels.append(method.labels.tolist())
        assert torch.isfinite(method.predict(images(4, seed=1))).all()
    assert labels == [list(range(CLASSES)), [2] * CLASSES]


def test_t3a_prototypes_are_means_and_official_ones_have_length_one(tiny: dict[str, Classifier]) -> None:
    supports, labels = torch.randn(9, 4), torch.tensor([0, 1, 2, 0, 1, 2, 2, 2, 0])
    expected = torch.stack([supports[labels == k].mean(0) for k in range(3)])
    assert torch.allclose(t3a.prototypes(supports, labels, 3), expected)
    made = []
    for quirks in (False, True):
        method = ready(T3A(tiny["BN CNN"], T3AConfig(official_quirks=quirks)))
        method.adapt(images(64, seed=4))
        made.append(method.classify(torch.eye(method.model.num_features)).T)
    paper, official = made
    assert torch.allclose(official.norm(dim=1), torch.ones(CLASSES))
    assert torch.allclose(normalize(paper, dim=1), official, atol=1e-6)
    assert (paper.norm(dim=1) < 1).all()


# ---- DeYO


def test_deyo_shuffling_moves_whole_patches_and_loses_nothing() -> None:
    x = torch.rand(6, 3, 16, 24)
    shuffled = deyo.shuffle_patches(x, 4)

    def patches(image: Tensor) -> list[bytes]:
        return [
            image[:, r : r + 4, c : c + 6].numpy().tobytes() for r in range(0, 16, 4) for c in range(0, 24, 6)
        ]

    orders = []
    for before, after in zip(x, shuffled, strict=True):
        assert sorted(patches(before)) == sorted(patches(after))
        orders.append(tuple(patches(before).index(patch) for patch in patches(after)))
    assert len(set(orders)) == 6  # each image in an order of its own
    assert torch.equal(deyo.shuffle_patches(x, 1), x)
    assert deyo.shuffle_patches(torch.rand(2, 3, 19, 18), 4).shape == (2, 3, 19, 18)


def test_deyo_orders_say_which_patch_goes_where() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4).expand(2, 3, 4, 4)  # four patches of 2 × 2
    shuffled = deyo.shuffle_patches(x, 2, torch.tensor([[2, 0, 3, 1], [0, 1, 2, 3]]))
    # patch 0 (top left) is patch 2 (bottom left) of the image, patch 1 is patch 0, …
    assert shuffled[0, 0].tolist() == [[8, 9, 0, 1], [12, 13, 4, 5], [10, 11, 2, 3], [14, 15, 6, 7]]
    assert torch.equal(shuffled[1], x[1])


def test_deyo_threshold_is_that_of_the_network(tiny: dict[str, Classifier]) -> None:
    limits = {
        name: DeYOConfig(**DeYO.for_architecture(tiny[name].architecture())).plpd_limit
        for name in ("BN CNN", "GN CNN", "LN ViT")
    }
    assert limits == {"BN CNN": 0.3, "GN CNN": 0.2, "LN ViT": 0.2}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, lambda h, plpd: math.exp(1 - h) + math.exp(plpd)),
        ({"entropy_weight": 0.0}, lambda h, plpd: math.exp(plpd)),
        ({"plpd_weight": 0.0}, lambda h, plpd: math.exp(1 - h)),
        (
            {"entropy_weight": 2.0, "plpd_weight": 0.5},
            lambda h, plpd: 2 * math.exp(1 - h) + math.exp(plpd) / 2,
        ),
        ({"entropy_weight": 0.0, "plpd_weight": 0.0}, lambda h, plpd: 1.0),
    ],
    ids=["both", "plpd alone", "entropy alone", "scaled", "none"],
)
def test_deyo_either_weight_can_be_switched_off(
    tiny: dict[str, Classifier], weights: dict[str, float], expected: Callable[[float, float], float]
) -> None:
    method = deyo_on(tiny["GN CNN"], **weights)
    method.e0 = 1.0
    h, plpd = [0.2, 1.5, 0.7], [0.9, -0.3, 0.0]
    result = method.weight(torch.tensor(h), torch.tensor(plpd))
    assert result.tolist() == pytest.approx([expected(a, b) for a, b in zip(h, plpd, strict=True)])


def test_deyo_plpd_is_what_the_predicted_class_loses() -> None:
    p = random_probabilities(1, 50, 6)
    assert torch.equal(deyo.probability_difference(p, p), torch.zeros(50).double())
    removed = p.clone().scatter_(1, p.argmax(1, keepdim=True), 0.0)
    assert torch.equal(deyo.probability_difference(p, removed), p.amax(1))
    other = random_probabilities(2, 50, 6)
    assert deyo.probability_difference(p, other).abs().max() <= 1


def deyo_on(classifier: Classifier, **changed: float | int) -> DeYO:
    method = DeYO(classifier, DeYOConfig(momentum=0.0, lr=0.1, **changed))  # type: ignore[arg-type]
    method.prepare()
    return method


@pytest.mark.parametrize(
    "nothing",
    [{"plpd_limit": 1.0}, {"entropy_factor": 0.0}, {"patches": 1, "plpd_limit": 0.0}],
    ids=["no shape", "no certainty", "nothing destroyed"],
)
def test_deyo_makes_no_step_where_no_image_is_kept(
    tiny: dict[str, Classifier], nothing: dict[str, float]
) -> None:
    method = deyo_on(tiny["GN CNN"], **nothing)
    before = parameters_of(method.model)
    method.adapt(images(32, seed=2).contiguous(memory_format=torch.channels_last))  # as in a stream
    assert method.alarms() == {"kept": 0.0}
    assert all(torch.equal(p, before[name]) for name, p in method.model.named_parameters())


def test_deyo_step_is_the_weighted_entropy_of_all_where_nothing_is_filtered(
    tiny: dict[str, Classifier],
) -> None:
    method = deyo_on(tiny["GN CNN"], plpd_limit=-1.0, entropy_factor=2.0, patches=1)  # PLPD = 0
    twin = deyo_on(tiny["GN CNN"])
    x = images(32, seed=2)
    h = entropy(twin.model(x))
    alpha = torch.exp(0.4 * math.log(CLASSES) - h.detach()) + 1  # e^{Ent₀ − Ent} + e^0
    names = list(twin.parameters)
    gradients = torch.autograd.grad((alpha * h).mean(), [twin.parameters[name] for name in names])
    method.adapt(x)
    for name, gradient in zip(names, gradients, strict=True):
        expected = twin.parameters[name].detach() - 0.1 * gradient
        assert torch.allclose(method.parameters[name], expected, atol=1e-6), name


def test_deyo_leaves_the_last_stage_alone(tiny: dict[str, Classifier]) -> None:
    method = deyo_on(tiny["BN CNN"], plpd_limit=-1.0)
    before = parameters_of(method.model)
    method.adapt(images(32, seed=2))
    moved = {name for name, p in method.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved
    assert not any(name.startswith(("net.layer4", "net.fc")) for name in moved)


# ---- ROID


def test_roid_likelihood_ratio_keeps_pulling_where_entropy_has_stopped() -> None:
    half = torch.tensor([[0.5, 0.5]]).double()
    assert abs(float(roid.slr(half, 0.99))) < 1e-4
    pull = []
    for loss in (lambda z: roid.slr(z.softmax(1), 0.99).sum(), lambda z: entropy(z).sum()):
        logits = torch.tensor([[4.0, 0.0, 0.0]], dtype=torch.double, requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(logits), logits)
        pull.append(float(gradient.norm()))
    assert pull[0] > 3 * pull[1]
    sure = torch.tensor([[0.995, 0.005]], dtype=torch.double, requires_grad=True)
    (gradient,) = torch.autograd.grad(roid.slr(sure, 0.99).sum(), sure)
    assert gradient[0, 0] == 0


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(2, 40))
def test_roid_weights_drop_the_less_diverse_and_are_bounded(seed: int, rows: int) -> None:
    p, average = random_probabilities(seed, rows, 5), random_probabilities(seed + 1, 1, 5)[0]
    w = roid.weights(p, average, 1 / 3)
    diversity = 1 - torch.cosine_similarity(average[None], p)
    kept = w > 0
    assert kept.any()
    assert diversity[kept].min() >= diversity.mean() - 1e-12
    assert w.max() <= math.exp(3) + 1e-9
    assert w[kept].min() >= 1


def test_roid_weights_of_a_batch_without_spread_are_equal() -> None:
    w = roid.weights(random_probabilities(0, 1, 5).expand(4, -1), torch.full((5,), 0.2).double(), 1 / 3)
    assert torch.isfinite(w).all()
    assert w.min() == w.max() > 0


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 300), st.integers(2, 20))
def test_roid_smoothed_prior_is_a_distribution_between_the_mean_and_uniform(
    seed: int, rows: int, classes: int
) -> None:
    p = random_probabilities(seed, rows, classes)
    prior = roid.smoothed_prior(p)
    assert torch.isclose(prior.sum(), torch.ones(()).double())
    uniform = 1 / classes
    assert ((prior - uniform) * (p.mean(0) - uniform) >= -1e-12).all()
    assert ((prior - uniform).abs() <= (p.mean(0) - uniform).abs() + 1e-12).all()


@pytest.mark.parametrize("quirks", [False, True])
def test_roid_prior_correction_favours_the_frequent_class(tiny: dict[str, Classifier], quirks: bool) -> None:
    method = ROID(tiny["GN CNN"], ROIDConfig(official_quirks=quirks))
    logits = torch.tensor([[5.0, 0.0]] * 9 + [[1.0, 1.01]])
    assert logits[-1].argmax() == 1
    assert method.correct(logits)[-1].argmax() == 0
    even = torch.tensor([[5.0, 0.0], [0.0, 5.0]])
    assert torch.equal(method.correct(even).argmax(1), even.argmax(1))


def test_roid_prior_multiplies_probabilities(tiny: dict[str, Classifier]) -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.0, 0.0]]).double()
    p = logits.softmax(1)
    gamma = max(1 / 2, 1 / 3) / p.mean(0).max()  # of a batch of 2 and of 3 classes
    product = p * (p.mean(0) + gamma) / (1 + 3 * gamma)
    result = ROID(tiny["GN CNN"], ROIDConfig()).correct(logits).softmax(1)
    torch.testing.assert_close(result, product / product.sum(1, keepdim=True))


def test_roid_ensembling_with_zero_weight_stays_at_the_source(tiny: dict[str, Classifier]) -> None:
    x = images(32, seed=3)
    distance = {}
    for alpha in (0.0, 0.5, 1.0):
        torch.manual_seed(0)
        method = ready(ROID(tiny["GN CNN"], ROIDConfig(ensemble=alpha)))
        before = parameters_of(method.model)
        method.adapt(x)
        distance[alpha] = sum(
            float((p.detach() - before[n]).norm()) for n, p in method.model.named_parameters()
        )
    assert distance[0.0] == 0
    assert distance[0.5] == pytest.approx(distance[1.0] / 2, rel=1e-3)
    assert distance[1.0] > 0


def test_roid_average_prediction_moves_by_its_momentum(tiny: dict[str, Classifier]) -> None:
    x = images(32, seed=3)
    for momentum in (0.9, 0.25):
        method = ready(ROID(tiny["GN CNN"], ROIDConfig(average_momentum=momentum)))
        mean = method.model(x).softmax(1).mean(0)
        method.adapt(x)
        expected = momentum / CLASSES + (1 - momentum) * mean
        assert torch.allclose(method.average, expected, atol=1e-6)


@pytest.mark.parametrize("consistency", [False, True])
def test_roid_a_short_batch_counts_as_full_only_in_the_official_code(
    tiny: dict[str, Classifier], consistency: bool
) -> None:
    """Without momentum and after a first batch that moved nothing, the step is the gradient alone."""
    x = images(40, seed=3)
    moved = {}
    for quirks in (False, True):
        config = ROIDConfig(
            optimizer="sgd",
            momentum=0.0,
            lr=0.0,
            ensemble=1.0,
            consistency=consistency,
            official_quirks=quirks,
        )
        method = ROID(tiny["GN CNN"], config)
        method.view = lambda x: x.flip(3)
        method.prepare()
        method.adapt(x[:32])
        before = parameters_of(method.model)
        method.optimizer.param_groups[0]["lr"] = 0.01
        method.adapt(x[32:])
        moved[quirks] = [p.detach() - before[name] for name, p in method.model.named_parameters()]
    assert any(step.abs().max() > 1e-4 for step in moved[False])
    for ours, official in zip(moved[False], moved[True], strict=True):
        assert torch.allclose(official, ours * 8 / 32, atol=1e-6)


def test_roid_on_imagenet_is_nesterov(tiny: dict[str, Classifier]) -> None:
    method = ready(ROID(tiny["GN CNN"], ROIDConfig(**ROID.for_dataset("imagenet-c", 1000))))
    (group,) = method.optimizer.param_groups
    assert isinstance(method.optimizer, torch.optim.SGD)
    assert (group["nesterov"], group["lr"], group["momentum"]) == (True, 2.5e-4, 0.9)


def test_the_colours_of_views_change_within_the_published_ranges() -> None:
    """Every step of CoTTA's jitter on its own, at each end of its range and nowhere beyond."""
    ranges = {step.__name__: (low, high) for step, low, high in colour.JITTER}
    assert ranges == {
        "brightness": (0.6, 1.4),
        "contrast": (0.7, 1.3),
        "saturation": (0.5, 1.5),
        "hue": (-0.06, 0.06),
        "gamma": (0.7, 1.3),
    }
    draws = torch.tensor([colour.uniform(0.6, 1.4) for _ in range(2000)])
    assert 0.6 <= draws.min() < 0.605
    assert 1.395 < draws.max() <= 1.4


def test_brightness_of_views_reaches_from_six_tenths_to_fourteen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on images: with the other steps switched off, the mean moves by 0.6 to 1.4 and no further."""
    still = tuple(
        (step, low, high) if step is colour.brightness else (lambda x, _: x.clone(), low, high)
        for step, low, high in colour.JITTER
    )
    monkeypatch.setattr(colour, "JITTER", still)
    x = torch.full((1, 3, 2, 2), 0.5)
    factors = torch.tensor([float(colour.colour_jitter(x).mean()) / 0.5 for _ in range(2000)])
    assert 0.6 - 1e-6 <= factors.min() < 0.605
    assert 1.395 < factors.max() <= 1.4 + 1e-6


def test_roid_views_are_images() -> None:
    x = images(8, seed=1)
    seen = torch.stack([roid.reflected_view(x) for _ in range(4)])
    assert seen.shape == (4, *x.shape)
    assert 0 <= seen.min() < seen.max() <= 1


# ---- MEMO and AugMix


def unaugmented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "augmix", lambda x: x)


def test_memo_marginal_entropy_is_that_of_the_mean_prediction() -> None:
    p = random_probabilities(3, 16, 5)
    result = memo.marginal_entropy(p.log())
    assert torch.isclose(result, torch.special.entr(p.mean(0)).sum())
    assert result >= torch.special.entr(p).sum(1).mean()  # Jensen
    same = p[:1].expand(16, -1)
    assert torch.isclose(memo.marginal_entropy(same.log()), torch.special.entr(p[0]).sum())


@pytest.mark.parametrize("name", ["BN CNN", "GN CNN", "LN ViT"])
def test_memo_lowers_the_entropy_of_every_image(
    tiny: dict[str, Classifier], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unaugmented(monkeypatch)
    still, moved = (MEMO(tiny[name], MEMOConfig(views=2, lr=lr, prior=1e9)) for lr in (0.0, 1e-5))
    still.prepare()
    moved.prepare()
    x = images(6, seed=8, shift=0.4)
    assert (entropy(moved.predict(x)) <= entropy(still.predict(x)) + 1e-6).all()
    assert entropy(moved.predict(x)).mean() < entropy(still.predict(x)).mean()


def test_memo_treats_every_image_by_itself_and_forgets_it(
    tiny: dict[str, Classifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    unaugmented(monkeypatch)
    method = ready(MEMO(tiny["BN CNN"], MEMOConfig(views=3, lr=0.01, steps=2)))
    before = snapshot(method)
    x = images(7, seed=8)
    together = method.adapt(x)
    assert difference(before, snapshot(method)) == ""
    alone = torch.cat([method.adapt(image) for image in torch.split(x.flip(0), 1)]).flip(0)
    assert torch.equal(together, alone)
    source = ready(MEMO(tiny["BN CNN"], MEMOConfig(views=3, lr=0.0)))
    assert (source.predict(x) - together).abs().max() > 1e-3


def test_memo_batch_norm_mixes_in_one_seventeenth_of_the_batch(tiny: dict[str, Classifier]) -> None:
    method = ready(MEMO(tiny["BN CNN"], MEMOConfig(lr=0.0, views=2)))
    layer = method.model.get_submodule("net.stem.1")
    inputs: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _m, i: inputs.append(i[0]))
    outputs: list[Tensor] = []
    second = layer.register_forward_hook(lambda _m, _i, o: outputs.append(o))
    method.predict(images(1, seed=0))
    hook.remove()
    second.remove()
    original = tiny["BN CNN"].get_submodule("net.stem.1")
    assert isinstance(original, nn.BatchNorm2d)
    assert original.running_mean is not None
    assert original.running_var is not None
    x = inputs[-1]
    mean = 16 / 17 * original.running_mean + 1 / 17 * x.mean((0, 2, 3))
    var = 16 / 17 * original.running_var + 1 / 17 * x.var((0, 2, 3), correction=1)
    flat = [v.detach().view(1, -1, 1, 1) for v in (mean, var, original.weight, original.bias)]
    expected = (x - flat[0]) / (flat[1] + original.eps).sqrt() * flat[2] + flat[3]
    assert torch.allclose(outputs[-1], expected, atol=1e-5)


def test_memo_no_gradient_flows_through_the_statistics_of_batch_norm(tiny: dict[str, Classifier]) -> None:
    """The gradient is that of a layer whose mean and variance are constants."""
    method = ready(MEMO(tiny["BN CNN"], MEMOConfig(prior=3.0)))
    layer = method.model.get_submodule("net.stem.1")
    assert isinstance(layer, AdaptiveBatchNorm)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    x = torch.randn(2, layer.num_features, 5, 5, requires_grad=True)
    weight = torch.randn(x.shape)
    (result,) = torch.autograd.grad((layer(x) * weight).sum(), x)
    var = 3 / 4 * layer.running_var + 1 / 4 * x.detach().var((0, 2, 3))
    scale = (layer.weight.detach() / (var + layer.eps).sqrt()).view(1, -1, 1, 1)
    assert torch.allclose(result, weight * scale, atol=1e-5)
    one = torch.randn(1, layer.num_features, 1, 1)  # a single value has no unbiased variance
    assert torch.isfinite(layer(one)).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_memo_steps_are_those_of_its_optimiser(
    tiny: dict[str, Classifier], optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unaugmented(monkeypatch)
    config = MEMOConfig(
        views=2,
        steps=2,
        lr=1e-3,
        weight_decay=0.1,
        optimizer=optimizer,  # type: ignore[arg-type]
    )
    net = tiny["GN CNN"].double()  # in float32, the rounding of other layouts of images grows with each step
    method = ready(MEMO(net, config))
    twin = copy.deepcopy(net).requires_grad_(True)
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    reference = kind(twin.parameters(), lr=1e-3, weight_decay=0.1)
    x = images(1, seed=8).double()
    for _ in range(2):
        reference.zero_grad()
        memo.marginal_entropy(twin(x.repeat(2, 1, 1, 1))).backward()
        reference.step()
    assert (net(x) - twin(x)).abs().max() > 1e-3
    assert torch.allclose(method.adapt(x), twin(x), atol=1e-10)


@pytest.mark.parametrize("quirks", [False, True])
def test_memo_the_optimisers_state_goes_on_only_in_the_official_code(
    tiny: dict[str, Classifier], quirks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    unaugmented(monkeypatch)
    method = MEMO(tiny["GN CNN"], MEMOConfig(views=2, optimizer="adamw", lr=1e-3, official_quirks=quirks))
    method.prepare()
    source = parameters_of(method.model)
    x = images(2, seed=8)
    first = method.adapt(x[:1])
    before = snapshot(method)
    method.predict(x[1:])
    assert difference(before, snapshot(method)) == ""  # to predict changes nothing
    method.adapt(x[1:])
    again = method.adapt(x[:1])
    assert torch.equal(first, again) is not quirks
    assert all(torch.equal(p, source[name]) for name, p in method.model.named_parameters())


def photograph() -> tuple[Tensor, Image.Image]:
    x = (images(1, seed=4) * 255).round()
    return x / 255, Image.fromarray(x[0].permute(1, 2, 0).byte().numpy())


@pytest.mark.parametrize(
    ("ours", "theirs", "bytes_off"),
    [
        (augmix.equalize, ImageOps.equalize, 0),
        (augmix.posterize, lambda image: ImageOps.posterize(image, 4), 0),
        (augmix.autocontrast, ImageOps.autocontrast, 1),  # PIL rounds down
    ],
    ids=["equalize", "posterize", "autocontrast"],
)
def test_augmix_operations_are_those_of_pil(
    ours: Callable[[Tensor], Tensor], theirs: Callable[[Image.Image], Image.Image], bytes_off: int
) -> None:
    x, image = photograph()
    expected = torch.from_numpy(np.asarray(theirs(image)).astype(np.float32)).permute(2, 0, 1)
    off = (ours(x)[0] * 255 - expected).abs().max()
    assert off <= bytes_off + 1e-3


def test_augmix_constant_channels_survive_stretching_and_flattening() -> None:
    x = torch.full((1, 3, 8, 8), 0.25)
    for operation in (augmix.autocontrast, augmix.equalize):
        assert torch.equal(operation(x), x)


def test_augmix_geometry() -> None:
    x = images(400, seed=1)[:, :, :15, :15]

    def choose(number: int) -> Tensor:
        return torch.full((len(x), 1, 1, 1), number)

    assert torch.allclose(augmix.move(x, choose(7)), x, atol=1e-5)
    wide = torch.rand(400, 3, 40, 40)
    shifted = augmix.move(wide, choose(3))
    whole = [
        (shifted[:, :, 5:-5, 5:-5] - wide.roll(s, -1)[:, :, 5:-5, 5:-5]).flatten(1).abs().amax(1)
        for s in (-1, 0, 1)
    ]
    nearest = torch.stack(whole).min(0)
    assert nearest.values.max() < 1e-4  # whole pixels, at most a thirtieth of the side
    assert set(nearest.indices.tolist()) == {0, 1, 2}
    for number in (0, 1, 2):
        assert (augmix.move(x, choose(number)) - x).abs().flatten(1).amax(1).max() > 0.01


def test_augmix_turns_and_fills_as_pil_does() -> None:
    """Whole degrees below three, bilinear; the fill is what PIL makes of the colour 128."""
    x = torch.randint(1, 256, (1, 3, 64, 64)) / 255
    image = Image.fromarray((255 * x[0]).round().permute(1, 2, 0).byte().numpy())
    angles = range(-2, 3)
    turned = torch.stack(
        [
            torch.from_numpy(np.asarray(image.rotate(a, Image.Resampling.BILINEAR, fillcolor=128)).copy())
            for a in angles
        ]
    ).permute(0, 3, 1, 2)
    ours = 255 * augmix.move(x.repeat(60, 1, 1, 1), torch.zeros(60, 1, 1, 1))
    off = (ours[:, None] - turned).flatten(2).abs().amax(2)  # PIL rounds down
    assert off.amin(1).max() < 1.01
    assert {angles[i] for i in off.argmin(1).tolist()} == set(angles)
    assert turned[0].flatten(1).T.tolist().count([128, 0, 0]) > 0


@pytest.mark.parametrize(
    ("number", "side", "reach"), [(1, 32, 0.03 * 32), (3, 90, 2), (2, 32, 0.03 * 32), (4, 90, 2)]
)
def test_augmix_moves_reach_as_far_as_they_may(number: int, side: int, reach: float) -> None:
    """A ramp of intensity shows how far the furthest row or column has moved; what is uncovered is filled."""
    ramp = torch.arange(side).float() / side
    x = (ramp if number in (1, 3) else ramp[:, None]).expand(400, 3, side, side)
    moved = augmix.move(x, torch.full((400, 1, 1, 1), number))
    uncovered = (moved[:, 1] == 0) & (moved[:, 2] == 0) & (moved[:, 0] - 128 / 255).abs().lt(1e-6)
    distance = ((moved - x)[:, 1].abs() * side).masked_fill(uncovered, 0).flatten(1).amax(1)
    assert distance.max() <= reach + 1e-3
    assert distance.max() > 0.9 * reach
    assert uncovered.flatten(1).any(1).float().mean() > 0.5


def test_augmix_views_differ_and_stay_images() -> None:
    x = images(4, seed=2).repeat_interleave(8, 0)
    views = augmix.augmix(x)
    assert views.shape == x.shape
    assert 0 <= views.min() < views.max() <= 1
    assert len({view.numpy().tobytes() for view in views}) == 32
    assert augmix.augmix(x.double()).dtype == torch.double


# ---- SHOT


def test_shot_wants_certain_predictions_of_all_classes() -> None:
    sure = 50.0 * torch.eye(4).double()
    assert float(shot.information_maximisation(sure)) == pytest.approx(-math.log(4), abs=1e-3)
    assert float(shot.information_maximisation(sure[:1].expand(4, -1))) == pytest.approx(0, abs=1e-3)
    assert float(shot.information_maximisation(torch.zeros(4, 4).double())) == pytest.approx(0, abs=1e-3)
    for seed in range(20):
        logits = random_probabilities(seed, 16, 4).log()
        assert float(shot.information_maximisation(logits)) > -math.log(4) - 1e-3


def test_shot_gradients_stay_finite_where_classes_have_vanished() -> None:
    logits = torch.tensor([[1000.0, 0.0, -1000.0]] * 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(shot.information_maximisation(logits), logits)
    assert torch.isfinite(gradient).all()


def test_shot_pseudo_labels_mend_mistakes_inside_a_cluster() -> None:
    labels = torch.arange(3).repeat_interleave(20)
    features = 4 * torch.eye(5)[labels] + 0.3 * torch.randn(60, 5)
    p = 0.6 * one_hot(labels, 4) + 0.1
    p[::7] = 0.6 * one_hot((labels[::7] + 1) % 3, 4) + 0.1
    assert (p.argmax(1) != labels).sum() == 9
    assert torch.equal(nearest_centroid(features, p), labels)  # and never the unused class 3
    order = torch.randperm(60)
    assert torch.equal(nearest_centroid(features[order], p[order]), labels[order])


@pytest.mark.parametrize("offline", [False, True])
def test_shot_moves_all_but_the_last_layer_and_raises_information(
    tiny: dict[str, Classifier], offline: bool
) -> None:
    method = SHOT(tiny["GN CNN"], SHOTConfig(lr=1e-6, epochs=3))  # its last layer is steep
    method.prepare()
    before = parameters_of(method.model)
    x = images(64, seed=2, shift=0.4)
    first = float(shot.information_maximisation(method.predict(x)))
    if offline:
        method.fit(Target(torch.split(x, 32)))
    else:
        for _ in range(6):
            method.adapt(x)
    assert float(shot.information_maximisation(method.predict(x))) < first
    still = {name for name, p in method.model.named_parameters() if torch.equal(p, before[name])}
    assert still == {"net.fc.weight", "net.fc.bias"}


def test_shot_offline_learning_rate_falls_as_in_the_paper(tiny: dict[str, Classifier]) -> None:
    method = ready(SHOT(tiny["GN CNN"], SHOTConfig()))
    method.fit(Target(torch.split(images(20, seed=2), 8)), 2)
    assert method.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * 11**-0.75)


def shot_on(classifier: Classifier, **config: object) -> SHOT:
    method = SHOT(classifier, SHOTConfig(**config))  # type: ignore[arg-type]
    method.prepare()
    return method


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: b.clone() for name, b in model.named_buffers() if "running" in name}


def test_shot_offline_entropy_has_the_official_constant_in_its_logarithm() -> None:
    logits = torch.tensor([[30.0, 0.0], [0.0, 1.0]]).double()
    p = logits.softmax(1)
    mean = p.mean(0)
    diversity = (mean * (mean + 1e-5).log()).sum()
    plain = torch.special.entr(p).sum(1).mean()
    official = -(p * (p + 1e-5).log()).sum(1).mean()
    assert official < plain - 1e-6
    assert torch.isclose(shot.information_maximisation(logits), plain + diversity, atol=1e-9)
    assert torch.isclose(shot.information_maximisation(logits, 1e-5), official + diversity, atol=1e-9)


def test_shot_offline_learns_with_batch_statistics_and_predicts_with_the_running_ones(
    tiny: dict[str, Classifier],
) -> None:
    """With a learning rate of 0 only the running statistics move, as in torch's training mode."""
    x = images(48, seed=2, shift=0.4)
    method = shot_on(tiny["BN CNN"], lr=0.0)
    method.fit(Target([x]), 3)
    twin = copy.deepcopy(tiny["BN CNN"])
    set_norm_mode(twin, train=True)
    with torch.no_grad():
        for _ in range(3):
            twin(x)
    for name, value in buffers_of(twin).items():
        assert torch.allclose(buffers_of(method.model)[name], value, atol=1e-4), name
    before = buffers_of(method.model)
    assert torch.allclose(method.predict(x), twin.eval()(x), atol=1e-3)
    assert not torch.allclose(method.predict(x), tiny["BN CNN"](x), atol=1e-2)
    assert torch.allclose(method.predict(x)[:5], method.predict(x[:5]), atol=1e-4)  # no batch statistics
    assert all(torch.equal(value, before[name]) for name, value in buffers_of(method.model).items())


@pytest.mark.parametrize("statistics", ["batch", "source"])
def test_shot_online_statistics_are_the_batchs_or_the_sources(
    tiny: dict[str, Classifier], statistics: str
) -> None:
    x = images(32, seed=2, shift=0.4)
    method = shot_on(tiny["BN CNN"], statistics=statistics)
    before = buffers_of(method.model)
    logits = method.adapt(x)
    model = copy.deepcopy(tiny["BN CNN"])
    set_norm_mode(model, train=statistics == "batch")
    assert torch.allclose(logits, model(x), atol=1e-3)
    assert all(torch.equal(value, before[name]) for name, value in buffers_of(method.model).items())


def test_shot_steps_are_adaptations_to_the_same_batch(tiny: dict[str, Classifier]) -> None:
    x = images(32, seed=2)
    once, twice = (shot_on(tiny["GN CNN"], optimizer="adam", lr=1e-5, steps=steps) for steps in (1, 2))
    once.adapt(x)
    assert torch.allclose(once.adapt(x), twice.adapt(x), atol=1e-4)


def test_shot_weighs_information_and_labels(tiny: dict[str, Classifier]) -> None:
    """One plain SGD step against the gradient of Eq. 7, written out."""
    x = images(32, seed=2)
    method = shot_on(
        tiny["GN CNN"], optimizer="sgd", momentum=1e-9, weight_decay=0.0, lr=1e-6,
        information_weight=0.5, label_weight=2.0, threshold=0.6,
    )  # fmt: skip
    twin = copy.deepcopy(tiny["GN CNN"]).requires_grad_(True)
    logits = twin(x)
    p = logits.softmax(1)
    sure = p.max(1).values > 0.6
    assert 0 < sure.sum() < 32
    labelled = -logits.log_softmax(1).max(1).values[sure].mean()
    loss = 0.5 * shot.information_maximisation(logits) + 2 * labelled
    named = [(f"net.{name}", w) for name, w in twin.net.named_parameters() if not name.startswith("fc.")]
    gradients = torch.autograd.grad(loss, [w for _, w in named])
    method.adapt(x)
    for (name, before), gradient in zip(named, gradients, strict=True):
        moved = (before - method.parameters[name]).detach()
        assert torch.allclose(moved, 1e-6 * gradient, rtol=0.05, atol=2e-7), name


@pytest.mark.parametrize(
    ("labellings", "expected"), [(0, [0, 3, 6, 9]), (2, [0, 6]), (5, [0, 2, 4, 6, 8, 10])]
)
def test_shot_offline_labels_at_even_distances(
    tiny: dict[str, Classifier], monkeypatch: pytest.MonkeyPatch, labellings: int, expected: list[int]
) -> None:
    """Four passes of three batches: before each, or every ⌊12 / labellings⌋ steps."""
    method = shot_on(tiny["GN CNN"], labellings=labellings)
    made: list[int] = []
    steps = 0
    label, learn = method.label, method.learn

    def counted(*arguments: object) -> None:
        nonlocal steps
        steps += 1
        learn(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(method, "label", lambda batches: (made.append(steps), label(batches))[1])
    monkeypatch.setattr(method, "learn", counted)
    method.fit(Target(torch.split(images(24, seed=2), 8)), 4)
    assert steps == 12
    assert made == expected


def test_shot_gives_up_classes_predicted_for_few_images() -> None:
    labels = torch.tensor([0] * 20 + [1] * 20 + [2] * 3)
    features = 4 * torch.eye(5)[labels] + 0.1 * torch.randn(43, 5)
    p = 0.6 * one_hot(labels, 4) + 0.1
    assert torch.equal(nearest_centroid(features, p), labels)
    few = nearest_centroid(features, p, 3)
    assert torch.equal(few[:40], labels[:40])
    assert set(few.tolist()) == {0, 1}
    assert torch.equal(nearest_centroid(features, p, 50), labels)  # none is left: predictions stay


# ---- CMA-ES


def sphere(x: Tensor) -> Tensor:
    return x.square().sum(1)


def ellipsoid(x: Tensor) -> Tensor:
    return (10 ** torch.linspace(0, 6, x.shape[1]).double() * x.square()).sum(1)


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[:, 1:] - x[:, :-1].square()).square() + (1 - x[:, :-1]).square()).sum(1)


@pytest.mark.parametrize(
    ("function", "dimension", "budget"), [(sphere, 10, 2500), (ellipsoid, 10, 9000), (rosenbrock, 6, 7000)]
)
def test_cma_es_minimises(function: Callable[[Tensor], Tensor], dimension: int, budget: int) -> None:
    """Budgets: about 1.5 times what the published strategy takes for 1e-9."""
    search, value, spent = CMAES(torch.full((dimension,), 3.0), 0.5), math.inf, 0
    while value > 1e-9 and spent < budget:
        candidates = search.ask()
        values = function(candidates)
        search.tell(candidates, values)
        value, spent = min(value, float(values.min())), spent + len(values)
    assert value <= 1e-9


def trajectory(function: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    torch.manual_seed(1)
    search, means = CMAES(start, 0.5), []
    for _ in range(30):
        candidates = search.ask()
        search.tell(candidates, function(candidates))
        means.append(search.mean)
    return torch.stack(means)


def test_cma_es_sees_ranks_only_and_does_not_know_where_zero_is() -> None:
    start = torch.linspace(1, 2, 5)
    means = trajectory(sphere, start)
    assert torch.equal(trajectory(lambda x: sphere(x).exp().log1p(), start), means)
    moved = trajectory(lambda x: sphere(x - 7), start + 7)
    assert torch.allclose(moved - 7, means, atol=1e-6)


def test_cma_es_defaults_are_the_tutorials() -> None:
    search = CMAES(torch.zeros(2304), 1.0)
    assert search.population == 27  # the FOA paper's number for three prompts of ViT-Base
    assert search.every > 1  # a 2304 × 2304 eigenproblem is not solved in every generation
    assert float(search.weights.clamp(min=0).sum()) == pytest.approx(1)
    assert CMAES(torch.zeros(2304), 1.0, population=9).ask().shape == (9, 2304)


@pytest.mark.parametrize("long", [False, True], ids=["short path", "long path"])
def test_cma_es_generation_is_the_tutorials(long: bool) -> None:
    """One generation with an extra candidate, written out with plain numbers (Eqs. 41 to 53).

    Where p_σ is long, p_c stays, and C keeps the variance that this costs.
    """
    d, n = 4, 7
    search = CMAES(torch.linspace(-1, 1, d), 0.7, population=6, extra=1)
    rotation = torch.linalg.qr(torch.randn(d, d).double()).Q
    search.covariance = (rotation * torch.tensor([0.5, 1.0, 1.5, 2.0]).double()) @ rotation.T
    search.decompose()
    search.path_c = torch.randn(d).double()
    if long:
        search.path_sigma = torch.full((d,), 9.0).double()
    m, sigma, c = search.mean.clone(), search.sigma, search.covariance.clone()
    p_sigma, p_c = search.path_sigma.clone(), search.path_c.clone()
    candidates = torch.cat([search.ask(), m[None] + 0.3])
    values = sphere(candidates)
    search.tell(candidates, values)

    raw = [math.log((n + 1) / 2) - math.log(i) for i in range(1, n + 1)]
    better, worse = [w for w in raw if w > 0], [w for w in raw if w < 0]
    mass = sum(better) ** 2 / sum(w * w for w in better)
    mass_worse = sum(worse) ** 2 / sum(w * w for w in worse)
    c_sigma = (mass + 2) / (d + mass + 5)
    c_c = (4 + mass / d) / (d + 4 + 2 * mass / d)
    c_1 = 2 / ((d + 1.3) ** 2 + mass)
    c_mu = min(1 - c_1, 2 * (0.25 + mass + 1 / mass - 2) / ((d + 2) ** 2 + mass))
    most = min(1 + c_1 / c_mu, 1 + 2 * mass_worse / (mass + 2), (1 - c_1 - c_mu) / (d * c_mu))
    w = [x / sum(better) if x > 0 else most * x / -sum(worse) for x in raw]
    y = ((candidates - m) / sigma)[values.argsort()]
    inverse = rotation @ torch.diag(torch.tensor([0.5, 1.0, 1.5, 2.0]).double().rsqrt()) @ rotation.T
    step = sum((wi * yi for wi, yi in zip(w, y, strict=True) if wi > 0), torch.zeros(d).double())
    p_sigma = (1 - c_sigma) * p_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mass) * inverse @ step
    h = 0.0 if long else 1.0
    p_c = (1 - c_c) * p_c + h * math.sqrt(c_c * (2 - c_c) * mass) * step
    expected = (1 + c_1 * (1 - h) * c_c * (2 - c_c) - c_1 - c_mu * sum(w)) * c + c_1 * p_c[:, None] * p_c
    for wi, yi in zip(w, y, strict=True):
        scaled = wi if wi > 0 else wi * d / float((inverse @ yi).square().sum())
        expected = expected + c_mu * scaled * yi[:, None] * yi
    torch.testing.assert_close(search.mean, m + sigma * step)
    torch.testing.assert_close(search.path_sigma, p_sigma)
    torch.testing.assert_close(search.path_c, p_c)
    torch.testing.assert_close(search.covariance, expected)
    normal = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
    damping = 1 + 2 * max(0, math.sqrt((mass - 1) / (d + 1)) - 1) + c_sigma
    grown = math.exp(c_sigma / damping * (float(p_sigma.norm()) / normal - 1))
    assert search.sigma == pytest.approx(sigma * grown)
    assert (torch.linalg.eigvalsh(search.covariance) > 0).all()


def test_cma_es_holds_candidates_of_other_origin_to_a_long_step_of_its_own() -> None:
    d = 5
    search = CMAES(torch.zeros(d), 2.0, population=4, extra=1)
    far = torch.zeros(d).double()
    far[0] = 1e6
    candidates = torch.cat([torch.zeros(4, d).double(), far[None]])
    search.tell(candidates, torch.tensor([1.0, 2.0, 3.0, 4.0, 0.0]))  # the stranger is the fittest
    longest = 2.0 * (math.sqrt(d) + 2 * d / (d + 2))
    assert 0 < float(search.mean[0]) <= longest
    assert float(search.mean[0]) == pytest.approx(float(search.weights[0]) * longest)


# ---- FOA


def foa_on(classifier: Classifier, **changed: float | int) -> FOA:
    method = FOA(classifier, FOAConfig(**changed))  # type: ignore[arg-type]
    method.prepare(WatchedSource(Needs(source_data="images")))
    return method


def test_foa_prompts_stand_behind_the_class_token_and_hooks_go_away(tiny: dict[str, Classifier]) -> None:
    model, x, prompts = tiny["LN ViT"], images(2, seed=1), torch.randn(3, 16)
    before, entered = snapshot(model), []
    hook = blocks_of(model)[0].register_forward_hook(lambda _m, inputs, _o: entered.append(inputs[0]))
    with torch.no_grad(), Prompted(model, prompts) as seen:
        model(x)
    hook.remove()
    tokens = entered[0]
    assert torch.equal(tokens[:, 1:4], prompts.expand(2, -1, -1))
    assert torch.equal(torch.cat([tokens[:, :1], tokens[:, 4:]], 1), seen.tokens)
    assert [summary.shape for summary in seen.summaries] == [(2, 16)] * len(blocks_of(model))
    with pytest.raises(RuntimeError), Prompted(model, torch.randn(3, 5)):
        model(x)
    assert difference(before, snapshot(model)) == ""


class Blocks(nn.Module):
    """A transformer in outline: a class token of zeros before 4 × 4 patches, blocks, perhaps a last norm."""

    def __init__(self, pre_norm: bool, last_norm: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(3))
        for block in self.blocks:
            nn.init.normal_(block[0].weight)  # type: ignore[index]
            nn.init.normal_(block[0].bias)  # type: ignore[index]
        self.blocks = nn.ModuleList(Residual(block, pre_norm) for block in self.blocks)  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(8) if last_norm else nn.Identity()
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([torch.zeros_like(x[:, :1]), x], 1)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.fc(self.norm(x)[:, 0])
        return out


class Residual(nn.Module):
    def __init__(self, layers: nn.Sequential, pre_norm: bool) -> None:
        super().__init__()
        self.norm, self.body = layers
        self.pre_norm = pre_norm

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x) if self.pre_norm else x
        out: Tensor = x + self.body(y + y.mean(1, keepdim=True))
        return out if self.pre_norm else self.norm(out)


@pytest.mark.parametrize("last_norm", [False, True])
@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("class_token", [False, True])
def test_foa_reads_each_block_as_the_next_norm_layer_leaves_it(
    pre_norm: bool, last_norm: bool, class_token: bool
) -> None:
    """Where norms stand elsewhere, as the block leaves it."""
    net = Blocks(pre_norm, last_norm)
    tags = ("transformer", "class_token") if class_token else ("transformer",)
    model = Classifier(net, last="fc", tags=tags).eval()
    x = torch.rand(5, 3, 16, 16)
    with torch.no_grad():
        tokens = net.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)
        expected = []
        for i, block in enumerate(net.blocks):
            tokens = block(tokens)
            if i < 2:
                read = net.blocks[i + 1].norm(tokens) if pre_norm else tokens  # type: ignore[operator]
            else:
                read = net.norm(tokens)
            expected.append(read[:, 0] if class_token else read.mean(1))
        with Prompted(model) as seen:
            model(x)
    assert len(seen.summaries) == 3
    for result, right in zip(seen.summaries, expected, strict=True):
        assert torch.allclose(result, right, atol=1e-6)


@pytest.mark.parametrize("quirks", [False, True])
def test_foa_fitness_is_entropy_and_weighted_distance(tiny: dict[str, Classifier], quirks: bool) -> None:
    """Written out for two blocks: norms, or the squares of the official code."""
    method = foa_on(tiny["LN ViT"], weight=0.7, official_quirks=quirks)
    method.source = [(torch.randn(4), torch.rand(4)) for _ in range(2)]
    logits, summaries = torch.randn(10, CLASSES), [torch.randn(10, 4) for _ in range(2)]
    power = 2 if quirks else 1
    distance = 0.0
    for summary, (mean, deviation) in zip(summaries, method.source, strict=True):
        centre = summary.sum(0) / 10
        spread = ((summary - centre).square().sum(0) / 9).sqrt()
        distance += float((centre - mean).square().sum().sqrt()) ** power
        distance += float((spread - deviation).square().sum().sqrt()) ** power
    expected = float(entropy(logits).sum()) + 0.7 * 10 / 64 * distance
    assert float(method.fitness(logits, summaries)) == pytest.approx(expected, rel=1e-5)


def test_foa_without_prompts_the_source_is_where_the_source_is(tiny: dict[str, Classifier]) -> None:
    method = foa_on(tiny["LN ViT"], weight=1e6)
    torch.manual_seed(7)
    x = next(WatchedSource(Needs(source_data="images")).batches(32, 32, shuffle=True))
    method.model.eval()
    torch.manual_seed(7)
    method.prepare(WatchedSource(Needs(source_data="images")))
    with torch.no_grad(), Prompted(method.model) as seen:
        logits = method.model(x)
    assert torch.isclose(method.fitness(logits, seen.summaries), entropy(logits).sum())
    shifted = [s + 1 for s in seen.summaries]
    assert method.fitness(logits, shifted) > entropy(logits).sum() + 1


def test_foa_tries_the_last_batchs_fittest_prompts_again_and_tells_of_them(
    tiny: dict[str, Classifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = foa_on(tiny["LN ViT"], population=6)
    assert method.search.sigma == 1.0  # absolute
    assert not method.search.mean.any()
    told: list[tuple[Tensor, Tensor]] = []
    tell = CMAES.tell
    monkeypatch.setattr(
        CMAES,
        "tell",
        lambda self, tried, values: (told.append((tried, values)), tell(self, tried, values))[1],
    )
    start = method.best.clone()
    assert start.abs().max() <= (3 / 16) ** 0.5
    for seed in range(4):
        method.adapt(images(16, seed=seed, shift=0.4))
        tried, values = told[-1]
        assert tried.shape == (7, 3 * 16)
        assert torch.equal(tried[-1], start)
        start = tried[values.argmin()]
        assert torch.equal(method.best, start)


@pytest.mark.parametrize("quirks", [False, True])
def test_foa_average_feature_is_over_all_candidates(
    tiny: dict[str, Classifier], quirks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch at hand counts in the shift, but in the official code only for later batches."""
    method = foa_on(tiny["LN ViT"], population=3, alpha=0.25, official_quirks=quirks)
    features = torch.randn(2, 4, 5, 16)  # batches, candidates, images
    seen = iter(features.flatten(0, 1))
    values = iter([3.0, 1.0, 2.0, 4.0, 3.0, 2.0, 4.0, 1.0])
    monkeypatch.setattr(FOA, "look", lambda *_: (next(seen), torch.tensor(next(values))))
    x = torch.zeros(5, 3, 16, 16)
    means = features.mean((1, 2))
    averages = [means[0], 0.75 * means[0] + 0.25 * means[1]]
    fittest = [features[0, 1], features[1, 3]]
    used = [None, averages[0]] if quirks else averages
    for z, average, after in zip(fittest, used, averages, strict=True):
        shift = 0 if average is None else method.source_mean - average
        assert torch.allclose(method.adapt(x), method.model.head(z + shift), rtol=1e-4, atol=1e-3)
        assert method.average is not None
        assert torch.allclose(method.average, after, atol=1e-5)


def test_foa_gets_fitter_and_changes_no_weight(tiny: dict[str, Classifier]) -> None:
    method = foa_on(tiny["LN ViT"])
    before = parameters_of(method.model)
    x = images(32, seed=6, shift=0.4)

    def fitness() -> float:
        with torch.no_grad():
            return float(method.look(x, method.best)[1])

    first = fitness()
    for _ in range(15):
        method.adapt(x)
    assert fitness() < first
    assert all(torch.equal(p, before[name]) for name, p in method.model.named_parameters())


def test_foa_shift_brings_the_mean_feature_back_to_the_source(tiny: dict[str, Classifier]) -> None:
    method = foa_on(tiny["LN ViT"])
    z = torch.randn(10, 16)
    method.average = z.mean(0)
    centred = z - z.mean(0) + method.source_mean
    assert torch.allclose(method.shifted(z), method.model.head(centred), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("arch", ["cct", "cvt", "vit_lite"])
def test_foa_runs_on_the_transformers_that_come_with_ttabench(arch: str) -> None:
    ours = build(arch, dataset="digits-c", num_classes=10, image_size=32, mean=(0.5,) * 3, std=(0.5,) * 3)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    method = ready(FOA(ours, FOAConfig(population=4)), SourceImages(lambda: pixels, FOA.needs))
    x = torch.rand(8, 3, 32, 32)
    with torch.no_grad():
        plain = ours(x)
    scored = method.adapt(x)
    assert scored.shape == plain.shape
    assert torch.isfinite(scored).all()
    assert not torch.allclose(scored, plain)


def test_foa_says_why_it_cannot_run(tiny: dict[str, Classifier]) -> None:
    assert FOA.needs.unmet(tiny["GN CNN"].architecture()) == "not a transformer"
    with pytest.raises(UserError, match="no list of transformer blocks"):
        blocks_of(tiny["GN CNN"])

    class Maps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(nn.Sequential(nn.LayerNorm(16), nn.Conv2d(3, 3, 1)))
            self.fc = nn.Linear(3, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(self.blocks(x).mean((2, 3)))
            return out

    with pytest.raises(UserError, match=r"tokens \(B, N, d\)"):
        foa_on(Classifier(Maps(), last="fc", tags=("transformer",)))


def test_deyo_limits_are_shares_of_the_largest_entropy(tiny: dict[str, Classifier]) -> None:
    method = deyo_on(tiny["GN CNN"], entropy_factor=0.3, e0_factor=0.2)
    most = math.log(CLASSES)
    assert (method.entropy_limit, method.e0) == pytest.approx((0.3 * most, 0.2 * most))
