"""Intervals cover what they claim to cover, and pairing helps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.stats import binomtest, bootstrap, norm, t, ttest_1samp

from tests.cases import each
from ttabench_reports.evidence import stats
from ttabench_reports.evidence.stats import (
    Moments,
    Spread,
    bootstrap_means,
    holm,
    mcnemar,
    mean_fell,
    percentiles,
    resamples,
    wilson,
)


def spread_of(values: ArrayLike) -> Spread:
    """Of values (seeds, n), from their sums and products."""
    x = np.asarray(values, dtype=float)
    products = x @ x.T
    return Spread.from_moments(x.sum(axis=1), products.sum(), np.trace(products), x.shape[1])


def p_of(spread: Spread) -> float:
    """Of a mean of zero, two-sided: the level at which an interval of Student's t just reaches zero."""
    mean, images, seeds = (np.array([value]) for value in (spread.mean, spread.images, spread.seeds))
    return float(stats._p_values(mean, images, seeds, spread.n_images, spread.n_seeds)[0])


def interval(
    values: np.ndarray, draws: np.ndarray | None = None, confidence: float = 0.95
) -> tuple[float, float]:
    """Of the mean of values (seeds, n)."""
    draws = bootstrap_means(values.mean(axis=0)[None])[:, 0] if draws is None else draws
    low, high = percentiles(draws, confidence)
    return spread_of(values).between(low, high, confidence)


@settings(deadline=None)  # busy machines
@given(
    st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999)
)
def test_wilson_is_scipys(counts: tuple[int, int], confidence: float) -> None:
    right, n = counts
    low, high = wilson(100 * right / n, n, confidence)
    theirs = binomtest(right, n).proportion_ci(confidence, method="wilson")
    np.testing.assert_allclose([low, high], [100 * theirs.low, 100 * theirs.high], atol=1e-9)
    assert 0 <= low <= 100 * right / n + 1e-9
    assert 100 * right / n - 1e-9 <= high <= 100


def test_wilson_broadcasts_and_narrows_with_images() -> None:
    low, high = wilson(90.0, [100, 1000, 10_000])
    assert low.shape == (3,)
    assert np.all(np.diff(high - low) < 0)


def test_wilson_stays_within_0_and_100_however_it_is_rounded() -> None:
    n = np.arange(1, 2000)
    assert wilson(0.0, n)[0].min() == 0
    assert wilson(100.0, n)[1].max() == 100


@each("confidence", [0.0, 1.0, 1.5, 95.0, math.nan])
def test_a_confidence_is_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        wilson(90.0, 100, confidence)
    with pytest.raises(ValueError, match="confidence"):
        percentiles([0.0, 1.0], confidence)


def draw(
    rng: np.random.Generator, n: int, both: float, only_a: float, only_b: float
) -> tuple[np.ndarray, np.ndarray]:
    u = rng.random(n)
    a = u < both + only_a
    return a, (u < both) | ((u >= both + only_a) & (u < both + only_a + only_b))


def test_mcnemar_rarely_cries_wolf_and_sees_what_is_there() -> None:
    rng = np.random.default_rng(1)

    def p_value(n: int, both: float, only_a: float, only_b: float) -> float:
        a, b = draw(rng, n, both, only_a, only_b)
        return float(mcnemar((a & ~b).sum(), (b & ~a).sum()))

    null = [p_value(400, 0.8, 0.05, 0.05) for _ in range(400)]
    assert np.mean(np.array(null) < 0.05) <= 0.07
    assert p_value(2000, 0.7, 0.05, 0.15) < 1e-6


def test_a_mean_that_fell_is_tested_by_images_and_from_three_seeds_on_by_seeds() -> None:
    rng = np.random.default_rng(3)
    by_image = rng.standard_normal(200) - 0.1
    expected = ttest_1samp(by_image, 0, alternative="less").pvalue
    assert mean_fell(by_image) == pytest.approx(expected)
    assert mean_fell(by_image, [5.0, -5.0]) == pytest.approx(expected)  # two seeds say next to nothing
    assert mean_fell(by_image, [-0.1, -0.1, -0.1]) == pytest.approx(expected)
    assert mean_fell(by_image, [0.5, -0.7, -0.1]) > expected
    assert mean_fell(-by_image) == pytest.approx(1 - expected)
    assert mean_fell([-1.0, -2.0]) == pytest.approx(ttest_1samp([-1, -2], 0, alternative="less").pvalue)
    assert (mean_fell(np.zeros(9)), mean_fell([-1.0]), mean_fell([1.0])) == (1.0, 0.5, 1.0)


@each("n", [1, 2, 3, 5, 7, 30])
def test_where_all_images_change_alike_the_sign_decides(n: int) -> None:
    """However their mean is rounded: that of three times −0.1 is not −0.1."""
    for change in (-0.2, -0.1, -1 / 3):
        assert mean_fell([change] * n) == 0.5**n
        assert mean_fell([change] * n, [change] * 3) == 0.5**n
        assert mean_fell([-change] * n) == 1.0


