"""How fast images come off the disk, and how fast a -C version is generated, against references in one run.

Loading: a full-size stand-in for CIFAR-10-C (random pixels) through our loader (memory-mapped, uint8 until
the device, float tensors in [0, 1]), on one thread, against a plain ``DataLoader`` that makes a PIL image of
every row and a tensor of every PIL image, with its better number of workers. Both shuffled, batches of 200.

Generating (with --timings, a file of milliseconds per image of the official functions): all corruptions and
severities of a clean set in as many processes as there are cores, against the official total.

Usage: python scripts/bench_data.py [--images N] [--repeats N] [--timings timings.json [--clean test.npz]]
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from bench_suite import arguments, best, last_line
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from ttabench.data.dataset import Labelled
from ttabench.data.own.generate_corrupted import generate
from ttabench.data.published.cifar import CifarC
from ttabench.data.published.cifar_facts import CIFAR10_C
from ttabench.measure.order_and_batches import Stream, arrange

BATCH = 200
CORRUPTION, SEVERITY = "gaussian_noise", 5


def stand_in(root: Path) -> None:
    """Files of the published names, shapes and types."""
    draw = np.random.Generator(np.random.PCG64(0))
    labels = draw.permutation(np.arange(CIFAR10_C.test) % 10)
    pixels = draw.integers(0, 256, (CIFAR10_C.test, 3072), np.uint8)
    (root / CIFAR10_C.clean_folder).mkdir()
    batch = pickle.dumps({b"data": pixels, b"labels": labels.tolist()}, 4)  # raw bytes, as in the real ones
    (root / CIFAR10_C.clean_folder / "test_batch").write_bytes(batch)
    folder = root / CIFAR10_C.corrupted_folder
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    rows = draw.integers(0, 256, (5 * CIFAR10_C.test, 32, 32, 3), np.uint8)
    np.save(folder / f"{CORRUPTION}.npy", rows)


class PilImages(Dataset[tuple[torch.Tensor, int]]):
    """Row by row through PIL, as torchvision's CIFAR datasets and their ToTensor do."""

    def __init__(self, data: Labelled) -> None:
        self.images, self.labels = np.array(data.images), data.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.images[index])
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return tensor.to(torch.float32).div(255), int(self.labels[index])


def bench_loading(images: int, repeats: int) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        stand_in(root)
        started = time.perf_counter()
        data = CifarC(CIFAR10_C, root).corrupted(CORRUPTION, SEVERITY)
        next(iter(Stream(data.images, arrange("iid", data.labels, 0), BATCH)))
        first = time.perf_counter() - started
        some = Labelled(data.images[:images], data.labels[:images])

        def ours() -> int:
            return sum(len(x) for x in Stream(some.images, arrange("iid", some.labels, 0), BATCH))

        speed = len(some) / best(ours, repeats)
        plain = PilImages(some)
        reference = 0.0
        for workers in (0, os.cpu_count() or 1):
            loader = DataLoader(plain, BATCH, shuffle=True, num_workers=workers)

            def theirs(loader: DataLoader[tuple[torch.Tensor, int]] = loader) -> int:
                return sum(len(x) for x, _ in loader)

            got = len(some) / best(theirs, max(1, repeats // 5))
            print(f"DataLoader with PIL, {workers} workers  {got:>10,.0f} images/s")
            reference = max(reference, got)
    print(f"ours, memory-mapped             {speed:>10,.0f} images/s")
    print(f"from opening the dataset to its first batch: {first:.3f} s")
    return speed / reference


def bench_generating(timings: Path, clean: Path | None, images: int) -> float:
    official = json.loads(timings.read_text())["official_main_environment"]["cifar10_32px"]
    official_ms = sum(entry["mean_ms"] for entry in official.values())  # one severity of every corruption
    with tempfile.TemporaryDirectory() as scratch:
        if clean is None:
            clean = Path(scratch) / "noise.npz"
            pixels = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (images, 32, 32, 3), np.uint8)
            np.savez(clean, images=pixels, labels=np.arange(images) % 10)
        with np.load(clean) as file:
            count = len(file["labels"])
        started = time.perf_counter()
        generate(clean, name="bench", root=scratch)
        seconds = time.perf_counter() - started
    ours_ms = 1000 * seconds / count / 5
    print(
        f"official functions, one process: {official_ms:7.3f} ms per image for all corruptions at a severity"
    )
    print(f"ours, {os.cpu_count()} processes:               {ours_ms:7.3f} ms ({seconds:.0f} s in all)")
    return official_ms / ours_ms


def main() -> None:
    parser = arguments(__doc__, images=10_000, repeats=20)
    parser.add_argument("--timings", type=Path, help="official ms/image; also benchmarks generating")
    parser.add_argument("--clean", type=Path, help="npz of 32-pixel images to generate from (default: noise)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ratios = {"images_ratio": bench_loading(args.images, args.repeats)}
    if args.timings is not None:
        ratios["generate_ratio"] = bench_generating(args.timings, args.clean, args.images)
        ratios = dict(reversed(ratios.items()))
    last_line(1, **ratios)


if __name__ == "__main__":
    main()
