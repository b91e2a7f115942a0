"""The published CCC (Press et al., NeurIPS 2023) as it is: a folder of shards, in the order of the stream.

``baseline_<accuracy>_transition+speed_<images>_seed_<number>/serial_00000.tar``, … Each shard holds
``sample_<i>.input.jpg`` and ``sample_<i>.output.cls`` for i from 0 on. After every `speed` images, one of the
two severities changes; the images between two changes stand where a corruption does elsewhere.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.corruption_names import NO_SEVERITY
from ttabench.data.data_root import data_root
from ttabench.data.dataset import Labelled
from ttabench.data.own.manifest import SUFFIX
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.published.imagenet import ImageNetC
from ttabench.data.published.imagenet_facts import IMAGENET_C
from ttabench.data.published.published_on_disk import PublishedOnDisk
from ttabench.errors import UserError, unknown

ENDING = f"-ccc{SUFFIX}"
"""The names of these datasets end in it."""
FOLDER = re.compile(r"baseline_(\d+(?:\.\d+)?)_transition\+speed_([1-9]\d*)_seed_(\d+)")
SHARD = re.compile(r"serial_(\d{5})\.tar")
SAMPLE = re.compile(r"sample_(\d{1,9})\.(input\.jpg|output\.cls)")
LARGEST = 10_000_000  # bytes of an image or a label


def is_ccc(folder: Path) -> bool:
    """Whether a folder is called like a stream of CCC, or holds shards named like CCC's."""
    return bool(FOLDER.fullmatch(folder.resolve().name)) or any(
        SHARD.fullmatch(path.name) for path in folder.glob("serial_*.tar")
    )


class _CleanImageNet(ImageNetC):
    """ImageNet's validation and training images alone."""

    def __init__(self, root: Path) -> None:
        PublishedOnDisk.__init__(self, IMAGENET_C, root)
        self._corruption_folders = {}


class CCCShards(OwnDataset):
    """The shards in `folder`. Parts of the stream are named ``00000-0``: shard, part of the shard.

    Clean images are ImageNet's, below the data root. Raises UserError where the folder has another name, a
    shard is missing before the last one, or a shard is broken.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        named = FOLDER.fullmatch(folder.resolve().name)
        if named is None:
            raise UserError(
                f"{folder} holds shards of CCC; expected the name that it is published by, such as "
                "baseline_20_transition+speed_1000_seed_44, which says after how many images it changes."
            )
        self.speed = int(named[2])
        self.name = re.sub(r"[^a-z0-9._-]+", "-", named[0].lower()) + ENDING
        self.shards = self._shards()
        self.num_classes, self.image_size = IMAGENET_C.num_classes, IMAGENET_C.image_size
        self.mean, self.std = IMAGENET_C.mean, IMAGENET_C.std
        self.per_shard = len(samples(self.shards[0]))
        parts = range(-(-self.per_shard // self.speed))
        self.corruptions = tuple(f"{shard:05}-{part}" for shard in range(len(self.shards)) for part in parts)

    def _shards(self) -> list[Path]:
        """The shards in order, from 00000 on."""
        numbers = {int(m[1]): p for p in self.folder.iterdir() if (m := SHARD.fullmatch(p.name))}
        for number in range(max(numbers, default=0) + 1):
            if number not in numbers:
                raise UserError(
                    f"{self.folder / f'serial_{number:05}.tar'} is missing; CCC is one stream, so its shards "
                    "are needed from 00000 on, without a gap."
                )
        return [numbers[number] for number in sorted(numbers)]

    @cached_property
    def _clean(self) -> _CleanImageNet:
        return _CleanImageNet(data_root())

    def pieces(self) -> dict[str, Path]:
        return {path.name: path for path in self.shards} | self._clean.pieces()

    def severities(self, corruption: str) -> tuple[int, ...]:
        return (NO_SEVERITY,)

    def has_train(self) -> bool:
        return (self._clean.clean_folder / "train").is_dir()

    def shifted_count(self) -> int:
        """The images of the shortest part."""
        return self.per_shard % self.speed or min(self.speed, self.per_shard)

    def test(self) -> Labelled:
        """ImageNet's validation set. Raises UserError where it is not below the data root."""
        if not (folder := self._clean.clean_folder / "val").is_dir():
            raise UserError(f"{folder} is missing, which has the clean images of CCC; {IMAGENET_C.by_hand}.")
        return self._clean.test()

    def train(self) -> Labelled:
        return self._clean.train()

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        """The images of one part of the stream, as they come; severity is 0."""
        if corruption not in self.corruptions:
            raise unknown(f"part of {self.name}", corruption, self.corruptions)
        if severity != NO_SEVERITY:
            raise UserError(
                f"{corruption} is a part of CCC and has no severity; severity {severity} was asked."
            )
        shard, part = map(int, corruption.split("-"))
        path = self.shards[shard]
        names = samples(path)
        if len(names) != self.per_shard:
            raise UserError(
                f"{path} holds {len(names):,} images; expected {self.per_shard:,}, as in "
                f"{self.shards[0].name}; fetch it again."
            )
        chosen = names[part * self.speed : (part + 1) * self.speed]
        return read(path, chosen, self.image_size, self.num_classes)


