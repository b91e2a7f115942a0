"""Memories of past images, kept class by class: those of RoTTA and SoTTA."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["CSTU", "HUS", "Item", "Memory"]


@dataclass(slots=True, eq=False)
class Item:
    """An image (3, H, W), when it arrived (images before it in the stream), how uncertain its label was."""

    image: Tensor
    arrival: int
    uncertainty: float = 0.0


class Memory:
    """At most `capacity` items; those of a pseudo-label are in order of arrival."""

    def __init__(self, capacity: int, num_classes: int) -> None:
        self.capacity = capacity
        self.classes: list[list[Item]] = [[] for _ in range(num_classes)]

    def __len__(self) -> int:
        return sum(map(len, self.classes))

    def items(self) -> list[Item]:
        """Class by class, oldest first."""
        return [item for held in self.classes for item in held]

    def minibatches(self, size: int) -> Iterator[list[Item]]:
        """All items once, in random order, `size` at a time; the last may be short."""
        items = self.items()
        order = torch.randperm(len(items)).tolist()
        for start in range(0, len(items), size):
            yield [items[i] for i in order[start : start + size]]

    def largest(self) -> list[int]:
        """The classes that hold the most items."""
        most = max(map(len, self.classes))
        return [label for label, held in enumerate(self.classes) if len(held) == most]


class CSTU(Memory):
    """Category-balanced sampling with timeliness and uncertainty (RoTTA: Yuan et al., CVPR 2023).

    A newcomer takes the place of the item with the highest score, if that exceeds its own: of its own
    class where that has its share of the memory (capacity / classes), otherwise of the largest classes.
    """

    def __init__(self, capacity: int, num_classes: int, lambda_t: float = 1.0, lambda_u: float = 1.0) -> None:
        super().__init__(capacity, num_classes)
        self.lambda_t = lambda_t
        self.lambda_u = lambda_u

    def score(self, item: Item, now: int) -> float:
        """λ_t / (1 + e^(−age/N)) + λ_u · H / ln C: old and uncertain items go first."""
        timeliness = 1 / (1 + math.exp(-(now - item.arrival) / self.capacity))
        return self.lambda_t * timeliness + self.lambda_u * item.uncertainty / math.log(len(self.classes))

    def insert(self, item: Item, label: int) -> None:
        """Offer an item the moment it arrives."""
        rivals = self.rivals(label)
        if not rivals or self.evict(rivals, item):
            self.classes[label].append(item)

    def rivals(self, label: int) -> list[int]:
        """The classes one of whose items has to go for a newcomer of this class; none if there is room."""
        if len(self.classes[label]) >= self.capacity / len(self.classes):
            return [label]
        return [] if len(self) < self.capacity else self.largest()

    def evict(self, rivals: list[int], newcomer: Item) -> bool:
        """Remove the worst item of `rivals` (of equals the last), if it is worse than the newcomer."""
        now = newcomer.arrival
        worst, label, i = max(
            (self.score(item, now), label, i)
            for label in rivals
            for i, item in enumerate(self.classes[label])
        )
        if worst <= self.score(newcomer, now):
            return False
        del self.classes[label][i]
        return True


class HUS(Memory):
    """High-confidence uniform-class sampling (SoTTA: Gong et al., NeurIPS 2023).

    What to admit is the caller's decision. A full memory makes room at random: in the newcomer's class if
    that is one of the largest, otherwise in a largest class, drawn.
    """

    def insert(self, item: Item, label: int) -> None:
        if len(self) >= self.capacity:
            largest = self.largest()
            crowded = label if label in largest else self.draw_class(largest)
            del self.classes[crowded][self.draw_position(crowded)]
        self.classes[label].append(item)

    def draw_class(self, largest: list[int]) -> int:
        return largest[int(torch.randint(len(largest), (1,)))]

    def draw_position(self, label: int) -> int:
        return int(torch.randint(len(self.classes[label]), (1,)))
