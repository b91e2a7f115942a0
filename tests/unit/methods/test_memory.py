"""The memories of RoTTA and SoTTA: what they hold, whatever arrives."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ttabench.nn import entropy, stabilised_entropy
from ttabench_methods.memory import CSTU, HUS, Item, Memory

IMAGE = torch.zeros(3, 2, 2)

sizes = st.tuples(st.integers(1, 12), st.integers(2, 6))
arrivals = st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1.6)), max_size=60)


def held(memory: Memory) -> list[list[int]]:
    return [[item.arrival for item in items] for items in memory.classes]


@given(sizes, arrivals, st.floats(0, 2), st.floats(0, 2))
def test_cstu(
    size: tuple[int, int], stream: list[tuple[int, float]], lambda_t: float, lambda_u: float
) -> None:
    """Bounded, in order of arrival, and whoever leaves was worse than whoever enters."""
    capacity, classes = size
    memory = CSTU(capacity, classes, lambda_t, lambda_u)
    share = capacity / classes
    for now, (label, uncertainty) in enumerate(stream):
        label %= classes
        newcomer, before = Item(IMAGE, now, uncertainty), memory.items()
        counts = [len(items) for items in memory.classes]
        memory.insert(newcomer, label)
        removed = set(before) - set(memory.items())
        entered = newcomer in memory.classes[label]
        if counts[label] < share and len(before) < capacity:
            assert entered
            assert not removed
        else:
            assert len(removed) == entered
            assert len(memory) == len(before)
            rivals = [label] if counts[label] >= share else memory_largest(counts)
            scores = [memory.score(item, now) for item in before if label_of(item, stream, classes) in rivals]
            assert entered == (max(scores) > memory.score(newcomer, now))
            assert all(memory.score(item, now) == max(scores) for item in removed)
        assert all(len(items) <= math.ceil(share) for items in memory.classes)
        assert len(memory) <= capacity
        assert all(order == sorted(order) for order in held(memory))


def memory_largest(counts: list[int]) -> list[int]:
    return [label for label, n in enumerate(counts) if n == max(counts)]


def label_of(item: Item, stream: list[tuple[int, float]], classes: int) -> int:
    return stream[item.arrival][0] % classes


def test_cstu_with_fewer_places_than_classes_holds_one_of_a_class_at_most() -> None:
    memory = CSTU(3, 10)
    for now in range(50):
        memory.insert(Item(IMAGE, now, 0.5), now % 4)
    assert len(memory) == 3
    assert max(map(len, memory.classes)) == 1


def test_cstu_prefers_the_young_and_the_certain() -> None:
    memory = CSTU(4, 2)
    old, young = Item(IMAGE, 0, 0.3), Item(IMAGE, 9, 0.3)
    sure, unsure = Item(IMAGE, 5, 0.1), Item(IMAGE, 5, 0.6)
    assert memory.score(old, 10) > memory.score(young, 10)
    assert memory.score(unsure, 10) > memory.score(sure, 10)
    newest_and_surest = memory.score(Item(IMAGE, 10, 0.0), 10)
    assert newest_and_surest == pytest.approx(0.5)
    assert memory.score(Item(IMAGE, 10, math.log(2)), 10) == pytest.approx(1.5)


@given(sizes, st.lists(st.integers(0, 5), max_size=60), st.integers(0, 3))
def test_hus(size: tuple[int, int], labels: list[int], seed: int) -> None:
    """All that is offered enters; a full memory gives up one item of a largest class."""
    capacity, classes = size
    memory = HUS(capacity, classes)
    torch.manual_seed(seed)
    for now, label in enumerate(label % classes for label in labels):
        counts = Counter({c: len(items) for c, items in enumerate(memory.classes)})
        largest, before = memory.largest(), set(memory.items())
        memory.insert(Item(IMAGE, now), label)
        assert memory.classes[label][-1].arrival == now
        removed = before - set(memory.items())
        assert len(removed) == (len(before) == capacity)
        for item in removed:
            left = labels[item.arrival] % classes
            assert counts[left] == max(counts.values())
            assert left == label or label not in largest
        assert len(memory) == min(now + 1, capacity)
        assert all(order == sorted(order) for order in held(memory))


def test_hus_draws_every_largest_class_and_every_place() -> None:
    left = set()
    for seed in range(60):
        torch.manual_seed(seed)
        memory = HUS(6, 4)
        for now in range(6):
            memory.insert(Item(IMAGE, now), now % 2)
        memory.insert(Item(IMAGE, 6), 3)
        left |= {0, 1, 2, 3, 4, 5} - {item.arrival for item in memory.items()}
    assert left == {0, 1, 2, 3, 4, 5}


def test_a_memory_keeps_the_images_and_not_their_batch() -> None:
    """An item holds one image; what it costs does not depend on the batch it came in."""
    from ttabench.conformance.nets import images, nets
    from ttabench_methods.rotta import RoTTA
    from ttabench_methods.sotta import SoTTA

    for method in (RoTTA(nets()["BN CNN"]), SoTTA(nets()["BN CNN"], SoTTA.Config(threshold=0.0))):
        method.prepare()
        method.adapt(images(20, seed=3))
        items = method.memory.items()
        assert items
        assert all(item.image.untyped_storage().nbytes() == 4 * item.image.numel() for item in items)


def test_stabilised_entropy_is_the_entropy_but_for_its_floor() -> None:
    logits = torch.randn(50, 7, dtype=torch.float64)
    torch.testing.assert_close(stabilised_entropy(logits), entropy(logits), atol=7e-6, rtol=0)
    assert torch.isfinite(stabilised_entropy(1e4 * logits.float())).all()
