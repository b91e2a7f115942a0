"""Notes on cells with so few batches that learning online, or a reset, cannot show in the accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from ttabench.cell import Cell

EXAMPLE = 5  # batches that the advice aims at


def notes_on_few_batches(
    cells: Iterable[Cell], images_of: Callable[[Cell], int], learns: Callable[[str], bool]
) -> Iterator[str]:
    """Sentences about online cells that a single batch makes up, that end before their first reset, or in
    which a pace leaves the method a single batch to adapt to.

    images_of   the number of images of a cell, 0 = unknown.
    learns      whether the method of this name learns by gradients.
    """
    single: dict[int, dict[str, None]] = {}
    never_reset: dict[tuple[str, int], dict[str, None]] = {}
    too_slow: dict[int, dict[str, None]] = {}
    for cell in cells:
        protocol = cell.protocol
        plain = not (protocol.stream or protocol.contamination or protocol.frozen)
        images = images_of(cell) if plain and learns(cell.method) else 0
        if not images:
            continue
        batches = math.ceil(images / protocol.batch_size)
        if batches == 1 and protocol.reset != "continual":
            single.setdefault(images, {})[cell.label] = None
        if 1 < batches <= protocol.adapts_every and protocol.reset != "continual":
            too_slow.setdefault(batches, {})[cell.label] = None
        if protocol.reset_period > 1 and batches <= protocol.reset_period:
            never_reset.setdefault((protocol.reset, batches), {})[cell.label] = None
    for images, labels in single.items():
        yield (
            f"{', '.join(labels)}: the {images} images are a single batch. A method that scores a batch "
            "before it learns from it shows no effect of learning; for more batches, choose a batch size of "
            f"{max(1, images // EXAMPLE)}."
        )
    for batches, labels in too_slow.items():
        yield f"{', '.join(labels)}: at this pace, a method adapts only to the first of {batches} batches."
    for (reset, batches), labels in never_reset.items():
        are = "is 1 batch" if batches == 1 else f"are only {batches} batches"
        yield f"{', '.join(labels)}: --reset {reset} resets nothing, because there {are}."
