"""How long the images of a folder are decoded for, beside the network that computes on them, in one run.

A folder of JPEG files of 224 pixels (quality 85; made for the run, or your own in class folders with
--folder) is read as a sweep reads the images of one corruption: decoded by threads on all cores into the
cache once (`first`), and from the cache by every later cell (`again`). `network` is one forward pass over the
same images, in batches of 50: the shortest cell that there is. On the CPU it runs on one thread.

Printed: milliseconds per image, and the ratios first/network and again/network. The first cell of a
corruption waits for `first`, so its ratio is the largest share of time that reading ahead could save there.

Usage: python scripts/bench_decode.py [--images 100] [--folder PHOTOS] [--arch resnet50] [--device cpu]
           [--repeats 1]
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from bench_suite import arguments
from memory_224 import SIZE, network
from PIL import Image

from ttabench.data.files.decoded_cache import decoded
from ttabench.data.files.image_folders import class_folders, labelled_files
from ttabench.measure.order_and_batches import Stream
from ttabench.system.malloc import keep_freed_memory

QUALITY, BATCH = 85, 50


def stand_in(folder: Path, count: int) -> None:
    """Photographs of nothing: noise at several scales, whose files are as large as those of photographs."""
    draw = np.random.Generator(np.random.PCG64(0))
    for number in range(count):
        layers = [
            Image.fromarray(draw.integers(0, 256, (side, side, 3), np.uint8)).resize((SIZE, SIZE))
            for side in (4, 16, 64)
        ]
        pixels = np.mean([np.asarray(layer, float) for layer in layers], axis=0).astype(np.uint8)
        path = folder / f"class{number % 10}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=QUALITY)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = arguments(__doc__, images=100, repeats=1, device="cpu")
    parser.add_argument("--folder", type=Path, help="class folders of JPEG files of 224 pixels")
    parser.add_argument("--arch", default="resnet50", choices=["resnet50", "vit_b_16"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    classifier = network(args.arch).to(args.device)
    with tempfile.TemporaryDirectory() as place:
        os.environ["TTABENCH_CACHE"] = str(Path(place) / "cache")
        folder = args.folder or Path(place) / "photographs"
        if not args.folder:
            stand_in(folder, args.images)
        files = labelled_files(folder, class_folders(folder))[0][: args.images]
        rows: dict[str, list[float]] = {"first": [], "again": [], "network": []}
        for repeat in range(args.repeats):
            for name in ("first", "again"):
                rows[name].append(seconds(lambda key=repeat: np.array(decoded(files, f"{key:040}", SIZE))))
            images = np.array(decoded(files, f"{repeat:040}", SIZE))
            with torch.no_grad():
                stream = Stream(images, np.arange(len(images)), BATCH, args.device)
                rows["network"].append(
                    seconds(lambda stream=stream: [classifier(x).cpu() for x in stream])  # waits for a GPU
                )
    best = {name: min(times) for name, times in rows.items()}
    print(" ".join(f"{name}_ms={1000 * value / len(files):.2f}" for name, value in best.items()))
    print(" ".join(f"{name}/network={best[name] / best['network']:.4f}" for name in ("first", "again")))


if __name__ == "__main__":
    main()
