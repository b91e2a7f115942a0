"""Milliseconds per image of the 19 corruptions, beside the published generator and a loop over images.

Ours: the mean over severities 1 … 5 of the best of several runs on one batch, draws included, with one thread
per core. The generator: times measured elsewhere, read from --official (timings.json). The loop: a plain
per-image implementation with NumPy, SciPy, OpenCV and Pillow, measured in this run on fewer images.
The last line compares with the generator where its times are given, else with the loop.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from math import exp, log
from pathlib import Path

import numpy as np
from bench_suite import arguments, best, last_line, warn_if_busy
from numpy.typing import NDArray
from reference_corruptions import reference

from ttabench.corruptions.any_size import corrupt_any_size as corrupt
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, SEVERITIES
from ttabench.corruptions.frost_textures import procedural_frost_textures
from ttabench.corruptions.sizes import IMAGENET_SIZE
from ttabench.errors import UserError

SETS = {32: "cifar10_32px", 64: "tinyimagenet_64px", IMAGENET_SIZE: "imagenet_224px"}


def synthetic_images(count: int, size: int) -> NDArray[np.uint8]:
    """Smooth colours with grain: (count, size, size, 3)."""
    rng = np.random.default_rng(0)
    coarse = rng.uniform(0, 255, (count, 4, 4, 3)).repeat(size // 4, axis=1).repeat(size // 4, axis=2)
    return np.clip(coarse + rng.normal(0, 10, coarse.shape), 0, 255).astype(np.uint8)


def ours(name: str, images: NDArray[np.uint8], workers: int | None, runs: int) -> float:
    """Milliseconds per image, mean over severities."""
    corrupt(images, name, 1, 0, workers=workers)
    seconds = [best(lambda s=s: corrupt(images, name, s, 0, workers=workers), runs) for s in SEVERITIES]  # type: ignore[misc]
    return 1e3 * sum(seconds) / len(seconds) / len(images)


def loop(name: str, images: NDArray[np.uint8], budget: float) -> float:
    """Milliseconds per image of the per-image reference, mean over severities, in about `budget` seconds."""
    function = reference(name, procedural_frost_textures())
    rng = np.random.RandomState(0)
    function(images[0], 1, rng)
    total = 0.0
    for severity in SEVERITIES:
        begin, done = time.perf_counter(), 0
        while done < len(images) and (done < 3 or time.perf_counter() - begin < budget / len(SEVERITIES)):
            function(images[done], severity, rng)
            done += 1
        total += (time.perf_counter() - begin) / done
    return 1e3 * total / len(SEVERITIES)


def official_times(path: Path, environment: str, size: int) -> dict[str, float]:
    """Milliseconds per image by corruption, from a timings.json, or from a meta.json with "six_images"."""
    try:
        document = json.loads(path.read_text())
        if size == IMAGENET_SIZE and "six_images" in document:
            times = document["six_images"]["corruptions"]
            each = {name: [times[name][str(s)]["ms_per_image"] for s in SEVERITIES] for name in times}
            return {name: sum(each[name]) / len(SEVERITIES) for name in ALL_CORRUPTIONS}
        times = document[environment][SETS[size]]
        return {name: float(times[name]["mean_ms"]) for name in ALL_CORRUPTIONS}
    except FileNotFoundError:
        raise UserError(f"no file {path}; leave --official out to compare with the loop only.") from None
    except (json.JSONDecodeError, KeyError) as problem:
        raise UserError(f"{path} has no times for {environment}, {SETS[size]} ({problem!r}).") from None


def speedups(ours: dict[str, float], theirs: dict[str, float]) -> tuple[float, float]:
    """(of the total, geometric mean)."""
    mean_log = sum(log(theirs[name] / ours[name]) for name in ours) / len(ours)
    return sum(theirs[name] for name in ours) / sum(ours.values()), exp(mean_log)


def run(options: argparse.Namespace) -> int:
    theirs = official_times(options.official, options.environment, options.size) if options.official else None
    warn_if_busy()
    count = options.images or (64 if options.size == IMAGENET_SIZE else 1024)
    images = synthetic_images(count, options.size)
    mine, looped = {}, {}
    official_columns = f"{'official':>10}{'ratio':>8}" if theirs else ""
    print(f"{'ms per image':<20}{'ours':>9}{'loop':>10}{'ratio':>8}{official_columns}")
    for name in options.only or ALL_CORRUPTIONS:
        mine[name] = ours(name, images, options.workers, options.runs)
        looped[name] = loop(name, images, options.budget)
        line = f"{name:<20}{mine[name]:9.4f}{looped[name]:10.3f}{looped[name] / mine[name]:8.1f}"
        if theirs:
            line += f"{theirs[name]:10.4f}{theirs[name] / mine[name]:8.1f}"
        print(line, flush=True)
    compared = theirs or looped
    slower = [name for name in mine if mine[name] > compared[name]]
    print(f"slower than {'the generator' if theirs else 'the loop'}: {', '.join(slower) or 'none'}")
    loop_total, loop_geomean = speedups(mine, looped)
    print(f"against the loop, in this run: total {loop_total:.1f}x, geometric mean {loop_geomean:.1f}x")
    total, geomean = speedups(mine, compared)
    last_line(1, speedup_total=total, speedup_geomean=geomean)
    return 0


def main() -> int:
    parser = arguments(__doc__)
    add = parser.add_argument
    add("--official", type=Path, metavar="FILE", help="timings.json of the published generator, or meta.json")
    add(
        "--environment",
        default="official_new_environment",
        help="which of its environments (default: the newer, which is the faster)",
    )
    add("--size", type=int, choices=sorted(SETS), default=32, help="pixels (default 32)")
    add("--images", type=int, default=0, help="in the batch (default 1024; at 224 pixels 64)")
    add("--runs", type=int, default=3, help="of which the best counts (default 3)")
    add("--workers", type=int, help="threads (default: one per core)")
    add("--budget", type=float, default=0.5, help="seconds per corruption for the loop (default 0.5)")
    add("--only", nargs="+", choices=ALL_CORRUPTIONS, metavar="NAME", help="these corruptions")
    try:
        return run(parser.parse_args())
    except UserError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
