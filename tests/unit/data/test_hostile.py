"""Files and names that would fill the disk or the memory, run a program, or control the terminal."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.EpsImagePlugin
import pytest

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.conftest import Output
from ttabench.data import catalog
from ttabench.data.fetch import extract
from ttabench.data.fetch.extract import unpack
from ttabench.data.fetch.fetch import place
from ttabench.data.files.array_files import open_npz
from ttabench.data.own.clean_images import read_clean
from ttabench.data.own.generate_corrupted import generate
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.errors import UserError, printable

MEGABYTE = 1 << 20


def _damage(path: Path) -> None:
    """Zeros in the middle of what is packed first."""
    raw = bytearray(path.read_bytes())
    raw[200:400] = bytes(200)
    path.write_bytes(raw)


def _zip(path: Path, count: int, size: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(count):
            archive.writestr(f"{i}", bytes(size))
    return path


def _tar(path: Path, count: int, size: int) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for i in range(count):
            info = tarfile.TarInfo(f"{i}")
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)))
    return path


# ---- archives


@pytest.mark.parametrize("make", [_zip, _tar])
def test_a_bomb_is_refused_before_it_fills_the_disk(
    tmp_path: Path, make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "ALWAYS_ALLOWED", 4 * MEGABYTE)
    path = make(tmp_path / "a.archive", 20, MEGABYTE)
    assert path.stat().st_size < MEGABYTE / 4
    with pytest.raises(UserError, match="would unpack to more than 4,194,304 bytes"):
        unpack(path, tmp_path / "in", lambda parts: parts)
    assert sum(p.stat().st_size for p in tmp_path.glob("in/*")) <= 4 * MEGABYTE


def test_a_zip_bomb_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "ALWAYS_ALLOWED", 4 * MEGABYTE)
    with pytest.raises(UserError, match="was refused"):
        unpack(_zip(tmp_path / "a.zip", 20, MEGABYTE), tmp_path / "in", lambda parts: parts)
    assert not (tmp_path / "in").exists()


def test_members_that_are_left_out_count_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "ALWAYS_ALLOWED", 4 * MEGABYTE)
    with pytest.raises(UserError, match="was refused"):
        unpack(_tar(tmp_path / "a.tar.gz", 20, MEGABYTE), tmp_path / "in", lambda parts: None)


@pytest.mark.parametrize("make", [_zip, _tar])
def test_too_many_files_are_refused(tmp_path: Path, make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "MAX_MEMBERS", 10)
    unpack(make(tmp_path / "ten", 10, 1), tmp_path / "in", lambda parts: parts)
    with pytest.raises(UserError, match="has more than 10 files and folders"):
        unpack(make(tmp_path / "eleven", 11, 1), tmp_path / "out", lambda parts: parts)
    assert len(list(tmp_path.glob("out/*"))) <= 10


@pytest.mark.parametrize("way", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_damage_however_it_is_packed(tmp_path: Path, way: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", way) as archive:
        archive.writestr("a", np.random.default_rng(0).bytes(20_000))
    _damage(tmp_path / "a.zip")
    with pytest.raises(UserError, match=r"a\.zip is damaged"):
        unpack(tmp_path / "a.zip", tmp_path / "in", lambda parts: parts)


def test_a_name_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ä", "x")
    path.write_bytes(path.read_bytes().replace("ä".encode(), b"\xff\xfe"))
    with pytest.raises(UserError, match=r"a\.zip is damaged"):
        unpack(path, tmp_path / "in", lambda parts: parts)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_file_without_a_name_is_left_out(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("./.", "abc")
    else:
        with tarfile.open(path, "w") as tar:
            info = tarfile.TarInfo(".")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    below = place(PUBLISHED["cifar10-c"].archives[0])
    assert unpack(path, tmp_path / "in", below) == 0


# ---- images and arrays


def _png(path: Path, width: int, height: int) -> Path:
    """A PNG of a few bytes that claims a size; its pixels are missing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")))
    return path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_500, 12_000, 60_000])  # Pillow itself warns of the first two only
