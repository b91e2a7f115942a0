"""The published CCC from a folder of shards: its parts in order, and what is refused."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from ttabench.data.catalog import dataset
from ttabench.data.own.ccc_shards import CCCShards
from ttabench.errors import UserError
from ttabench.provenance.roots import shared_code
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.shifts import find_shifts
from ttabench.sweep.sweep_file import read_sweep_file, with_flags

NAME = "baseline_20_transition+speed_2_seed_44"
PER_SHARD = 5  # so that parts have 2, 2 and 1 images


def jpeg(shade: int, size: int = 224) -> bytes:
    file = io.BytesIO()
    PIL.Image.new("RGB", (size, size), (shade, 2 * shade, 100)).save(file, "JPEG", quality=95)
    return file.getvalue()


def member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def write_shard(
    path: Path, first: int, count: int = PER_SHARD, label: Callable[[int], bytes] = lambda i: str(i).encode()
) -> None:
    """Samples as webdataset writes them: image i of the stream has shade i and class i."""
    with tarfile.open(path, "w") as tar:
        for i in range(count):
            member(tar, f"sample_{i}.info", b"n1 n2")
            member(tar, f"sample_{i}.input.jpg", jpeg(first + i))
            member(tar, f"sample_{i}.output.cls", label(first + i))


@pytest.fixture
def folder(tmp_path: Path, own_cache: Path, own_data: Path) -> Path:
    folder = tmp_path / NAME
    folder.mkdir()
    for number in range(2):
        write_shard(folder / f"serial_{number:05}.tar", PER_SHARD * number)
    return folder


def test_parts_are_the_images_between_two_changes_in_the_order_of_the_stream(folder: Path) -> None:
    data = dataset(str(folder))
    assert isinstance(data, CCCShards)
    assert data.name == "baseline_20_transition-speed_2_seed_44-ccc-local"
    assert data.corruptions == ("00000-0", "00000-1", "00000-2", "00001-0", "00001-1", "00001-2")
    assert (data.num_classes, data.image_size, data.shifted_count()) == (1000, 224, 1)
    labels, shades = [], []
    for part in data.corruptions:
        one = data.corrupted(part, 0)
        labels += one.labels.tolist()
        shades += one.images[:, 100, 100, 0].tolist()
    assert labels == list(range(2 * PER_SHARD))
    assert np.abs(np.array(shades) - labels).max() <= 2  # JPEG


def test_it_is_opened_by_its_name_after_it_was_opened_by_its_path(folder: Path) -> None:
    name = dataset(str(folder)).name
    assert dataset(name).corruptions == dataset(str(folder)).corruptions
    assert shared_code(name) != shared_code("mine-local")


def test_a_sweep_can_take_some_parts(folder: Path, tmp_path: Path) -> None:
    asked = {"corruptions": "00000-1,00001-0", "datasets": str(folder)}
    shifts = find_shifts(dataset(str(folder)), make_grid(with_flags(asked, {})))
    assert shifts.corruptions == ("00000-1", "00001-0")
    assert shifts.severities == (0,)
    (tmp_path / "sweep.toml").write_text('corruptions = ["00000-1"]\n')
    of_file = make_grid(with_flags(read_sweep_file(tmp_path / "sweep.toml"), {}))
    assert of_file.corruptions == ("00000-1",)


@pytest.mark.parametrize("other", ["fog", "00009-0", "natural"])
def test_a_part_that_is_not_there_has_an_advice_that_can_be_followed(folder: Path, other: str) -> None:
    """It named all parts, and --corruptions refused each."""
    why = f"has no {other}. It has 00000-0, 00000-1, 00000-2, …: leave --corruptions out for all of these."
    with pytest.raises(UserError, match=why):
        find_shifts(dataset(str(folder)), make_grid(with_flags({"corruptions": other}, {})))


def test_another_shard_is_another_fingerprint(folder: Path) -> None:
    before = dataset(str(folder)).fingerprint()
    write_shard(folder / "serial_00002.tar", 10)
    assert dataset(str(folder)).fingerprint() != before


def test_the_clean_images_are_those_of_imagenet(folder: Path) -> None:
    with pytest.raises(UserError, match=r"imagenet/val is missing, which has the clean images of CCC; down"):
        dataset(str(folder)).test()


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda f: (f / "serial_00000.tar").unlink(), "serial_00000.tar is missing; CCC is one stream"),
        (lambda f: write_shard(f / "serial_00003.tar", 0), "serial_00002.tar is missing"),
        (lambda f: (f / "serial_00000.tar").write_bytes(b"no tar" * 200), "cannot be read as a tar file"),
        (lambda f: write_shard(f / "serial_00000.tar", 0, count=0), "expected a shard of CCC"),
        (lambda f: [p.unlink() for p in f.iterdir()], "serial_00000.tar is missing"),
    ],
)
def test_a_broken_stream_is_refused_when_it_is_opened(
    folder: Path, break_it: Callable[[Path], object], says: str
) -> None:
    break_it(folder)
    with pytest.raises(UserError, match=says):
        dataset(str(folder))


def test_a_folder_that_was_renamed_does_not_say_when_the_stream_changes(folder: Path) -> None:
    renamed = folder.rename(folder.with_name("ccc"))
    with pytest.raises(UserError, match=r"expected the name that it is published by, such as baseline_20_tr"):
        dataset(str(renamed))


def test_a_broken_shard_is_refused_when_it_is_read(folder: Path) -> None:
    data = dataset(str(folder))
    second = folder / "serial_00001.tar"
    write_shard(second, 5, count=4)
    with pytest.raises(UserError, match=r"holds 4 images; expected 5, as in serial_00000\.tar"):
        data.corrupted("00001-0", 0)
    write_shard(second, 5, label=lambda i: b"cat")
    with pytest.raises(UserError, match=r"sample_0.output.cls of .* is b'cat'; expected a class 0 to 999"):
        data.corrupted("00001-0", 0)
    write_shard(second, 5)
    second.write_bytes(second.read_bytes()[:4000])
    with pytest.raises(UserError, match=r"serial_00001.tar.*fetch it again"):
        data.corrupted("00001-0", 0)
    with tarfile.open(second, "w") as tar:
        for i in range(PER_SHARD):
            member(tar, f"sample_{i}.input.jpg", jpeg(i, size=32))
            member(tar, f"sample_{i}.output.cls", b"1")
    with pytest.raises(UserError, match=r"has 32×32 pixels; expected 224×224"):
        data.corrupted("00001-0", 0)


def test_members_with_other_names_are_never_read_and_images_need_labels(folder: Path) -> None:
    first = folder / "serial_00000.tar"
    with tarfile.open(first, "w") as tar:
        member(tar, "../../escape.jpg", b"x")
        member(tar, "sample_0.input.jpg", jpeg(0))
    with pytest.raises(UserError, match=r"lacks sample_0\.output\.cls"):
        dataset(str(folder))
    with tarfile.open(first, "a") as tar:
        link = tarfile.TarInfo("sample_0.output.cls")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    with pytest.raises(UserError, match=r"lacks sample_0\.output\.cls"):
        dataset(str(folder))


def test_a_part_that_is_not_there_and_a_severity_are_refused(folder: Path) -> None:
    data = dataset(str(folder))
    with pytest.raises(UserError, match="part of baseline_20"):
        data.corrupted("00002-0", 0)
    with pytest.raises(UserError, match="has no severity; severity 5"):
        data.corrupted("00000-0", 5)


@pytest.mark.parametrize("side", [12_000, 60_000])  # Pillow itself refuses the second
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_would_fill_the_memory_is_not_decoded(folder: Path, side: int) -> None:
    image = bytearray(jpeg(0))
    at = image.find(b"\xff\xc0") + 5
    image[at : at + 4] = struct.pack(">HH", side, side)
    with tarfile.open(folder / "serial_00001.tar", "w") as tar:
        for i in range(PER_SHARD):
            member(tar, f"sample_{i}.input.jpg", bytes(image))
            member(tar, f"sample_{i}.output.cls", b"1")
    data = dataset(str(folder))
    with pytest.raises(
        UserError, match=r"sample_0\.input\.jpg of .*serial_00001\.tar (has|cannot be decoded)"
    ):
        data.corrupted("00001-0", 0)


def test_a_number_of_thousands_of_digits_is_no_sample(folder: Path) -> None:
    with tarfile.open(folder / "serial_00000.tar", "a") as tar:
        member(tar, f"sample_{'9' * 5000}.input.jpg", b"")
    assert len(dataset(str(folder)).corrupted("00000-0", 0)) == 2


def test_a_shard_that_leads_back_is_not_read_for_ever(folder: Path) -> None:
    first, back = tarfile.TarInfo("a"), bytearray(tarfile.TarInfo("sample_0.input.jpg").tobuf())
    back[124:136] = bytes([255] * 10 + [254, 0])  # -512 bytes
    back[148:156] = b" " * 8
    back[148:156] = b"%06o\0 " % sum(back)
    (folder / "serial_00000.tar").write_bytes(first.tobuf() + bytes(back) + bytes(1024))
    with pytest.raises(UserError, match=r"serial_00000\.tar (is damaged|cannot be read as a tar file)"):
        dataset(str(folder))
