"""What a portable recipe costs: CPU seconds per training step against those of the plain recipe in float32.

Each network trains on random images of 32 pixels with its fast recipe, on one thread, in fresh processes of
either kind, in turns. The first steps are not counted. Ratios are medians over the pairs.

Usage: python scripts/bench_training.py [--archs resnet20,cct_2] [--steps 12] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import numpy as np

from ttabench.data.dataset import Dataset, Labelled
from ttabench.models.architectures.names import resolve
from ttabench.models.training.plans import TrainingPlan
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


def once(arch: str, recipe: str, steps: int) -> None:
    """Train for one epoch; print CPU seconds per step of this process, without the first steps."""
    member = resolve(arch, dataset=Random.name, image_size=32, num_classes=10)
    chosen = replace(recipe_for(member, Random.name, recipe), epochs=1, threads=1, precision="float32")
    dataset = Random((WARM + steps) * chosen.batch_size)
    plan = replace(TrainingPlan.of(member, dataset), recipe=chosen)  # not fitted to the few images
    ends: list[tuple[int, float]] = []

    def note(progress: TrainingProgress) -> None:
        ends.append((progress.step, time.process_time()))

    with tempfile.TemporaryDirectory() as cache:
        os.environ["TTABENCH_CACHE"] = cache
        train(plan, dataset, on_progress=note)
    first = next(end for end in ends if end[0] >= WARM)
    last = ends[-1]
    print((last[1] - first[1]) / (last[0] - first[0]))


def measure(arch: str, recipe: str, steps: int) -> float:
    kernels = KERNELS if recipe.endswith("portable") else {}
    done = subprocess.run(
        [sys.executable, sys.argv[0], "--archs", arch, "--steps", str(steps), "--once", recipe],
        env={**os.environ, **kernels}, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    seconds = float(done.stdout)
    print(f"{arch:<12} {recipe:<14} {1000 * seconds:8.1f} ms per step", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archs", default="resnet20,cct_2,cvt_2,vit_lite_2")
    parser.add_argument("--steps", type=int, default=12, help="that are counted")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for arch in options.archs.split(","):
        if options.once:
            once(arch, options.once, options.steps)
            continue
        pairs = [
            [measure(arch, recipe, options.steps) for recipe in ("fast", "fast-portable")]
            for _ in range(options.repeats)
        ]
        ratio = statistics.median(portable / plain for plain, portable in pairs)
        print(f"{arch}: portable / plain = {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
