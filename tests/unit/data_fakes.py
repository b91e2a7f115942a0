"""Small fakes of the published datasets, in their published layouts.

Every corrupted image says in its own pixels what it is: red = 40 × severity, green = the row of the
test image, blue = the corruption's place in the canonical order. So a test can tell an off-by-one.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS
from ttabench.corruptions.frost_textures import OFFICIAL_FILES
from ttabench.data.published.cifar_facts import CIFAR10_1, CIFAR10_C, CIFAR100_C
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.imagenet_facts import IMAGENET_C, IMAGENET_R, IMAGENET_V2, TINYIMAGENET_C

SOME = ("gaussian_noise", "frost", "jpeg_compression")

FAKE_CIFAR10 = replace(CIFAR10_C, test=20, train=50)
FAKE_CIFAR100 = replace(CIFAR100_C, test=200, train=100)
FAKE_TINY = replace(TINYIMAGENET_C, num_classes=4, test=8, train=12)
FAKE_IMAGENET = replace(IMAGENET_C, num_classes=3, test=6, train=9)
WNIDS = ("n01443537", "n01629819", "n02085620", "n03126707")


def stamped(corruption: str, severity: int, row: int, size: int) -> NDArray[np.uint8]:
    """One corrupted image that says what it is."""
    colour = (40 * severity, row, ALL_CORRUPTIONS.index(corruption))
    return np.full((size, size, 3), colour, np.uint8)


def stamps(images: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
    """(severity, row, corruption) of each image."""
    corner = images[:, 0, 0].astype(int)
    return [(red // 40, green, blue) for red, green, blue in corner.tolist()]


def clean_images(count: int, size: int = 32, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 256, (count, size, size, 3), np.uint8)


def natural_images(count: int, size: int = 32) -> np.ndarray:
    """Images whose amplitude falls with 1/frequency, as photographs' does, so that corruptions act alike."""
    draw = np.random.Generator(np.random.PCG64(3))
    fy, fx = np.meshgrid(*[np.fft.fftfreq(size)] * 2, indexing="ij")
    falloff = 1 / np.maximum(np.hypot(fy, fx), 1 / size)[..., None]
    shapes = np.fft.ifft2(
        np.fft.fft2(draw.normal(size=(count, size, size, 3)), axes=(1, 2)) * falloff, axes=(1, 2)
    )
    return np.clip(shapes.real * 18 + 120, 0, 255).astype(np.uint8)


def labels_for(count: int, classes: int, seed: int = 1) -> NDArray[np.int64]:
    """Balanced labels in a shuffled order."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(np.arange(count) % classes)


def write_batch(path: Path, images: NDArray[np.uint8], labels: Iterable[int], key: bytes = b"labels") -> None:
    """A pickled CIFAR batch: 3,072 values per image, channel by channel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    batch = {b"batch_label": b"a fake", key: [int(v) for v in labels], b"data": np.ascontiguousarray(data)}
    if key == b"fine_labels":
        batch[b"coarse_labels"] = [0] * len(images)
    path.write_bytes(pickle.dumps(batch, protocol=2))


def make_cifar(root: Path, facts: PublishedDataset = FAKE_CIFAR10, corruptions: Iterable[str] = SOME) -> Path:
    """A fake of cifar10-c or cifar100-c below `root`."""
    test, train = clean_images(facts.test), clean_images(facts.train, seed=2)
    test_labels, train_labels = (
        labels_for(facts.test, facts.num_classes),
        labels_for(facts.train, facts.num_classes),
    )
    clean = root / facts.clean_folder
    if facts.num_classes == 10:
        for i, rows in enumerate(np.split(np.arange(facts.train), 5), start=1):
            write_batch(clean / f"data_batch_{i}", train[rows], train_labels[rows])
        write_batch(clean / "test_batch", test, test_labels)
    else:
        write_batch(clean / "train", train, train_labels, b"fine_labels")
        write_batch(clean / "test", test, test_labels, b"fine_labels")
    folder = root / facts.corrupted_folder
    folder.mkdir(parents=True)
    np.save(folder / "labels.npy", np.tile(test_labels, 5).astype(np.uint8))
    for corruption in corruptions:
        rows = [stamped(corruption, s, i, 32) for s in range(1, 6) for i in range(facts.test)]
        np.save(folder / f"{corruption}.npy", np.stack(rows))
    return root


