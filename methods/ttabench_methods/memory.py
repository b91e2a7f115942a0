"""The memories of RoTTA, SoTTA and NOTE: past images, stored by class."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True, eq=False)
class Item:
    """An image (3, H, W), its position in the stream, and the uncertainty of its pseudo-label."""

    image: Tensor
    arrival: int
    uncertainty: float = 0.0


class Memory:
    """At most `capacity` items; the items of each pseudo-label are in order of arrival."""

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

    A new item replaces the item with the highest score, if that score is higher than its own. It replaces an
    item of its class if this class fills its share of the memory (capacity / classes); otherwise an item of
    the largest classes.
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
        """Add an item; if it has rivals, it replaces the worst of them, unless it is no better itself."""
        rivals = self.rivals(label)
        if not rivals or self.evict(rivals, item):
            self.classes[label].append(item)

    def rivals(self, label: int) -> list[int]:
        """Classes from which a new item of this class may replace an item; none if the memory is not full."""
        if len(self.classes[label]) >= self.capacity / len(self.classes):
            return [label]
        return [] if len(self) < self.capacity else self.largest()

    def evict(self, rivals: list[int], newcomer: Item) -> bool:
        """Remove the worst item of `rivals` (the last of equals), if it is worse than `newcomer`."""
        now = newcomer.arrival
        highest_score, label, i = max(
            (self.score(item, now), label, i)
            for label in rivals
            for i, item in enumerate(self.classes[label])
        )
        if highest_score <= self.score(newcomer, now):
            return False
        del self.classes[label][i]
        return True


class HUS(Memory):
    """High-confidence uniform-class sampling (SoTTA: Gong et al., NeurIPS 2023).

    The caller decides which images to insert. A full memory first removes a random item: from the class of
    the new item if this is one of the largest classes, otherwise from a randomly chosen largest class.
    """

    def insert(self, item: Item, label: int) -> None:
        if len(self) >= self.capacity:
            largest = self.largest()
            largest_class = label if label in largest else self.draw_class(largest)
            del self.classes[largest_class][self.draw_position(largest_class)]
        self.classes[label].append(item)

    def draw_class(self, largest: list[int]) -> int:
        return largest[int(torch.randint(len(largest), (1,)))]

    def draw_position(self, label: int) -> int:
        return int(torch.randint(len(self.classes[label]), (1,)))


class PBRS(Memory):
    """Prediction-balanced reservoir sampling (NOTE: Gong et al., NeurIPS 2022).

    In a full memory, an item of a class that is not one of the largest replaces a random item of a largest
    class. An item of a largest class replaces a random item of its own, with the chance that reservoir
    sampling gives it: the items that the memory holds of the class, over all that have arrived of it.
    """

    def __init__(self, capacity: int, num_classes: int) -> None:
        super().__init__(capacity, num_classes)
        self.seen = [0] * num_classes

    def insert(self, item: Item, label: int) -> None:
        """Offer an item: it may be left out."""
        self.seen[label] += 1
        if len(self) >= self.capacity:
            largest = self.largest()
            if label in largest:
                if float(torch.rand(())) >= len(self.classes[label]) / self.seen[label]:
                    return
                largest = [label]
            place = int(torch.randint(sum(len(self.classes[each]) for each in largest), (1,)))
            drawn, position = divmod(place, len(self.classes[largest[0]]))  # all of them have one size
            del self.classes[largest[drawn]][position]
        self.classes[label].append(item)
