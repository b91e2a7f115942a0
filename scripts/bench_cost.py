"""The cost of measuring costs and label-free scores: a cell with them over the same cell without, in one run.

    measured  passes and time are measured, and the cheap scores are collected, as in every cell
    first     the memory of the host too, as in the first cell of a method, a classifier and a protocol
    scored    the costly scores too, as with `ttabench sweep --scores all`

Untrained classifiers and random images. The four take turns and swap places each time; a ratio is the median
over the turns. One CPU thread, timed in CPU seconds. The memory that is freed is kept, as in a worker.

Usage: python scripts/bench_cost.py [--arch resnet18] [--methods source,tent,eata] [--width 16]
           [--images 600] [--repeats 9]

The last line has the largest ratios: measured=<x> first=<y> scored=<z>.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from bench_methods import CLASSES, SIZE, SOURCE_IMAGES, classifier, images
from bench_suite import Timer, arguments, as_in_a_worker, last_line, median_ratio, medians, take_turns

from ttabench.cell.protocol import Protocol
from ttabench.data.dataset import Labelled
from ttabench.measure.image_stream import Part
from ttabench.measure.scoring import evaluate
from ttabench.measure.source_access import SourceTensors
from ttabench.method import Method
from ttabench.observe.cost import measured
from ttabench.observe.label_free_scores import Collected, consistency, sample, source_accuracy
from ttabench.registry import method as find_method


def bare(method: Method, data: Labelled, protocol: Protocol) -> None:
    method.reset()
    evaluate(method, Part(data, protocol, 0), protocol, 0)


def as_in_a_cell(
    method: Method, data: Labelled, protocol: Protocol, host: dict[str, float] | None, *, costly: bool
) -> None:
    method.reset()
    collected = Collected()
    with measured("cpu", host) as meter:
        seen = evaluate(method, Part(data, protocol, 0), protocol, 0, on_logits=collected.add)
    collected.scores()
    if costly:
        target = data.images[sample(len(data), 0)]
        consistency(method, target, protocol, "cpu", 0)
        source_accuracy(method, data, protocol, "cpu")
    meter.cost(method, len(data), seen.seconds, 1.0)


def main() -> None:
    options = arguments(
        __doc__, arch="resnet18", methods="source,tent,eata", width=16, images=600, repeats=9
    ).parse_args()
    as_in_a_worker()
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (options.images, SIZE, SIZE, 3), np.uint8)
    data = Labelled(pixels, draw.integers(0, CLASSES, options.images))
    network = classifier(options.arch, width=options.width)
    largest = [0.0, 0.0, 0.0]
    print(f"{'method':12} {'cell, s':>8} {'measured':>9} {'first':>9} {'scored':>9}")
    for name in options.methods.split(","):
        cls = find_method(name)
        method = cls(network, cls.Config())
        method.prepare(SourceTensors([images(SOURCE_IMAGES)], cls.needs_of(method.config)))
        protocol = Protocol(mode=cls.mode, batch_size=cls.native_batch_size(CLASSES, cls.mode))
        works = [
            partial(bare, method, data, protocol),
            partial(as_in_a_cell, method, data, protocol, {}, costly=False),  # the first call fills it
            partial(as_in_a_cell, method, data, protocol, None, costly=False),
            partial(as_in_a_cell, method, data, protocol, {}, costly=True),
        ]
        rows = take_turns(works, Timer(), options.repeats)
        ratios = [median_ratio((row[k], row[0]) for row in rows) for k in (1, 2, 3)]
        seconds = medians(rows)[0]
        print(f"{name:12} {seconds:8.3f} " + " ".join(f"{ratio:9.3f}" for ratio in ratios), flush=True)
        largest = [max(pair) for pair in zip(largest, ratios, strict=True)]
    last_line(measured=largest[0], first=largest[1], scored=largest[2])


if __name__ == "__main__":
    main()