@each(("a", "b"), [(0, 0), (0, 1), (1, 0), (3, 3), (1, 9), (12, 30), (200, 150)])
def test_mcnemar_is_scipys_binomial_test(a: int, b: int) -> None:
    expected = binomtest(b, a + b, 0.5).pvalue if a + b else 1.0
    assert mcnemar(a, b) == pytest.approx(expected)
    assert mcnemar([a, b], [b, a]) == pytest.approx([expected] * 2)
    assert mcnemar(np.uint8(a), np.uint8(b)) == pytest.approx(expected)  # 200 + 150 is no byte
    less = binomtest(b, a + b, 0.5, "less").pvalue if a + b else 1.0
    assert mcnemar(a, b, "less") == pytest.approx(less)


def test_holm_by_hand_and_never_below_the_plain_p() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    adjusted = holm([0.02, math.nan, 0.03])
    assert adjusted[[0, 2]] == pytest.approx([0.04, 0.04])
    assert math.isnan(adjusted[1])
    assert holm([]).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_as_the_step_down_procedure_does(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    left = sorted(p_values)
    rejected = 0
    while rejected < len(left) and left[rejected] * (len(left) - rejected) <= 0.05:
        rejected += 1
    assert int((adjusted <= 0.05).sum()) == rejected


def test_bootstrap_is_paired_and_agrees_with_scipys() -> None:
    rng = np.random.default_rng(4)
    values = rng.binomial(15, [[0.7], [0.9]], (2, 400)) / 15
    draws = bootstrap_means(values)
    assert draws.dtype == np.float32  # half the memory
    bounds = np.quantile(draws.astype(float), [0.025, 0.975], axis=0)
    assert np.array_equal(percentiles(draws), bounds)
    difference = bootstrap_means(values[1:] - values[:1])[:, 0]
    np.testing.assert_allclose(draws[:, 1] - draws[:, 0], difference, atol=1e-5)  # the same resamples
    theirs = bootstrap((values[0],), np.mean, n_resamples=20_000, method="percentile", rng=5)
    expected = (theirs.confidence_interval.low, theirs.confidence_interval.high)
    assert interval(values[:1]) == pytest.approx(expected, abs=0.15 * theirs.standard_error)
    p = p_of(spread_of(values[:1]))
    assert p == pytest.approx(ttest_1samp(values[0], 0).pvalue, abs=1e-12)


def test_resamples_draw_every_image_equally_often_and_are_the_same_in_every_process() -> None:
    n, times = 50, 1000
    counts = resamples(n).copy()
    assert counts.shape == (times, n)
    assert (counts.sum(axis=1) == n).all()
    drawn = counts.sum(axis=0, dtype=int)
    error = math.sqrt(times * (1 - 1 / n))
    assert np.abs(drawn - times).max() < 5 * error
    resamples.cache_clear()  # as in a new process
    assert np.array_equal(resamples(n), counts)


def test_the_interval_of_few_images_has_the_standard_error_of_a_sample() -> None:
    """Bootstrap samples vary around the mean of n images with the variance over n, not over n − 1."""
    values = np.array([[0.1, 0.4, 0.5, 0.6, 0.9]])
    draws = norm.ppf((np.arange(20_000) + 0.5) / 20_000) * values.std() / math.sqrt(5) + 0.5
    half = norm.ppf(0.975) * values.std(ddof=1) / math.sqrt(5)
    assert interval(values, draws) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-3)


def test_an_interval_is_long_on_the_side_where_the_bootstrap_is() -> None:
    values = np.array([[0.0, 0.9, 0.9, 0.9, 1.0]])
    mean = values.mean()
    low, high = interval(values, np.linspace(mean - 0.3, mean + 0.1, 1001))
    assert mean - low > 2 * (high - mean) > 0


def test_an_interval_with_seeds_adds_the_half_widths_in_squares() -> None:
    rng = np.random.default_rng(13)
    values = rng.random((1, 50)) + rng.random((3, 50)) + np.array([[0.0], [0.1], [0.2]])
    spread, mean = spread_of(values), values.mean()
    assert 0.5 < spread.images / spread.plain < 0.95
    wider = math.sqrt(50 / 49) * spread.images / spread.plain
    half = t.ppf(0.975, 2) * spread.seeds
    expected = mean - math.hypot(0.2 * wider, half), mean + math.hypot(0.1 * wider, half)
    assert spread.between(mean - 0.2, mean + 0.1) == pytest.approx(expected)
    assert spread.between(mean + 0.1, mean - 0.1) == pytest.approx((mean - half, mean + half))


