"""Label-free scores: their formulas, their extremes, and that a cell collects the logits that are scored."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from tests.one_set import evaluate
from tests.unit.measure.test_scoring import CLASSES, Reads, data
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.observe.label_free_scores import (
    CHEAP,
    IMAGES,
    NEIGHBOURS,
    ROWS,
    Collected,
    consistency,
    moved,
    nuclear_norm,
    sample,
    snd,
    source_accuracy,
)
from ttabench_methods.source import Source

DRAW = torch.Generator().manual_seed(0)


def batches_of(size: int) -> Protocol:
    return Protocol(batch_size=size)


def collected(logits: torch.Tensor, batch: int = 7) -> dict[str, float | None]:
    seen = Collected()
    for some in logits.split(batch):
        seen.add(some)
    return seen.scores()


def test_the_formulas_hold_whatever_the_batches() -> None:
    logits = 3 * torch.randn(60, 4, generator=DRAW)
    p = softmax(logits.double().numpy(), axis=1)
    mean = p.mean(0)
    within = -(p * np.log(p)).sum(1).mean()
    unit = p / np.linalg.norm(p, axis=1, keepdims=True)
    similar = unit @ unit.T / 0.05
    rows = [np.delete(row, i) for i, row in enumerate(similar)]
    density = np.mean([-(q * np.log(q)).sum() for q in map(softmax, rows)])
    expected = {
        "entropy": -within,
        "infomax": -(mean * np.log(mean)).sum() - within,
        "nuclear_norm": np.linalg.norm(p, "nuc") / np.sqrt(60 * 4),
        "snd": density,
    }
    for batch in (1, 7, 60):
        result = collected(logits, batch)
        assert tuple(result) == CHEAP
        assert result == pytest.approx(expected, abs=2e-6)


def test_extremes() -> None:
    certain_and_even = 1e3 * torch.eye(5).repeat(8, 1)
    best = collected(certain_and_even)
    assert best["entropy"] == pytest.approx(0, abs=1e-6)
    assert best["infomax"] == pytest.approx(math.log(5), abs=1e-6)
    assert best["nuclear_norm"] == pytest.approx(1, abs=1e-6)
    collapsed = 1e3 * torch.eye(5)[:1].repeat(40, 1)
    worst = collected(collapsed)
    assert worst["entropy"] == pytest.approx(0, abs=1e-6)  # entropy alone does not see a collapse
    assert worst["infomax"] == pytest.approx(0, abs=1e-6)
    assert worst["nuclear_norm"] == pytest.approx(1 / math.sqrt(5), abs=1e-6)
    assert collected(torch.zeros(40, 5))["infomax"] == pytest.approx(0, abs=1e-6)


def test_density_is_highest_where_all_are_neighbours() -> None:
    same = torch.full((20, 3), 1 / 3)
    assert snd(same) == pytest.approx(math.log(19), abs=1e-5)
    pairs = torch.eye(10).repeat_interleave(2, dim=0)  # each has one neighbour
    assert snd(pairs) == pytest.approx(0, abs=1e-4)


def test_the_nuclear_norm_is_that_of_the_transposed_matrix() -> None:
    p = torch.rand(6, 30, generator=DRAW)
    assert nuclear_norm(p) == pytest.approx(np.linalg.norm(p.numpy(), "nuc") / np.sqrt(6 * 6), rel=1e-6)


def test_of_many_images_rows_at_equal_distances_are_kept() -> None:
    n = 9 * ROWS + 123
    logits = torch.zeros(n, 2)
    logits[:, 0] = torch.arange(n) / n  # so that each row can be told
    seen = Collected()
    for some in logits.split(97):
        seen.add(some)
    kept = seen._rows[: seen._kept, 0].logit() * n
    steps = kept.diff().round()
    assert ROWS <= len(kept) < 2 * ROWS
    assert len(steps.unique()) == 1
    assert seen.scores()["entropy"] == pytest.approx(
        float((logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()), abs=1e-5
    )
    assert ROWS > NEIGHBOURS


def test_too_few_images_have_no_score() -> None:
    assert Collected().scores() == dict.fromkeys(CHEAP)
    assert collected(torch.randn(1, 3, generator=DRAW))["snd"] is None


def source() -> Source:
    return Source(Classifier.wrap(Reads()), Source.Config())


def test_the_logits_of_scored_images_are_collected_and_no_others() -> None:
    seen: list[torch.Tensor] = []
    evaluate(source(), data(8), Protocol(batch_size=3), 0, on_logits=seen.append)
    assert torch.equal(torch.cat(seen).sum(0), torch.full((CLASSES,), 2.0))
    for protocol, count in (
        (Protocol(batch_size=4, held_out=0.5), 4),
        (Protocol(batch_size=4, contamination="noise(0.5)"), 8),
        (Protocol(batch_size=4, limit=5), 5),
    ):
        seen.clear()
        evaluate(source(), data(8), protocol, 0, on_logits=seen.append)
        assert sum(map(len, seen)) == count
    seen.clear()
    evaluate(source(), data(8), Protocol(), 0, scored_classes=[1, 3], on_logits=seen.append)
    assert torch.equal(torch.cat(seen).sum(0), torch.full((2,), 2.0))


def test_a_batch_of_foreign_images_alone_adds_nothing() -> None:
    """Also the first one, as with one image at a time."""
    logits = torch.randn(12, 4, generator=DRAW)
    seen = Collected()
    for some in (logits[:0], logits[:5], logits[:0], logits[5:]):
        seen.add(some)
    assert seen.scores() == collected(logits)


def test_collecting_changes_no_number() -> None:
    plain = evaluate(source(), data(20), Protocol(batch_size=3), 0)
    collected = evaluate(source(), data(20), Protocol(batch_size=3), 0, on_logits=Collected().add)
    assert plain.correct.tolist() == collected.correct.tolist()
    assert plain.calibration == collected.calibration


def test_the_accuracy_on_source_images_is_exact() -> None:
    right = data(30)
    assert source_accuracy(source(), right, batches_of(7), "cpu") == 100
    wrong = Labelled(right.images, np.where(np.arange(30) < 12, (right.labels + 1) % CLASSES, right.labels))
    assert source_accuracy(source(), wrong, batches_of(7), "cpu") == pytest.approx(60)


def test_consistency_compares_predictions_for_an_image_and_for_a_moved_one() -> None:
    method, images = source(), data(40).images
    even = np.zeros_like(images)  # moving changes nothing
    assert consistency(method, even, batches_of(7), "cpu", 0) == 100
    state = torch.get_rng_state()
    result = consistency(method, images, batches_of(7), "cpu", 0)  # the class is in the first pixel alone
    assert torch.equal(state, torch.get_rng_state())
    assert 0 < result < 90
    assert consistency(method, images, batches_of(7), "cpu", 0) == result
    assert consistency(method, images, batches_of(40), "cpu", 0) == result
    assert len({consistency(method, images, batches_of(40), "cpu", seed) for seed in range(5)}) > 1


def test_a_view_is_the_image_moved_by_at_most_an_eighth_with_its_edge_repeated() -> None:
    x = torch.arange(16.0).repeat(200, 3, 16, 1)  # columns are numbered
    views = moved(x, torch.Generator().manual_seed(0))
    steps = views - x
    assert views.shape == x.shape
    assert {float(step[0, 0, 5]) for step in steps} == {-2, -1, 0, 1, 2}
    assert (steps[:, :, :, 4:12] == steps[:, :, :, 4:5]).all()
    assert ((views >= 0) & (views <= 15)).all()


def test_a_sample_has_each_image_once() -> None:
    assert sorted(sample(30, 1)) == list(range(30))
    assert len(set(sample(10 * IMAGES, 1))) == IMAGES