def test_an_image_that_would_fill_the_memory_is_not_decoded(tmp_path: Path, side: int) -> None:
    _png(tmp_path / "x" / "a" / "1.png", side, side)
    with pytest.raises(UserError, match=r"1\.png has .* pixels; an image may have 89 million at most"):
        read_clean(tmp_path / "x", 32)


def test_a_second_image_of_another_size_is_not_decoded(tmp_path: Path) -> None:
    fakes.write_png(tmp_path / "x" / "a" / "1.png", fakes.clean_images(1)[0])
    _png(tmp_path / "x" / "a" / "2.png", 9_000, 9_000)
    with pytest.raises(UserError, match=r"1\.png has 32×32 pixels and .*2\.png has 9000×9000; name"):
        read_clean(tmp_path / "x")


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize("opened", [generate, catalog.dataset, catalog.foreign_set])
def test_a_program_that_is_called_an_image_is_not_run(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[..., object]
) -> None:
    """Pillow gives PostScript to Ghostscript, whatever a file is called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\n: > '{tmp_path}/ran'\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setattr(PIL.EpsImagePlugin, "gs_binary", None)
    for inner in ("test/a", "fog/1/a") if opened is catalog.dataset else ("test/a",):
        (tmp_path / "x" / inner).mkdir(parents=True)
        (tmp_path / "x" / inner / "1.png").write_bytes(POSTSCRIPT)
    folder = tmp_path / "x" if opened is catalog.dataset else tmp_path / "x" / "test"
    with pytest.raises(UserError, match=r"1\.png cannot be decoded"):
        opened(str(folder), **({"root": tmp_path, "workers": 0} if opened is generate else {}))
    assert not (tmp_path / "ran").exists()


def test_an_npz_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.data.files.array_files.RATIO_COUNTS_FROM", MEGABYTE)
    images = np.zeros((1000, 32, 32, 3), np.uint8)
    np.savez_compressed(tmp_path / "x.npz", images=images, labels=np.zeros(1000, int))
    with pytest.raises(UserError, match=r"images\.npy would unpack from [\d,]+ to 3,072,\d+ bytes"):
        open_npz(tmp_path / "x.npz")


def _promising(path: Path, promised: int, compression: int) -> Path:
    """An .npz file whose images.npy holds 4 images, with the header of another number; labels follow."""
    header, labels = io.BytesIO(), io.BytesIO()
    shape = (promised, 32, 32, 3)
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    np.save(labels, np.arange(6))
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("images.npy", header.getvalue() + bytes(4 * 32 * 32 * 3))
        archive.writestr("labels.npy", labels.getvalue() + bytes(30_000))
    return path


@each("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@each("promised", [6, 10**7, 10**12])
def test_an_npz_that_promises_more_than_it_holds_is_refused(
    tmp_path: Path, promised: int, compression: int
) -> None:
    """Six images: the two that are missing would be made of the bytes of the labels."""
    path = _promising(tmp_path / "test.npz", promised, compression)
    says = r"test\.npz was refused: the header of images\.npy promises [\d,]+ bytes, and there are 12,416"
    with pytest.raises(UserError, match=says):
        generate(path, root=tmp_path / "root", workers=0)
    np.save(tmp_path / "fog-5.npy", fakes.clean_images(6))
    with pytest.raises(UserError, match=says):
        catalog.dataset(str(tmp_path))


@each("count", [6, 10**12, 2**64])
@each("name", ["fog-5.npy", "labels.npy"])
def test_an_array_that_promises_more_than_it_holds_is_refused(tmp_path: Path, name: str, count: int) -> None:
    """As a copy that was cut off; a sweep would measure the other cells first."""
    np.savez(tmp_path / "test.npz", images=fakes.clean_images(4), labels=np.arange(4))
    np.save(tmp_path / "snow-5.npy", fakes.clean_images(4))
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, 32, 32, 3)}
    with (tmp_path / name).open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(4 * 32 * 32 * 3))
    said = rf"{name} was refused: its header promises [\d,]+ bytes"
    with pytest.raises(UserError, match=said):
        catalog.dataset(str(tmp_path))
    with pytest.raises(UserError, match=said):
        read_clean(tmp_path / name)
    (tmp_path / name).unlink()


def _npz(path: Path, way: int = zipfile.ZIP_STORED, **more: object) -> Path:
    arrays = {"images": fakes.clean_images(4), "labels": np.arange(4), **more}
    with zipfile.ZipFile(path, "w", way) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(f"{name}.npy", content.getvalue())
    return path


def _marked(path: Path, at: int, value: int) -> Path:
    """With another number at `at` in the heads of all members, and 2 bytes on in the list of contents."""
    raw = bytearray(path.read_bytes())
    for head, there in ((b"PK\x03\x04", at), (b"PK\x01\x02", at + 2)):
        start = -1
        while (start := raw.find(head, start + 1)) >= 0:
            raw[start + there] = value
    path.write_bytes(raw)
    return path


PACKED: dict[str, Callable[[Path], object]] = {
    "lzma": lambda path: _npz(path, zipfile.ZIP_LZMA),
    "bzip2": lambda path: _npz(path, zipfile.ZIP_BZIP2),
    "encrypted": lambda path: _marked(_npz(path), 6, 1),
    "an unknown way": lambda path: _marked(_npz(path), 8, 97),
}


@each("packed", [*PACKED])
def test_an_npz_that_numpy_did_not_pack_is_refused(tmp_path: Path, packed: str) -> None:
    PACKED[packed](tmp_path / "test.npz")
    np.save(tmp_path / "fog-5.npy", fakes.clean_images(4))
    said = r"test\.npz was refused: \w+\.npy is encrypted, or packed as NumPy packs no array"
    with pytest.raises(UserError, match=said):
        catalog.dataset(str(tmp_path))
    with pytest.raises(UserError, match=said):
        read_clean(tmp_path / "test.npz")


def test_a_damaged_compressed_npz_is_one_sentence(tmp_path: Path) -> None:
    _damage(_npz(tmp_path / "test.npz", zipfile.ZIP_DEFLATED))
    with pytest.raises(UserError, match=r"test\.npz is not an \.npz file, or it is damaged"):
        read_clean(tmp_path / "test.npz")


def test_labels_that_are_times_are_no_whole_numbers(tmp_path: Path) -> None:
    """NumPy counts them as such, and some of them are none."""
    times = np.array([0, 1, 2, "NaT"], "m8[s]")
    with pytest.raises(UserError, match=r"labels are timedelta64\[s\]; expected whole numbers"):
        read_clean(_npz(tmp_path / "test.npz", labels=times))


def test_a_zip_whose_list_promises_more_than_a_file_has_is_damaged(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", 1, 1000)
    raw = bytearray(path.read_bytes())
    at = raw.find(b"PK\x01\x02") + 24  # the unpacked size in the list of contents
    raw[at : at + 4] = struct.pack("<I", 1500)
    path.write_bytes(raw)
    with pytest.raises(UserError, match="is damaged: 0 has 1,000 bytes, and the archive promises 1,500"):
        unpack(path, tmp_path / "in", lambda parts: parts)


# ---- advice that is never repeated


OBJECTS = np.array([{}], dtype=object)


@pytest.mark.parametrize("arrays", [{"images": OBJECTS}, {"labels": OBJECTS}])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_nobody_is_told_to_load_pickles(tmp_path: Path, arrays: dict[str, object], save: object) -> None:
    save(tmp_path / "x.npz", **{"images": fakes.clean_images(1), "labels": np.array([0]), **arrays})
    with pytest.raises(
        UserError, match="never read: they may contain a program; save plain numbers"
    ) as caught:
        generate(tmp_path / "x.npz", root=tmp_path, workers=0)
    assert "x.npz" in str(caught.value)
    assert "pickle" not in str(caught.value)


def test_nobody_is_told_to_load_a_pickle_as_an_array(tmp_path: Path) -> None:
    root = fakes.make_cifar(tmp_path)
    for content in (b"\x80\x04}.", b"\x93NUMPY\x01\x00", b""):
        (root / "CIFAR-10-C" / "labels.npy").write_bytes(content)
        np.savez(root / "CIFAR-10-C" / "test.npz", images=fakes.clean_images(20), labels=np.arange(20) % 10)
        with pytest.raises(UserError, match=r"labels\.npy is not an array file") as caught:
            catalog.dataset(str(root / "CIFAR-10-C")).corrupted("frost", 1)
        assert "pickle" not in str(caught.value)


# ---- names and paths


LONG = "x" * 5000


@each("name", [LONG, f"/tmp/{LONG}", "a/" * 2500, "x\0y", "~nobody-has-this-name/x"])
def test_a_path_that_cannot_exist_is_one_sentence(name: str, tmp_path: Path) -> None:
    calls = (
        lambda: catalog.dataset(name, tmp_path),
        lambda: catalog.data_root(name),
        lambda: generate(name, root=tmp_path),
    )
    for call in calls:
        with pytest.raises(UserError, match="is not a usable path") as caught:
            call()
        assert len(str(caught.value)) < 300


@each("command", ["verify", "generate", "fetch"])
@each("name", [LONG, "\x1b[31mred\x07"])
def test_no_command_shows_a_traceback_or_obeys_a_name(
    command: str, name: str, ttabench: object, tmp_path: Path
) -> None:
    output: Output = ttabench("data", command, name, "--root", str(tmp_path))
    assert output.code == 2
    assert "\x1b" not in output.err + output.out
    assert "\x07" not in output.err + output.out
    assert len(output.err) < 600


def test_findings_and_lists_show_control_characters_as_codes(ttabench: object, tmp_path: Path) -> None:
    folder = tmp_path / "\x1b[31mred-c-local"
    folder.mkdir()
    np.savez(folder / "test.npz", images=fakes.clean_images(2), labels=[0, 1])
    (folder / "ttabench.json").write_text('{"name": "\\u001b[31mred-c-local", "files": {}}')
    for arguments in (["verify", str(folder)], ["list", "--root", str(tmp_path)]):
        output: Output = ttabench("data", *arguments)
        assert "\x1b" not in output.out + output.err
        assert "\\x1b[31mred" in (output.out + output.err).replace("\n", "")


def test_printable_keeps_ordinary_text() -> None:
    assert printable("Zürich – 猫\tx\ny") == "Zürich – 猫\tx\ny"
    assert printable("a\x1b]0;t\x07\x9b\x00\r") == "a\\x1b]0;t\\x07\\x9b\\x00\\r"


# ---- published folders by their path


@each(
    ("make", "folder", "name"),
    [
        (fakes.make_cifar, "CIFAR-10-C", "cifar10-c"),
        (fakes.make_cifar, "cifar-10-batches-py", "cifar10-c"),
        (fakes.make_tiny, "Tiny-ImageNet-C", "tinyimagenet-c"),
        (fakes.make_tiny, "tiny-imagenet-200", "tinyimagenet-c"),
        (fakes.make_imagenet, "ImageNet-C", "imagenet-c"),
    ],
)
def test_a_published_folder_by_its_path_gets_its_name(
    make: object, folder: str, name: str, tmp_path: Path
) -> None:
    make(tmp_path)
    root = tmp_path.resolve()
    with pytest.raises(
        UserError, match=f"published dataset {name}: set TTABENCH_DATA={root} and use the name"
    ):
        catalog.dataset(str(tmp_path / folder))
    with pytest.raises(
        UserError, match=f"is a data root: set TTABENCH_DATA={tmp_path} and use the name {name}"
    ):
        catalog.dataset(str(tmp_path))


@pytest.mark.parametrize(("classes", "name"), [(10, "cifar10-c"), (100, "cifar100-c")])
def test_a_renamed_published_folder_is_recognised_by_its_labels(
    classes: int, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "corrupted"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % classes, 5).astype(np.uint8))
    np.save(folder / "fog.npy", np.zeros((5, 32, 32, 3), np.uint8))
    new_name = catalog.PUBLISHED[name].corrupted_folder
    with pytest.raises(
        UserError, match=f"published dataset {name}: rename it to {new_name}, set TTABENCH_DATA"
    ):
        catalog.dataset(str(folder))


def test_a_folder_of_tiny_imagenet_classes_is_recognised(tmp_path: Path) -> None:
    for i in range(200):
        (tmp_path / "c" / "fog" / "1" / f"n{i:08}").mkdir(parents=True)
    with pytest.raises(UserError, match="published dataset tinyimagenet-c: rename it to Tiny-ImageNet-C"):
        catalog.dataset(str(tmp_path / "c"))