def write_image(path: Path, pixels: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95, subsampling=0)


def write_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def make_folders_c(
    folder: Path, wnids: Iterable[str], per_class: int, size: int, corruptions: Iterable[str] = SOME
) -> None:
    """``<corruption>/<severity>/<wnid>/*.JPEG``; rows are counted class by class."""
    for corruption in corruptions:
        for severity in range(1, 6):
            for c, wnid in enumerate(wnids):
                for i in range(per_class):
                    path = folder / corruption / str(severity) / wnid / f"test_{i}.JPEG"
                    write_image(path, stamped(corruption, severity, c * per_class + i, size))


def make_tiny(root: Path, facts: PublishedDataset = FAKE_TINY, corruptions: Iterable[str] = SOME) -> Path:
    """A fake of tinyimagenet-c below `root`, the validation set as published."""
    clean = root / facts.clean_folder
    wnids = WNIDS[: facts.num_classes]
    lines = []
    for c, wnid in enumerate(wnids):
        for i in range(facts.train // len(wnids)):
            write_image(clean / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", stamped("fog", 1, c, 64))
    for i in range(facts.test):  # neighbours in the folder are of different classes
        c = i % len(wnids)
        write_image(clean / "val" / "images" / f"val_{i}.JPEG", stamped("fog", 2, c, 64))
        lines.append(f"val_{i}.JPEG\t{wnids[c]}\t0\t0\t63\t63")
    (clean / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (clean / "wnids.txt").write_text("\n".join(reversed(wnids)) + "\n")
    make_folders_c(root / facts.corrupted_folder, wnids, facts.test // len(wnids), 64, corruptions)
    return root


def make_imagenet(root: Path, corruptions: Iterable[str] = ("fog",)) -> Path:
    """A fake of imagenet-c below `root`, corruptions in the groups of its archives."""
    facts = FAKE_IMAGENET
    wnids = WNIDS[: facts.num_classes]
    for split, total in (("train", facts.train), ("val", facts.test)):
        for c, wnid in enumerate(wnids):
            for i in range(total // len(wnids)):
                tall = np.full((300, 260, 3), (0, c, 50 * i), np.uint8)
                write_image(root / facts.clean_folder / split / wnid / f"{split}_{i}.JPEG", tall)
    for corruption in corruptions:
        group = root / facts.corrupted_folder / "weather"
        make_folders_c(group, wnids, facts.test // len(wnids), 224, [corruption])
    return root


FAKE_CIFAR10_1 = replace(CIFAR10_1, test=20, train=50, shifted=30)
FAKE_IMAGENET_R = replace(IMAGENET_R, num_classes=3, test=6, train=9, shifted=4, shifted_classes=2)
FAKE_IMAGENET_V2 = replace(IMAGENET_V2, num_classes=3, test=6, train=9, shifted=6, shifted_classes=3)


def make_cifar10_1(root: Path) -> Path:
    """A fake of cifar10.1 below `root`; the labels are 32-bit numbers, as published."""
    make_cifar(root, corruptions=())
    folder = root / FAKE_CIFAR10_1.corrupted_folder
    folder.mkdir()
    np.save(folder / "cifar10.1_v6_data.npy", clean_images(30, seed=7))
    np.save(folder / "cifar10.1_v6_labels.npy", labels_for(30, 10, seed=8).astype(np.int32))
    return root


def make_natural(root: Path, facts: PublishedDataset, folders: Iterable[str]) -> Path:
    """A fake of a natural shift of ImageNet, two images per class folder; red = the folder's place."""
    make_imagenet(root, corruptions=())
    for number, name in enumerate(folders):
        for i in range(2):
            pixels = np.full((240, 300, 3), (50 * number, i, 0), np.uint8)
            write_image(root / facts.corrupted_folder / name / f"{i}.jpg", pixels)
    return root


def make_frost(folder: Path) -> Path:
    """A folder with pictures under the names of the published ones."""
    folder.mkdir(parents=True)
    for file in OFFICIAL_FILES:
        Image.fromarray(clean_images(1, 300)[0]).save(folder / file)
    return folder


def tar_of(folder: Path, wrapped: str = "", mode: str = "w") -> bytes:
    """A tar archive of a folder's content under the name `wrapped` (default: the folder's)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        tar.add(folder, wrapped or folder.name)
    return out.getvalue()


def zip_of(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder.parent))
    return out.getvalue()