@each("seeds", [1, 3])
def test_values_that_are_all_equal_have_an_interval_without_a_width(seeds: int) -> None:
    assert interval(np.full((seeds, 20), 0.5)) == (0.5, 0.5)


def test_a_difference_that_all_images_share_is_sure() -> None:
    for seeds in (1, 3):
        moments = Moments(np.stack([np.zeros((seeds, 20)), np.ones((seeds, 20))]))
        assert moments.p_values(1, [0]).tolist() == [0.0]


def test_a_bootstrap_mean_is_over_every_image() -> None:
    """4,200 images are more than are summed at once."""
    values = np.random.default_rng(7).random((2, 4200))
    expected = resamples(4200).astype(float) @ values.T / 4200
    np.testing.assert_allclose(bootstrap_means(values), expected, rtol=1e-5)


@each("seeds", [1, 3])
def test_sums_over_many_images_are_exact(seeds: int) -> None:
    values = np.random.default_rng(8).integers(3000, 3100, (2, seeds, 200_000), dtype=np.uint16)
    exact = values.astype(np.int64)
    over_seeds = exact.sum(axis=1)
    moments = Moments(values)
    assert np.array_equal(moments.sums, exact.sum(axis=2))
    assert np.array_equal(moments.across, over_seeds @ over_seeds.T)
    assert np.array_equal(moments.within, np.einsum("asn,bsn->ab", exact, exact))


def test_products_are_exact_from_the_first_sum_on_that_32_bits_do_not_hold() -> None:
    assert Moments(np.array([[[4095, 4094]]])).across.item() == 4095**2 + 4094**2


@pytest.mark.parametrize("n", [1, 7, 64, 1001])
def test_right_and_wrong_are_counted_in_bits_to_the_same_sums(n: int) -> None:
    right = (np.random.default_rng(n).random((9, 2, n)) < 0.7).astype(np.uint8)
    for values in (right, 2 * right):  # of which the second has more than one bit
        bits, numbers = Moments(values), Moments(values.astype(float))
        assert np.array_equal(bits.sums, numbers.sums)
        assert np.array_equal(bits.across, numbers.across)
        assert np.array_equal(bits.within, numbers.within)


def test_a_p_value_is_the_level_at_which_the_interval_reaches_zero() -> None:
    rng = np.random.default_rng(5)
    for seeds in (1, 2, 4):
        values = (rng.random((seeds, 500)) < 0.52) - 0.5 + 0.01 * rng.standard_normal((seeds, 1))
        low, high = interval(values)
        nearest = np.abs(interval(values, confidence=1 - p_of(spread_of(values)))).min()
        assert nearest < 0.15 * (high - low)


def test_p_values_are_interpolated_between_all_levels() -> None:
    """From the smallest distances to those beyond the last level, with and without errors of images."""
    levels, by_image, by_seed = stats._reach(999, 2)
    rng = np.random.default_rng(11)
    means = np.concatenate([10.0 ** rng.uniform(-9, 8, 300), [0.0, by_seed[40], by_seed[-1]]])
    images = rng.choice([0.0, 1e-3, 1.0], len(means))
    images[-2:] = 0
    p = stats._p_values(means, images, np.ones_like(means), 1000, 3)
    for value, mean, image in zip(p, means, images, strict=True):
        reach = np.hypot(image * by_image, by_seed)
        assert value == pytest.approx(np.exp(np.interp(mean, reach, levels)), rel=1e-9, abs=0)


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_moments_give_what_the_values_give(seeds: int) -> None:
    rng = np.random.default_rng(9)
    values = rng.binomial(15, [[[0.7]], [[0.72]], [[0.9]]], (3, seeds, 200))
    moments = Moments(values)
    for a, b in ((0, 1), (2, 0)):
        direct, quick = spread_of(values[a] - values[b]), moments.spread(a, b)
        for name in ("mean", "plain", "images", "seeds", "n_images", "n_seeds"):
            assert getattr(quick, name) == pytest.approx(getattr(direct, name), rel=1e-9, abs=1e-9)
        mine = spread_of(values[a])
        assert moments.spread(a).plain == pytest.approx(mine.plain, rel=1e-6)
        assert moments.is_lower(a, b) == (values[a].mean() < values[b].mean())
        assert not moments.is_lower(a, a)
        by_image = (values[a] - values[b]).mean(axis=0)
        assert quick.plain == pytest.approx(by_image.std(ddof=1) / math.sqrt(200))
        by_seed = (values[a] - values[b]).mean(axis=1)
        assert quick.seeds == pytest.approx(by_seed.std(ddof=1) / math.sqrt(seeds) if seeds > 2 else 0.0)
    right = values[:, :1] > 10
    assert Moments(right).discordant(0, 1) == (
        int((right[0, 0] & ~right[1, 0]).sum()), int((right[1, 0] & ~right[0, 0]).sum())
    )  # fmt: skip


