"""COME, RDumb, CMF and POEM: the properties their papers state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.unit.planning import plan
from ttabench.classifier import Classifier
from ttabench.conformance import conform
from ttabench.conformance.nets import CLASSES, images, nets
from ttabench.errors import UserError
from ttabench.method import Method
from ttabench.method.settings import make_config
from ttabench.nn import entropy
from ttabench.sweep.grid import Grid
from ttabench.sweep.plan import SourceFacts
from ttabench_methods import cmf
from ttabench_methods.betting import CDF, Bettor
from ttabench_methods.cmf import CMF, CMFConfig
from ttabench_methods.come import COME, COMEConfig, opinion_entropy
from ttabench_methods.eta import ETA, ETAConfig
from ttabench_methods.poem import POEM, POEMConfig
from ttabench_methods.rdumb import RDumb, RDumbConfig
from ttabench_methods.roid import ROID, ROIDConfig
from ttabench_methods.tent import Tent, TentConfig

SEEDS = st.integers(0, 2**16)


class SourceImages:
    """Clean source images in order, and their entropies."""

    def batches(self, batch_size: int, limit: int = 0, shuffle: bool = False) -> Iterator[Tensor]:
        return iter(clean().split(batch_size))

    @torch.no_grad()
    def entropies(self, classifier: Classifier, limit: int = 0, temperature: float = 1.0) -> Tensor:
        return entropy(classifier(clean()) / temperature).sort().values


def clean() -> Tensor:
    return images(160, seed=3).double()


@pytest.fixture(scope="module")
def made() -> dict[str, Classifier]:
    return {name: net.double() for name, net in nets().items()}


@pytest.fixture
def bn(made: dict[str, Classifier]) -> Classifier:
    return made["BN CNN"]


@pytest.fixture
def gn(made: dict[str, Classifier]) -> Classifier:
    return made["GN CNN"]


@pytest.fixture
def x() -> Tensor:
    return images(40, seed=2, shift=0.4).double()


def ready(method: Method[Any]) -> Any:
    method.prepare(SourceImages())
    return method


def random_logits(seed: int, scale: float = 3.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return scale * torch.randn(8, CLASSES, generator=draw, dtype=torch.double)


def distance(method: Method[Any], classifier: Classifier) -> float:
    """How far the weights are from those of the source."""
    pairs = zip(method.model.parameters(), classifier.parameters(), strict=True)
    return math.sqrt(sum(float((p - q).detach().square().sum()) for p, q in pairs))


# ---- COME


@given(SEEDS, st.sampled_from([0.5, 10.0, 1000.0]), st.sampled_from([0.0, 1e-7]))
@settings(max_examples=20, deadline=None)
def test_come_pulls_logits_sideways_never_along(seed: int, K: float, added: float) -> None:
    """The gradient is orthogonal to the logits, so that no step makes them longer to first order."""
    logits = random_logits(seed).requires_grad_()
    (gradient,) = torch.autograd.grad(opinion_entropy(logits, K, added).sum(), logits)
    assert float(gradient.norm(dim=1).min()) > 1e-6
    along = (gradient * logits).sum(dim=1) / (gradient.norm(dim=1) * logits.norm(dim=1))
    assert float(along.detach().abs().max()) < 1e-9
    (plain,) = torch.autograd.grad(entropy(logits).sum(), logits)
    assert float((plain * logits).detach().sum(dim=1).abs().min()) > 1e-6  # the softmax entropy's is not


@given(SEEDS, st.sampled_from([0.5, 10.0, 1000.0]), st.sampled_from([0.1, 3.0, 30.0]))
@settings(max_examples=20, deadline=None)
def test_come_is_the_entropy_of_an_opinion(seed: int, K: float, scale: float) -> None:
    logits = random_logits(seed, scale)
    total = logits.exp().sum(dim=1, keepdim=True) + K
    belief, u = logits.exp() / total, K / total
    h = opinion_entropy(logits, K)
    torch.testing.assert_close(h, torch.special.entr(torch.cat([belief, u], dim=1)).sum(dim=1))
    assert bool(((h >= 0) & (h <= math.log(CLASSES + 1) + 1e-12)).all())


@pytest.mark.parametrize("scale", [0.1, 3.0, 10.0])
def test_come_is_as_uncertain_as_the_length_of_the_logits_lets_it(bn: Classifier, scale: float) -> None:
    """The paper's bound on u, for K = C."""
    logits = random_logits(0, scale)
    u = (-ready(COME(bn, COMEConfig(K=float(CLASSES)))).known_score(logits)).exp()
    torch.testing.assert_close(u, CLASSES / (logits.exp().sum(dim=1) + CLASSES))
    length = logits.norm(dim=1)
    assert bool(((1 / (1 + length.exp()) < u) & (u < 1 / (1 + (-length).exp()))).all())


