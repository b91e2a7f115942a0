"""Real CIFAR-10 and CIFAR-100 as datasets of one's own for `ttabench sweep`.

SHARED holds data/cifar10 (all of CIFAR-10), data/cifar100 (30,000 training images and all test images), both
as lossless mosaics of 100 × 100 tiles, and corruptions/cifar10c-official (1,000 test images of CIFAR-10
under 19 corruptions of the official generator, at severity 5). Made from it:

    OUT/real-cifar10-local/      test.npz (those 1,000, clean), train.npz (all 50,000), <corruption>-5.npy
    OUT/cifar10-test.npz         all 10,000 test images, ready for `ttabench data generate`
    OUT/real-cifar100-local/     test.npz (all 10,000), for `--contamination` and `ttabench data generate`
    OUT/cifar100-train.npz       those 30,000 training images, in the order of the mosaics

A file that is there stays.

Usage: python scripts/real_cifar.py SHARED OUT [--only cifar10]
Then:  ttabench sweep --datasets OUT/real-cifar10-local …

`clean_from_batches` makes the test and the training images from the published CIFAR-10 instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench_suite import arguments
from golden_corruptions import GoldenFolder, read_mosaic

from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import save_npz
from ttabench.data.published.cifar_facts import CIFAR10_C
from ttabench.data.published.clean_cifar import FILES, read_exactly
from ttabench.system.files import replacing

SEVERITY = 5
REAL_10, REAL_100 = "real-cifar10-local", "real-cifar100-local"
TEST_10, TRAIN_100 = "cifar10-test.npz", "cifar100-train.npz"


def read_split(folder: Path, split: str) -> Labelled:
    """The "train" or "test" images of a folder of mosaics: in official order, but for CIFAR-100's "train"."""
    images = np.concatenate([read_mosaic(path, 32) for path in sorted(folder.glob(f"{split}*.webp"))])
    if (folder / "exact.npz").exists():
        with np.load(folder / "exact.npz") as exact:
            # Some tiles of the mosaics went through JPEG once; these are the originals.
            images[exact[f"{split}_index"]] = exact[f"{split}_images"]
    with np.load(folder / "labels.npz") as stored:
        labels = stored[split].astype(np.int64)
        if (places := f"{split}_official_index") in stored:  # the mosaic goes class by class
            order = np.argsort(stored[places])
            return Labelled(images[order], labels[order])
    return Labelled(images, labels)


def official(folder: Path) -> tuple[Labelled, dict[str, np.ndarray]]:
    """The clean images of the official generator's folder, and each corruption's at severity 5."""
    golden = GoldenFolder.open(folder)
    with np.load(folder / "labels.npz") as labels:
        clean = Labelled(golden.clean, labels["labels"].astype(np.int64))
    corrupted = {c: next(golden.read(f"{c}-{SEVERITY}.webp")).images for c in ALL_CORRUPTIONS}
    return clean, corrupted


def make_cifar10(shared: Path, out: Path) -> Path:
    """Write the dataset of the official images and return its folder; and all test images."""
    folder, mosaics = out / REAL_10, shared / "data" / "cifar10"
    names = ("test.npz", *(f"{corruption}-{SEVERITY}.npy" for corruption in ALL_CORRUPTIONS))
    if not all((folder / name).exists() for name in names):
        folder.mkdir(parents=True, exist_ok=True)
        test, corrupted = official(shared / "corruptions" / "cifar10c-official")
        for corruption, images in corrupted.items():
            np.save(folder / f"{corruption}-{SEVERITY}.npy", images)
        save_npz(folder / "test.npz", test)
    _keep(folder / "train.npz", lambda: read_split(mosaics, "train"))
    _keep(out / TEST_10, lambda: read_split(mosaics, "test"))
    return folder


def make_cifar100(shared: Path, out: Path) -> Path:
    """Write the folder of all test images and return it; and the training images."""
    folder, mosaics = out / REAL_100, shared / "data" / "cifar100"
    _keep(folder / "test.npz", lambda: read_split(mosaics, "test"))
    _keep(out / TRAIN_100, lambda: read_split(mosaics, "train"))
    return folder


def _keep(path: Path, images: Callable[[], Labelled]) -> None:
    """Write `images` to a file that is not there."""
    if not path.exists():
        with replacing(path) as part:
            save_npz(part, images())


def clean_from_batches(batches: Path, out: Path) -> tuple[Path, Path]:
    """The published CIFAR-10, a folder cifar-10-batches-py, as two files: all test and all training images.

    Raises UserError where a batch is missing, or is none.
    """
    made = out / TEST_10, out / "cifar10-train.npz"
    train_files, test_files = FILES[CIFAR10_C.clean_folder]
    counts = CIFAR10_C.test, CIFAR10_C.train
    out.mkdir(parents=True, exist_ok=True)
    for path, files, count in zip(made, (test_files, train_files), counts, strict=True):
        save_npz(path, read_exactly(batches, files, CIFAR10_C.num_classes, count))
    return made


MAKERS = {"cifar10": make_cifar10, "cifar100": make_cifar100}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=tuple(MAKERS), help="default: both")
    args = parser.parse_args()
    for name in (args.only,) if args.only else MAKERS:
        print(MAKERS[name](args.shared, args.out))


if __name__ == "__main__":
    main()