@contextmanager
def opened(path: Path) -> Iterator[tarfile.TarFile]:
    """A shard, read but never unpacked. Raises UserError."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except (OSError, tarfile.TarError) as problem:
        raise UserError(f"{path} cannot be read as a tar file ({problem}); fetch it again.") from None


def samples(path: Path) -> list[tuple[tarfile.TarInfo, tarfile.TarInfo]]:
    """The image and the label of each sample, in the order of the stream. Other members are left out."""
    found: dict[int, dict[str, tarfile.TarInfo]] = {}
    with opened(path) as tar:
        for member in tar:
            if member.size < 0:  # Python's reader would go back, and read it again and again
                raise UserError(f"{path} is damaged: {member.name} has {member.size} bytes; fetch it again.")
            if (match := SAMPLE.fullmatch(member.name)) and member.isfile():
                found.setdefault(int(match[1]), {})[match[2]] = member
    for number in range(len(found)):
        for kind in ("input.jpg", "output.cls"):
            if kind not in found.get(number, {}):
                raise UserError(f"{path} lacks sample_{number}.{kind}; fetch it again.")
    if not found:
        raise UserError(f"{path} holds no sample_<i>.input.jpg; expected a shard of CCC.")
    return [(found[i]["input.jpg"], found[i]["output.cls"]) for i in range(len(found))]


def read(
    path: Path, chosen: list[tuple[tarfile.TarInfo, tarfile.TarInfo]], size: int, num_classes: int
) -> Labelled:
    """Images (n, size, size, 3) and labels of some samples of a shard."""
    images = np.empty((len(chosen), size, size, 3), np.uint8)
    labels = np.empty(len(chosen), np.int64)
    with opened(path) as tar:
        for i, (image, label) in enumerate(chosen):
            images[i] = pixels(content(tar, image, path), size, f"{image.name} of {path}")
            text = content(tar, label, path).strip()
            if not re.fullmatch(rb"\d{1,4}", text) or int(text) >= num_classes:
                raise UserError(
                    f"{label.name} of {path} is {text[:20]!r}; expected a class 0 to {num_classes - 1}."
                )
            labels[i] = int(text)
    return Labelled(images, labels)


def content(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bytes:
    """The bytes of a member. Raises UserError where it is too large or cut off."""
    if member.size > LARGEST:
        raise UserError(f"{member.name} of {path} has {member.size:,} bytes; expected at most {LARGEST:,}.")
    file = tar.extractfile(member)
    data = b"" if file is None else file.read()
    if len(data) != member.size:
        raise UserError(f"{path} is cut off at {member.name}; fetch it again.")
    return data


def pixels(data: bytes, size: int, what: str) -> NDArray[np.uint8]:
    """A JPEG file as (size, size, 3) RGB. Raises UserError."""
    import PIL.Image

    try:
        with PIL.Image.open(BytesIO(data), formats=["JPEG"]) as image:
            if image.size != (size, size):
                raise UserError(f"{what} has {image.width}×{image.height} pixels; expected {size}×{size}.")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as problem:
        raise UserError(f"{what} cannot be decoded ({problem}); fetch it again.") from None