def test_standard_errors_are_those_of_the_analysis_of_variance() -> None:
    rng = np.random.default_rng(12)
    x = 0.01 * (rng.random((1, 50)) + rng.random((3, 1)) + rng.random((3, 50)))
    of_image, of_seed = x.mean(axis=0) - x.mean(), x.mean(axis=1) - x.mean()
    rest = x - x.mean() - of_image - of_seed[:, None]
    ms_image, ms_seed = 3 * (of_image**2).sum() / 49, 50 * (of_seed**2).sum() / 2
    ms_rest = (rest**2).sum() / (49 * 2)
    assert ms_image > 1.5 * ms_rest
    spread = spread_of(x)
    assert spread.plain == pytest.approx(math.sqrt(ms_image / 150))
    assert spread.images == pytest.approx(math.sqrt((ms_image - ms_rest) / 150))
    assert spread.seeds == pytest.approx(math.sqrt(ms_seed / 150))


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_p_values_of_many_pairs_are_those_of_each(seeds: int) -> None:
    rng = np.random.default_rng(10)
    values = rng.binomial(15, [[[0.7]], [[0.72]], [[0.9]], [[0.7]]], (4, seeds, 200))
    values[3] = values[0]  # no difference at all
    values[2, :] = values[2, :1]  # none between seeds
    moments = Moments(values)
    for a in range(4):
        others = [b for b in (3, 1, 0, 2) if b != a]
        expected = [p_of(moments.spread(a, b)) for b in others]
        assert moments.p_values(a, others).tolist() == expected
    assert moments.p_values(0, [3]).tolist() == [1.0]
    difference = (values[1] - values[0]).mean(axis=0)
    if seeds == 1:
        assert moments.p_values(0, [1])[0] == pytest.approx(ttest_1samp(difference, 0).pvalue)
    right = values[:, :1] > 10
    only = Moments(right).discordant(0, [1, 2])
    assert [tuple(map(int, pair)) for pair in zip(*only, strict=True)] == [
        Moments(right).discordant(0, b) for b in (1, 2)
    ]


def test_a_second_seed_does_not_hide_a_difference() -> None:
    """Student's t with one degree of freedom would: its p-values hardly fall with the difference."""
    rng = np.random.default_rng(11)
    values = rng.binomial(15, [[0.50], [0.52]], (2, 1000)) / 15 - 0.45
    by_image = values.mean(axis=0)
    assert p_of(spread_of(values)) == pytest.approx(ttest_1samp(by_image, 0).pvalue)
    assert interval(values) == interval(by_image[None])


SHIFTS = np.linspace(-1, 1, 15, dtype=np.float32) + 1  # how easy each corruption is


def measured(rng: np.random.Generator, n: int, seeds: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares right (seeds, n) of two methods over 15 corruptions of the same images."""
    image = rng.standard_normal((1, 1, n), np.float32) + 0.7 * rng.standard_normal((1, 15, n), np.float32)

    def shares(better: float) -> np.ndarray:
        chance = 0.5 * rng.standard_normal((seeds, 15, n), np.float32)
        seed = spread * rng.standard_normal((seeds, 1, 1), np.float32)
        return (image + chance + seed + SHIFTS[:, None] + better > 0).mean(axis=1)

    return shares(0.0), shares(0.1)


# One seed and several of them are tried at each commit; other sizes of the same two forms at night.
AT_NIGHT = [(1000, 1, 0.0), (300, 3, 0.0), (300, 3, 0.2), (300, 5, 0.05)]


@pytest.mark.parametrize(
    ("n", "seeds", "spread"),
    [(300, 1, 0.0), (300, 3, 0.05), *(pytest.param(*study, marks=pytest.mark.slow) for study in AT_NIGHT)],
)
def test_intervals_cover_the_truth_in_95_of_100_simulated_studies(n: int, seeds: int, spread: float) -> None:
    """Of the paired difference; the true one is known from the normal distribution."""
    rng = np.random.default_rng(6)
    scale = math.sqrt(1 + 0.7**2 + 0.5**2 + spread**2)
    truth = (norm.cdf((SHIFTS + 0.1) / scale) - norm.cdf(SHIFTS / scale)).mean()
    studies = [np.subtract(*measured(rng, n, seeds, spread)[::-1]) for _ in range(1000)]
    draws = bootstrap_means(np.stack([x.mean(axis=0) for x in studies]))
    actual = [interval(x, draws[:, k]) for k, x in enumerate(studies)]
    covered = np.mean([low <= truth <= high for low, high in actual])
    assert 0.93 <= covered <= 0.97
    # And the test of the true difference rejects as rarely as it says.
    null = [p_of(spread_of(x - truth)) for x in studies]
    assert 0.03 <= np.mean(np.array(null) < 0.05) <= 0.07