def test_come_without_uncertainty_is_the_entropy_and_large_logits_stay_finite() -> None:
    logits = random_logits(0)
    torch.testing.assert_close(opinion_entropy(logits, 1e-12), entropy(logits))
    extreme = torch.tensor([[500.0, -500.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    h = opinion_entropy(extreme, 3.0)
    (gradient,) = torch.autograd.grad(h.sum(), extreme)
    assert bool(torch.isfinite(h).all())
    assert bool(torch.isfinite(gradient).all())


def test_come_with_a_thousand_turns_the_order_round_on_ten_classes() -> None:
    """Of two predictions the surer one has the lower entropy, unless K is far above the evidence."""
    logits = torch.eye(10, dtype=torch.double)[:1] * torch.tensor([[1.0], [4.0]])
    unsure, sure = entropy(logits).tolist()
    assert sure < unsure
    unsure, sure = opinion_entropy(logits, 1000.0).tolist()
    assert sure > unsure
    unsure, sure = opinion_entropy(2 * logits, 10.0).tolist()
    assert sure < unsure


@pytest.mark.parametrize(("K", "told"), [(1000.0, True), (float(CLASSES), False)])
def test_come_reports_that_k_turns_the_order_round(bn: Classifier, K: float, told: bool) -> None:
    sureness = torch.linspace(2, 5, 40, dtype=torch.double)[:, None]
    alarm = ready(COME(bn, COMEConfig(K=K))).check(sureness * torch.eye(CLASSES, dtype=torch.double)[:1])
    assert ("K 1000 turns the order of uncertainty round: rank correlation -1.00" in alarm) == told
    assert told or not alarm


def test_come_rows_show_k_and_the_official_code_is_a_setting(bn: Classifier) -> None:
    target = SourceFacts("net", "digits-c", CLASSES, "", bn.architecture(), "")
    asked = ("come", "come[host=eata]", "come[K=1000]", "come[host=sar,official_quirks=true]")
    planned = plan(Grid(methods=asked, archs=("net",), corruptions=("fog",)), [target])
    labels = [cell.cell.label for cell in planned if cell.cell.method == "come"]
    assert labels == [
        f"come[K={CLASSES}]", f"come[host=eata,K={CLASSES}]", "come[K=1000]",
        "come[host=sar,K=1000,official_quirks=true]",
    ]  # fmt: skip
    assert ready(COME(bn)).host.entropy.keywords["K"] == CLASSES


def test_come_takes_its_hosts_settings_and_refuses_those_of_another(bn: Classifier) -> None:
    usual = COME.for_architecture(bn.architecture())
    method = COME(bn, make_config(COME, {"host": "eata", "d_margin": "0.7"}, usual))
    assert method.host.config.d_margin == 0.7
    assert method.host.config.lr == 5e-3
    assert COME.needs_of(method.config).source_data == "images"
    assert COME.needs_of(COMEConfig()).source_data == ""
    assert [paper.key for paper in COME.papers_of(method.config)] == ["zhang2025come", "niu2022efficient"]
    with pytest.raises(UserError, match="come: d_margin is no setting of the host tent"):
        make_config(COME, {"d_margin": "0.7"}, usual)


def test_come_is_its_host_with_another_loss(bn: Classifier, x: Tensor) -> None:
    ours, plain = ready(COME(bn, COMEConfig(lr=0.01, norms="batch"))), ready(Tent(bn, TentConfig(lr=0.01)))
    assert torch.equal(ours.adapt(x), plain.adapt(x))  # scored before the update
    assert not torch.equal(ours.adapt(x), plain.adapt(x))
    plain.reset()
    plain.entropy = ours.host.entropy
    ours.reset()
    for _ in range(2):
        assert torch.equal(ours.adapt(x), plain.adapt(x))


@pytest.mark.parametrize("host", ["eata", "sar"])
@pytest.mark.parametrize("all_nets", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")
def test_come_conforms_with_its_other_hosts(
    host: str, all_nets: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if not all_nets:
        request.getfixturevalue("short_memory_check")
        monkeypatch.setattr("ttabench.conformance.run.nets", lambda: {"BN CNN": nets()["BN CNN"]})
    failed = [check for check in conform(COME, {"host": host}) if not check.ok]
    assert [f"{check.name}: {check.detail}" for check in failed] == []


def test_come_counts_what_its_host_counts_also_after_a_reset(bn: Classifier, x: Tensor) -> None:
    method = ready(COME(bn, COMEConfig(host="sar", lr=0.01, reset_constant=10.0)))
    method.adapt(x)
    method.reset()
    method.adapt(x)
    assert method.counts["resets"] == 2
    method.counts.clear()
    method.adapt(x)
    assert method.alarms()["resets"] == 1


# ---- RDumb


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_rdumb_starts_anew_bitwise(bn: Classifier, x: Tensor, optimizer: Any) -> None:
    """After T batches the same batches get the same logits: weights, optimiser and average are back."""
    config = RDumbConfig(reset_every=3, lr=0.02, d_margin=2.0, optimizer=optimizer)
    method, plain = (
        ready(RDumb(bn, config)),
        ready(ETA(bn, ETAConfig(lr=0.02, d_margin=2.0, optimizer=optimizer))),
    )
    batches = [x[:20], x[20:], x[:15]]
    first, second, third = ([method.adapt(b) for b in batches] for _ in range(3))
    eta = [plain.adapt(b) for b in [*batches, *batches]]
    assert all(map(torch.equal, first, second))
    assert all(map(torch.equal, first, third))
    assert all(map(torch.equal, first, eta))  # until then it is ETA
    assert not torch.equal(second[0], eta[3])
    assert method.alarms()["resets"] == 2


def test_rdumb_counts_batches_without_an_update(bn: Classifier, x: Tensor) -> None:
    method = ready(RDumb(bn, RDumbConfig(reset_every=2, lr=0.02, d_margin=2.0)))
    method.adapt(x)
    moved = distance(method, bn)
    method.e0 = 0.0  # nothing is reliable
    method.adapt(x)
    assert moved > 0
    method.adapt(x)
    assert distance(method, bn) == 0


def test_rdumb_margins_leave_something_to_learn_from_at_every_number_of_classes() -> None:
    """A sure prediction is no nearer to a uniform average than the margin allows."""
    for classes in (2, 4, 10, 100, 200, 1000):
        usual = RDumb.for_dataset("any", classes)
        assert replace(RDumbConfig(), **usual).d_margin > classes**-0.5
        assert RDumbConfig(**usual).e0_factor < 1


@pytest.mark.filterwarnings("ignore:.*rejects all confident samples")
def test_rdumb_official_margins_are_imagenets(bn: Classifier, x: Tensor) -> None:
    """On few classes nothing is unreliable, and nothing sure is kept once there is an average."""
    method = ready(RDumb(bn, RDumbConfig(official_quirks=True)))
    assert method.e0 == pytest.approx(0.4 * math.log(1000))
    assert method.e0 > math.log(CLASSES)
    assert (method.config.d_margin, method.config.lr) == (0.05, 2.5e-4)
    assert "rejects all confident samples" in method.alarm
    method.adapt(x)
    method.adapt(x)
    assert method.counts["kept"] <= 1.1 * len(x)  # the first batch, which has no average, and hardly more


# ---- CMF


@given(st.floats(0, 10), st.floats(0, 2))
def test_cmf_gain_stays_within_its_limits(predicted: float, noise: float) -> None:
    variance = predicted + noise  # the noise was added to it
    beta, corrected = cmf.gain(variance, noise)
    assert beta == 1 or 0.89 <= beta < 0.9999
    assert 0 <= corrected <= variance
    assert cmf.gain(variance + 0.1, noise)[0] <= beta  # the less certain, the more is learned


def test_cmf_gain_settles_where_noise_and_correction_balance() -> None:
    for noise, expected in ((0.0, 1.0), (1e-9, 1.0), (2.0, 0.89)):
        beta, variance = 1.0, 0.0
        for _ in range(2000):
            beta, variance = cmf.gain(0.99**2 * variance + noise, noise)
        assert beta == expected
        assert variance == pytest.approx(beta * (0.99**2 * variance + noise))
    for size, expected in ((38_400, 0.06), (9_600, 0.027), (224, 0.0014), (15, 0.0)):  # the defaults
        beta, variance = 1.0, 0.0
        for _ in range(20_000):
            noise = 0.005 * size / 38_400
            beta, variance = cmf.gain(0.99**2 * variance + noise, noise)
        assert 1 - beta == pytest.approx(expected, rel=0.05)
    variance = 0.0
    for _ in range(2000):  # between the limits: β (α² v + Q) = v has one solution
        beta, variance = cmf.gain(0.99**2 * variance + 0.005, 0.005)
    assert 0.89 < beta < 0.95
    assert variance == pytest.approx(beta * (0.99**2 * variance + 0.005))
    assert beta == pytest.approx(0.995 / (variance / beta + 0.995))


def test_cmf_without_noise_is_roid(bn: Classifier, x: Tensor) -> None:
    ours = ready(CMF(bn, CMFConfig(lr=0.01, ensemble=0.9, q=0.0)))
    roid = ready(ROID(bn, ROIDConfig(lr=0.01, ensemble=0.9)))
    logits = []
    for method in (ours, roid):
        torch.manual_seed(0)
        logits.append([method.adapt(b) for b in x.split(10)])
    assert all(map(torch.equal, *logits))
    for name, value in ours.hidden.items():
        assert torch.equal(value, ours.theta0[name])


def test_cmf_hidden_model_lies_between_source_and_learned_weights(bn: Classifier, x: Tensor) -> None:
    """With γ = 1 nothing is pulled back, so one step shows both nets: φ = β θ₀ + (1 − β) θ."""
    method = ready(CMF(bn, CMFConfig(lr=0.01, ensemble=1.0, q=1e6)))
    method.adapt(x)
    assert method.beta == 0.89
    for name, p in method.parameters.items():
        torch.testing.assert_close(method.hidden[name], 0.89 * method.theta0[name] + 0.11 * p.detach())


# ---- POEM


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_poem_distribution_is_that_of_the_sample_and_can_be_inverted(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sample = np.round(draw.gamma(2.0, size=50), 1)  # with ties
    cdf = CDF(sample)
    for value in sample:
        assert cdf(np.array([value]))[0] == pytest.approx((sample <= value).mean())
    inside = draw.uniform(sample.min(), sample.max(), 30)
    np.testing.assert_allclose(cdf.inverse(cdf(inside)), inside)
    outside = cdf(np.array([sample.min() - 1, sample.max() + 1]))
    assert outside[1] == 1
    assert outside[0] == pytest.approx((sample == sample.min()).mean())


@given(st.floats(-1.99, 1.99))
def test_poem_bet_stands_for_a_distribution(bet: float) -> None:
    """Q rises from 0 to 1, with the density 1 + ε (u − ½)."""
    bettor = Bettor(0.1, 1.8)
    u = np.linspace(0, 1, 101)

    def protected(value: float) -> float:
        bettor.bet = bet
        return bettor(value)

    q = np.array([protected(value) for value in u])
    assert q[0] == 0
    assert q[-1] == pytest.approx(1)
    assert bool((np.diff(q) >= -1e-12).all())
    middle = (u[1:] + u[:-1]) / 2
    np.testing.assert_allclose(np.diff(q) / np.diff(u), 1 + bet * (middle - 0.5), atol=1e-9)


@given(st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.0]), min_size=1, max_size=60), st.floats(0, 3))
@settings(deadline=None)
def test_poem_is_never_ruined(values: list[float], gamma: float) -> None:
    """With |ε| below 2 every stake is positive, whatever comes; ε moves as the log wealth rises."""
    bettor = Bettor(gamma, 1.8)
    for u in values:
        before = bettor.bet
        bettor(u)
        assert abs(bettor.bet) <= 1.8
        assert math.isfinite(bettor.log_wealth)
        assert (bettor.bet - before) * (u - 0.5) >= 0


def wealth(u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """S after every value, one row per run."""
    rows = []
    for run in u:
        bettor = Bettor(POEMConfig().gamma, 1.8)
        logs = []
        for value in run.tolist():
            bettor(value)
            logs.append(bettor.log_wealth)
        rows.append(logs)
    return np.exp(np.array(rows))


def test_poem_wealth_is_a_martingale_where_nothing_has_shifted() -> None:
    """Its mean stays 1 for uniform u, and by Ville's inequality it rarely ever gets large."""
    s = wealth(np.random.default_rng(0).uniform(size=(2000, 100)))
    for step in (1, 9, 49, 99):
        assert abs(s[:, step].mean() - 1) < 4 * s[:, step].std() / math.sqrt(len(s))
    for level in (2, 5, 20):
        assert (s.max(axis=1) >= level).mean() <= 1 / level
    shifted = wealth(np.random.default_rng(0).beta(2, 1, size=(200, 400)))
    assert np.median(shifted[:, -1]) > 1e3


def test_poem_wealth_stays_bounded_on_source_entropies(gn: Classifier) -> None:
    """Half of a sample from the source is no shift against the other half."""
    with torch.no_grad():
        h = entropy(gn(images(1000, seed=5).double())).numpy()
    source, stream = CDF(h[:500]), h[500:]
    s = wealth(source(np.stack([stream, stream[::-1]])))
    assert s.max() < 20
    assert wealth(source(stream[None] * 1.5)).max() > 100


def test_poem_without_a_bet_changes_nothing(gn: Classifier) -> None:
    """ε = 0 matches every entropy of the source to itself."""
    method = ready(POEM(gn, POEMConfig(gamma=0.0, delayed_start=0, lr=0.1)))
    for batch in clean().split(40):
        method.adapt(batch)
    assert distance(method, gn) < 1e-9
    assert method.bettor.log_wealth == 0


def test_poem_moves_little_without_and_much_with_a_shift(gn: Classifier) -> None:
    """A shift that is not adapted to is betted on ever more; one that is adapted to, no longer."""
    moved = []
    for shift, lr in ((0.0, 0.01), (0.4, 0.01), (0.4, 0.0)):
        method = ready(POEM(gn, POEMConfig(delayed_start=0, lr=lr, weighted=False)))
        for batch in images(400, seed=6, shift=shift).double().split(40):
            method.adapt(batch)
        moved.append((distance(method, gn), method.bettor.log_wealth))
    (still, calm), (far, calmed), (_, alarmed) = moved
    assert far > 3 * still
    assert max(calm, calmed) < math.log(20) < alarmed


def test_poem_brings_entropies_nearer_to_the_sources(gn: Classifier) -> None:
    x = images(400, seed=6, shift=0.4).double()
    method = ready(POEM(gn, POEMConfig(delayed_start=0, lr=0.01, weighted=False)))
    for batch in x.split(40):
        method.adapt(batch)

    def gap(model: Any) -> float:
        with torch.no_grad():
            u = method.cdf(entropy(model(x)).numpy())
        return abs(float(u.mean()) - 0.5)

    assert gap(method.model) < 0.7 * gap(gn)


def test_poem_waits_and_says_what_it_needs(gn: Classifier, x: Tensor) -> None:
    method = ready(POEM(gn, POEMConfig(delayed_start=60, lr=0.1, weighted=False)))
    method.adapt(x)
    assert distance(method, gn) == 0
    method.adapt(x)
    assert distance(method, gn) > 0
    with pytest.raises(UserError, match="prepare"):
        POEM(gn).prepare()


def test_poem_temperature_divides_what_is_scored(gn: Classifier, x: Tensor) -> None:
    warm = ready(POEM(gn, POEMConfig(temperature=2.0)))
    torch.testing.assert_close(warm.adapt(x), gn(x).detach() / 2)
    torch.testing.assert_close(warm.predict(x), gn(x).detach() / 2)


@pytest.mark.parametrize("quirks", [False, True])
def test_poem_quirks(gn: Classifier, x: Tensor, quirks: bool) -> None:
    """The weight once or squared; the first image learned from or not; ε within its limit or past it."""
    method = ready(POEM(gn, POEMConfig(official_quirks=quirks)))
    h = torch.tensor([method.e0 - 0.5], dtype=torch.double)
    assert float(method.loss(h, h + 1)) == pytest.approx(math.exp(0.5 * (2 if quirks else 1)) / 2)
    method.adapt(x[:1])
    assert (method.bettor.bet == 0) == quirks
    bettor = Bettor(0.5, 0.6, quirks)
    for _ in range(20):
        bettor(1.0)
    assert (bettor.bet > 0.6) == quirks


def test_poem_limit_is_a_share_of_the_largest_entropy(gn: Classifier) -> None:
    assert ready(POEM(gn, POEMConfig(e0_factor=0.3))).e0 == pytest.approx(0.3 * math.log(CLASSES))
