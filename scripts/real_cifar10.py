"""Real CIFAR-10, corrupted by the official generator, as a dataset of one's own for `ttabench sweep`.

SHARED holds data/cifar10 (all of CIFAR-10 as lossless mosaics of 100 × 100 tiles) and
corruptions/cifar10c-official (1,000 test images under 19 corruptions at severity 5). Made from it:

    OUT/real-cifar10-local/      test.npz (those 1,000, clean), train.npz (all 50,000), <corruption>-5.npy
    OUT/cifar10-test.npz         all 10,000 test images, ready for `ttabench data generate`

Usage: python scripts/real_cifar10.py SHARED OUT
Then:  ttabench sweep --datasets OUT/real-cifar10-local …

`clean_from_batches` makes the 10,000 test images and the training images from the published CIFAR-10 instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from golden_corruptions import GoldenFolder, read_mosaic

from ttabench.corruptions import ALL_CORRUPTIONS
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import save_npz
from ttabench.data.published.cifar_batches import FILES, read_exactly
from ttabench.data.published.facts import CIFAR10_C

SEVERITY = 5


def read_split(folder: Path, split: str) -> Labelled:
    """The "train" or "test" images of a folder of mosaics, in official order."""
    images = np.concatenate([read_mosaic(path, 32) for path in sorted(folder.glob(f"{split}*.webp"))])
    with np.load(folder / "exact.npz") as exact, np.load(folder / "labels.npz") as labels:
        # Some tiles of the mosaics went through JPEG once; these are the originals.
        images[exact[f"{split}_index"]] = exact[f"{split}_images"]
        return Labelled(images, labels[split].astype(np.int64))


def official(folder: Path) -> tuple[Labelled, dict[str, np.ndarray]]:
    """The clean images of the official generator's folder, and each corruption's at severity 5."""
    golden = GoldenFolder.open(folder)
    with np.load(folder / "labels.npz") as labels:
        clean = Labelled(golden.clean, labels["labels"].astype(np.int64))
    corrupted = {c: next(golden.read(f"{c}-{SEVERITY}.webp")).images for c in ALL_CORRUPTIONS}
    return clean, corrupted


def make(shared: Path, out: Path) -> Path:
    """Write the dataset's folder and return it."""
    folder = out / "real-cifar10-local"
    folder.mkdir(parents=True, exist_ok=True)
    test, corrupted = official(shared / "corruptions" / "cifar10c-official")
    save_npz(folder / "test.npz", test)
    for corruption, images in corrupted.items():
        np.save(folder / f"{corruption}-{SEVERITY}.npy", images)
    save_npz(folder / "train.npz", read_split(shared / "data" / "cifar10", "train"))
    save_npz(out / "cifar10-test.npz", read_split(shared / "data" / "cifar10", "test"))
    return folder


def clean_from_batches(batches: Path, out: Path) -> tuple[Path, Path]:
    """The published CIFAR-10, a folder cifar-10-batches-py, as two files: all test and all training images.

    Raises UserError where a batch is missing, or is none.
    """
    made = out / "cifar10-test.npz", out / "cifar10-train.npz"
    train_files, test_files = FILES[CIFAR10_C.clean_folder]
    counts = CIFAR10_C.test, CIFAR10_C.train
    out.mkdir(parents=True, exist_ok=True)
    for path, files, count in zip(made, (test_files, train_files), counts, strict=True):
        save_npz(path, read_exactly(batches, files, CIFAR10_C.num_classes, count))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    print(make(args.shared, args.out))


if __name__ == "__main__":
    main()
