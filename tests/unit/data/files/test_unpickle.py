"""Pickled CIFAR batches: what Python 2 and 3 wrote is read; anything that is a program is refused."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.unit.data_fakes import clean_images, write_batch
from ttabench.data.files.unpickle import load_batch
from ttabench.data.published.clean_cifar import read_batches
from ttabench.errors import UserError


def python2_pickle(data: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2's cPickle wrote with protocol 2: byte strings for text, and numpy's globals."""

    def text(value: bytes) -> bytes:
        return (
            b"U" + bytes([len(value)]) + value
            if len(value) < 256
            else b"T" + struct.pack("<i", len(value)) + value
        )

    numbers = b"".join(b"K" + bytes([v]) for v in labels)
    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    shape = b"".join(b"M" + struct.pack("<H", side) for side in data.shape) + b"\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
        + b"(K\x01" + shape + dtype + b"\x89" + text(data.tobytes()) + b"tb"
    )  # fmt: skip
    return (
        b"\x80\x02}(" + text(b"batch_label") + text(b"testing batch 1 of 1")
        + text(b"labels") + b"](" + numbers + b"e" + text(b"data") + array + b"u."
    )  # fmt: skip


def test_what_python_2_wrote_is_read(tmp_path: Path) -> None:
    images = clean_images(3)
    data = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(3, -1)
    raw = python2_pickle(data, [4, 0, 9])
    # The stream is a real one: numpy itself reads it the same way.
    assert (pickle.loads(raw, encoding="bytes")[b"data"] == data).all()
    (tmp_path / "test_batch").write_bytes(raw)
    result = read_batches(tmp_path, ("test_batch",), 10)
    assert (result.images == images).all()
    assert result.labels.tolist() == [4, 0, 9]


@each("protocol", [0, 1, 2, 3, 4])
def test_what_python_3_wrote_is_read(tmp_path: Path, protocol: int) -> None:
    content = {
        b"data": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "labels": [1, 2, 3],
        b"x": np.array([1.5]),
    }
    (tmp_path / "batch").write_bytes(pickle.dumps(content, protocol))
    result = load_batch(tmp_path / "batch")
    assert (result["data"] == content[b"data"]).all()
    assert result["labels"] == [1, 2, 3]
    assert result["x"].tolist() == [1.5]


class _Runs:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


@each("protocol", [0, 2, 4])
@each("function", [os.system, eval, open, getattr, np.load, np.frombuffer])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int, function: object) -> None:
    marker = tmp_path / "was run"
    hostile = {b"data": _Runs(function, f"touch '{marker}'"), b"labels": []}
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(hostile, protocol))
    with pytest.raises(UserError, match="was refused: it contains a call of") as caught:
        load_batch(path)
    assert not marker.exists()
    assert "fetch the dataset again" in str(caught.value)


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.array([(1, 2)], dtype="i4,i4"), np.array(["text"])]
)
def test_arrays_of_anything_but_numbers_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": array}, 2))
    with pytest.raises(UserError, match=r"refused|not a CIFAR batch"):
        load_batch(path)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (b"(K\x01K\x02\x85K\x00\x89U\x01xtb", "was refused: it contains an array that is not made of plain"),
        (b"(tb", "is not a CIFAR batch, or it is damaged"),  # an empty tuple
        (b"Nb", "is not a CIFAR batch, or it is damaged"),  # None
    ],
)
def test_a_broken_array_is_an_error_message(tmp_path: Path, state: bytes, says: str) -> None:
    head = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    (tmp_path / "batch").write_bytes(head + state + b".")
    with pytest.raises(UserError, match=says):
        load_batch(tmp_path / "batch")


@each("content", [b"", b"<html>503</html>", b"\x80\x02}", b"\x80\x02K\x01.", b"\x80\x02\x82\x01."])
def test_no_pickle_at_all_is_one_clear_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(UserError, match=r"not a CIFAR batch|a CIFAR batch is a dictionary|refused"):
        load_batch(tmp_path / "batch")


LARGE = 1 << 36  # 64 GiB


@each(
    "content",
    [
        b"\x80\x04}\x8e" + struct.pack("<Q", LARGE) + b"bytes",
        b"\x80\x04}\x8d" + struct.pack("<Q", LARGE) + b"text",
        b"\x80\x05}\x96" + struct.pack("<Q", LARGE) + b"bytearray",
        b"\x80\x04\x95" + struct.pack("<Q", LARGE) + b"}.",
        b"\x80\x02}r" + struct.pack("<I", 1 << 24) + b".",  # a place far up in the list of what was read
    ],
)
def test_what_claims_to_be_large_takes_no_memory(tmp_path: Path, content: bytes) -> None:
    """The last one of ten bytes, with the highest number, took 64 GiB."""
    (tmp_path / "batch").write_bytes(content)
    tracemalloc.start()
    try:
        with suppress(UserError):
            load_batch(tmp_path / "batch")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Of what is claimed, Python asks the system for memory that it never touches.
    assert peak < 1 << 20 or peak > LARGE


def test_channels_and_rows_keep_their_places(tmp_path: Path) -> None:
    image = np.zeros((1, 32, 32, 3), np.uint8)
    image[0, 3, 7, 1] = 200  # row 3, column 7, green
    write_batch(tmp_path / "b", image, [0])
    data = load_batch(tmp_path / "b")["data"]
    assert data[0, 1024 + 3 * 32 + 7] == 200
    assert (read_batches(tmp_path, ("b",), 10).images == image).all()


@each(
    ("batch", "reason"),
    [
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "for 1 labels"),
        ({b"data": np.zeros((1, 3072), np.float32), b"labels": [0]}, "no uint8 'data'"),
        ({b"data": np.zeros((1, 12288), np.uint8), b"labels": [0]}, "32×32"),
        ({b"labels": [0]}, "no uint8 'data'"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}, "expected 10 classes"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["cat"]}, "no list of labels"),
    ],
)
def test_a_batch_of_another_shape_is_refused(tmp_path: Path, batch: dict[bytes, object], reason: str) -> None:
    (tmp_path / "b").write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(UserError, match=reason):
        read_batches(tmp_path, ("b",), 10)
