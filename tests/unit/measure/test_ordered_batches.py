"""The order of a stream: pinned, and with the properties that its docstring states."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.cases import each
from ttabench.measure.contamination import Mixture, foreign_images, interleave
from ttabench.measure.order_and_batches import Stream, arrange
from ttabench.nn.pixels import to_tensor

LABELS = np.arange(120) % 4


def digest(array: NDArray[np.generic]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


@each(
    ("order", "seed", "expected"),
    [
        ("iid", 0, "b789790f3a1b41a1"),
        ("iid", 1, "89c28bb895cd1a5e"),
        ("dirichlet(0.1)", 0, "6c3559902306b28b"),
        ("dirichlet(0.1)", 1, "cdadd59804f76391"),
        ("dirichlet(1)", 0, "f178bf1e4e77300d"),
        ("dirichlet(10)", 0, "14a95a06f150bbfe"),
    ],
)
def test_orders_are_the_same_in_every_release(order: str, seed: int, expected: str) -> None:
    # Stored results say which order they were measured in by its name alone: these may never change.
    assert digest(arrange(order, LABELS, seed).astype("<i8")) == expected


def test_foreign_images_and_their_places_are_the_same_in_every_release() -> None:
    foreign = foreign_images("noise(0.25)", np.zeros((6, 4, 4, 3), np.uint8), seed=3)
    assert digest(foreign) == "c2087e9fafda1c45"
    assert digest(interleave(np.arange(9), 9, 3, seed=3).astype("<i8")) == "25c8a24369fb95fa"


def test_a_dirichlet_stream_shuffles_the_members_of_a_class() -> None:
    """Otherwise the first images of the test set would always come first."""
    one_class = np.zeros(200, int)
    result = arrange("dirichlet(1)", one_class, 0)
    assert abs(np.corrcoef(result, np.arange(200))[0, 1]) < 0.3
    few = np.repeat([0, 1], 100)
    first_slots = [arrange("dirichlet(1)", few, seed)[:20] for seed in range(30)]
    means = [float(np.mean(slot % 100)) for slot in first_slots]
    assert abs(np.mean(means) - 49.5) < 6  # which members come early is a matter of chance


def test_a_dirichlet_stream_mixes_the_classes_of_a_slot() -> None:
    """With a large δ all slots hold all classes alike; unshuffled, each would be sorted by class."""
    labels = np.repeat(np.arange(4), 100)
    stream = labels[arrange("dirichlet(1000)", labels, 0)]
    assert float((stream[1:] == stream[:-1]).mean()) < 0.35


@pytest.mark.parametrize(("smaller", "larger"), [(0.01, 0.1), (0.1, 1), (1, 10), (10, 1000)])
def test_a_smaller_delta_correlates_neighbours_more(smaller: float, larger: float) -> None:
    labels = np.arange(2000) % 10

    def same(concentration: float) -> float:
        streams = [labels[arrange(f"dirichlet({concentration})", labels, seed)] for seed in range(5)]
        return float(np.mean([(s[1:] == s[:-1]).mean() for s in streams]))

    assert same(smaller) > same(larger) + 0.005


def test_slots_are_as_many_as_classes_and_cover_their_shares() -> None:
    """δ → ∞: every slot gets the same share of every class, to within rounding."""
    labels = np.repeat(np.arange(5), 50)
    stream = labels[arrange("dirichlet(1e9)", labels, 0)]
    for slot in np.array_split(stream, 5):
        assert np.bincount(slot, minlength=5).tolist() == [10] * 5


def test_labels_need_not_start_at_0_or_be_contiguous() -> None:
    labels = np.array([7, 7, 3, 3, 3, 9])
    assert sorted(arrange("dirichlet(0.5)", labels, 0)) == list(range(6))


def stream(n: int = 10, batch_size: int = 4) -> Stream:
    images = np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    return Stream(images, np.arange(n)[::-1].copy(), batch_size)


def test_batches_follow_the_positions_and_the_last_may_be_short() -> None:
    seen = [(255 * x[:, 0, 0, 0]).round().int().tolist() for x in stream()]
    assert seen == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]


@each(("n", "batches"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_the_length_of_a_stream_is_its_number_of_batches(n: int, batches: int) -> None:
    made = stream(n)
    assert (len(made), made.count, made.batch_size) == (batches, n, 4)
    assert len(list(made)) == batches
    assert len(list(made.shuffled())) == batches


def test_a_shuffled_pass_is_fresh_each_time_and_torchs_seed_decides() -> None:
    made = stream(50, 50)
    torch.manual_seed(0)
    first, second = (next(iter(made.shuffled()))[0].tolist() for _ in range(2))
    torch.manual_seed(0)
    assert next(iter(made.shuffled()))[0].tolist() == first
    assert first != second
    assert sorted(first) == list(range(50))
    assert first != list(range(50))


def test_each_batch_ticks_once_in_either_kind_of_pass() -> None:
    ticks: list[int] = []
    made = Stream(np.zeros((10, 2, 2, 3), np.uint8), np.arange(10), 4, tick=lambda: ticks.append(1))
    list(made)
    assert len(ticks) == 3
    list(made.shuffled())
    assert len(ticks) == 6


def test_pixels_are_scaled_to_1_without_touching_the_images() -> None:
    images = np.array([0, 51, 255], np.uint8).reshape(1, 1, 1, 3)
    x = to_tensor(images)
    assert x.dtype == torch.float32
    assert x.flatten().tolist() == pytest.approx([0, 0.2, 1])
    assert images.flatten().tolist() == [0, 51, 255]
    assert to_tensor(np.zeros((2, 5, 7, 3), np.uint8)).shape == (2, 3, 5, 7)


@pytest.mark.parametrize(("fraction", "foreign"), [(0.5, 40), (0.2, 10), (0.25, 13), (0.9, 360)])
def test_the_share_of_foreign_images_is_of_the_whole_stream(fraction: float, foreign: int) -> None:
    made = foreign_images(f"noise({fraction})", np.zeros((40, 8, 8, 3), np.uint8), seed=0)
    assert len(made) == foreign
    assert len(made) / (40 + len(made)) == pytest.approx(fraction, abs=0.01)
    assert (made.min(), made.max()) == (0, 255)


def test_a_mixture_finds_either_kind() -> None:
    ours, other = np.full((3, 1, 1, 3), 1, np.uint8), np.full((2, 1, 1, 3), 2, np.uint8)
    other[1] = 3
    taken = Mixture(ours, other)[np.array([4, 0, 3, 2])]
    assert taken[:, 0, 0, 0].tolist() == [3, 1, 2, 1]


def test_foreign_images_are_spread_over_the_whole_stream() -> None:
    places = np.flatnonzero(interleave(np.arange(900), 900, 100, 0) >= 900)
    assert len(places) == 100
    assert 400 < places.mean() < 600
    assert np.diff(places).max() < 120


def test_batches_are_on_the_device_that_was_asked_for() -> None:
    """Torch's meta device holds shapes alone, so that no second device is needed."""
    images = np.zeros((5, 4, 4, 3), np.uint8)
    assert to_tensor(images, "meta").device.type == "meta"
    stream = Stream(images, np.arange(5), 2, "meta")
    assert [x.device.type for x in stream] == ["meta"] * 3
    assert [x.device.type for _, x in stream.shuffled()] == ["meta"] * 3
