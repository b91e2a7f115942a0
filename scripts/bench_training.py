"""What a portable recipe costs: CPU seconds per training step against those of the plain recipe in float32.

Each network trains on random images of 32 pixels with its fast recipe, on one thread, in fresh processes of
either kind, in turns. The first steps are not counted. Ratios are medians over the pairs. With --threads, the
portable recipe also takes turns on one thread and on so many, by the clock.

Usage: python scripts/bench_training.py [--archs resnet20,cct_2] [--steps 12] [--repeats 3] [--threads 2]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace

import numpy as np
import torch
from bench_suite import arguments, fresh_process, median_ratio

from ttabench.data.dataset import Dataset, Labelled
from ttabench.models.architectures.arch_names import resolve
from ttabench.models.trained_model import TrainedModel
from ttabench.models.training.portable import KERNELS
from ttabench.models.training.recipes import recipe_for
from ttabench.models.training.train import TrainingProgress, train

WARM = 4
"""Steps that are not counted."""


class Random(Dataset):
    """Random images of 32 pixels with random labels, as CIFAR-10 has them."""

    name = "cifar10-c"
    num_classes = 10
    image_size = 32
    mean = (0.5, 0.5, 0.5)
    std = (0.25, 0.25, 0.25)
    corruptions = ()

    def __init__(self, count: int) -> None:
        self.count = count

    def fingerprint(self) -> str:
        return f"{self.count:064d}"

    def train(self) -> Labelled:
        draw = np.random.default_rng(0)
        images = draw.integers(0, 256, (self.count, 32, 32, 3), dtype=np.uint8)
        return Labelled(images, draw.integers(0, 10, self.count))

    def test(self) -> Labelled:
        return self.train()

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        raise NotImplementedError


def once(arch: str, recipe: str, steps: int, threads: int) -> None:
    """Train for one epoch; print seconds per step of CPU and clock, without the first steps."""
    member = resolve(arch, dataset=Random.name, image_size=32, num_classes=10)
    chosen = replace(recipe_for(member, Random.name, recipe), epochs=1, threads=1, precision="float32")
    dataset = Random((WARM + steps) * chosen.batch_size)
    plan = replace(TrainedModel(arch, dataset).plan, recipe=chosen)  # not fitted to the few images
    ends: list[tuple[int, float, float]] = []

    def note(progress: TrainingProgress) -> None:
        ends.append((progress.step, time.process_time(), time.perf_counter()))

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TTABENCH_CACHE"] = cache
        train(plan, dataset, on_progress=note)
    first = next(end for end in ends if end[0] >= WARM)
    count, cpu, clock = np.subtract(ends[-1], first)
    print(cpu / count, clock / count)


def measure(arch: str, recipe: str, steps: int, threads: int = 1) -> tuple[float, float]:
    """Seconds per step of CPU and clock."""
    kernels = KERNELS if recipe.endswith("portable") else {}
    options = ("--archs", arch, "--steps", steps, "--threads", threads, "--once", recipe)
    cpu, clock = map(float, fresh_process(*options, env=kernels))
    print(
        f"{arch:<12} {recipe:<14} {threads:3} threads {1000 * cpu:8.1f} ms CPU {1000 * clock:8.1f} ms clock",
        flush=True,
    )
    return cpu, clock


def main() -> None:
    parser = arguments(__doc__, archs="resnet20,cct_2,cvt_2,vit_lite_2", steps=12, repeats=3)
    parser.add_argument("--threads", type=int, default=1, help="compare one thread with so many too")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for arch in options.archs.split(","):
        if options.once:
            once(arch, options.once, options.steps, options.threads)
            continue
        pairs = [
            [measure(arch, recipe, options.steps)[0] for recipe in ("fast-portable", "fast")]
            for _ in range(options.repeats)
        ]
        print(f"{arch}: portable / plain = {median_ratio(pairs):.2f} (CPU)", flush=True)
        if options.threads > 1:
            pairs = [
                [measure(arch, "fast-portable", options.steps, n)[1] for n in (1, options.threads)]
                for _ in range(options.repeats)
            ]
            ratio = median_ratio(pairs)
            print(f"{arch}: one thread / {options.threads} threads = {ratio:.2f} (clock)", flush=True)


if __name__ == "__main__":
    main()
