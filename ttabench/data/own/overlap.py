"""Test images that are among the training images too: accuracy on them says nothing of new images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.errors import counted

LOOKED_AT = 500  # test files that are sought among the training files
ROWS = 4_096  # images whose middle rows are read at once
Images = NDArray[np.uint8]  # (n, H, W, 3)


def overlap(shared: int, looked: int, whole: int = 0) -> str:
    """A sentence without its end about `shared` of the `looked` at test images, of `whole` in all; ""."""
    images = counted(looked, "test image") + (f", drawn from {whole:,}," if looked < whole else "")
    if not shared:
        return ""
    if shared == looked:
        return f"all of {images} are training images too: accuracy says nothing about new images"
    return f"{shared:,} of {images} are training images too; take them out of one of the two sets"


def overlap_of_files(test: Sequence[Path], train: Sequence[Path]) -> str:
    """:func:`overlap` of image files with the same bytes; up to `LOOKED_AT` test images are looked at."""
    some = test[:: max(1, -(-len(test) // LOOKED_AT))]
    return overlap(shared_files(some, train), len(some), len(test))


def shared_images(test: Images, train: Images) -> int:
    """The number of test images that are in the training set, pixel by pixel.

    Images are compared by their middle rows first, so that little is read of large files.
    """
    if test.shape[1:] != train.shape[1:]:
        return 0
    ours, theirs = list(_middles(test)), list(_middles(train))
    alike = set(ours) & set(theirs)
    if not alike:
        return 0
    known = {_hash(train[row]) for row, middle in enumerate(theirs) if middle in alike}
    return sum(_hash(test[row]) in known for row, middle in enumerate(ours) if middle in alike)


def shared_files(test: Sequence[Path], train: Sequence[Path]) -> int:
    """The number of test files that have the bytes of a training file."""
    ours = [path.stat().st_size for path in test]
    sizes = set(ours)
    candidates = [(path, size) for path in train if (size := path.stat().st_size) in sizes]
    alike = {size for _, size in candidates}
    known = {hashlib.sha256(path.read_bytes()).digest() for path, _ in candidates}
    return sum(
        hashlib.sha256(path.read_bytes()).digest() in known
        for path, size in zip(test, ours, strict=True)
        if size in alike
    )


def _middles(images: Images) -> Iterator[bytes]:
    middle = images.shape[1] // 2
    for start in range(0, len(images), ROWS):
        for row in np.ascontiguousarray(images[start : start + ROWS, middle]):
            yield row.tobytes()


def _hash(image: Images) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).digest()
