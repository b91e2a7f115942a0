"""Fetching, with a web server on this machine playing the mirror (see `web`)."""

from __future__ import annotations

import errno
import hashlib
import http.client
import io
import json
import os
import shutil
import socket
import ssl
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.web import Mirror, two_at_once
from ttabench.data.catalog import listing
from ttabench.data.fetch import download as downloading
from ttabench.data.fetch.download import download
from ttabench.data.fetch.extract import unpack
from ttabench.data.fetch.fetch import _web_folder, fetch, fetch_published, place
from ttabench.data.published.cifar import CifarC
from ttabench.data.published.description import Archive, PublishedDataset
from ttabench.data.published.imagenet import TinyImageNetC
from ttabench.errors import UserError

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes


def described(content: bytes, mirror: Mirror, file: str = "a.tar", **changes: object) -> Archive:
    """An archive with this content. The mirror has it, unless it has another one under its name."""
    mirror.files.setdefault(file, content)
    archive = Archive(
        file=file,
        urls=(f"{mirror.url}/{file}",),
        folder="A",
        size=len(content),
        md5=hashlib.md5(content).hexdigest(),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    return replace(archive, **changes)


# ---- one file


def test_a_file_arrives_checked_and_with_progress(mirror: Mirror, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    path, result = download(described(CONTENT, mirror), tmp_path, lambda *step: steps.append(step))
    assert path.read_bytes() == CONTENT
    assert result["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    coming = [done for what, done, _ in steps if what == "downloading a.tar"]
    assert len(coming) > 1
    assert coming == sorted(coming)
    assert ("downloading a.tar", len(CONTENT), len(CONTENT)) in steps
    assert steps[-1] == ("checking a.tar", len(CONTENT), len(CONTENT))
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


def test_a_broken_connection_goes_on_where_it_stopped(mirror: Mirror, tmp_path: Path) -> None:
    mirror.breaks = [100_000, 50_000]
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT
    assert mirror.ranges == ["", "bytes=100000-", "bytes=150000-"]


def test_a_later_call_resumes_what_an_earlier_one_left(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a.tar.part").write_bytes(CONTENT[:300_000])
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT
    assert mirror.ranges == ["bytes=300000-"]


def test_a_server_that_cannot_resume_starts_over(mirror: Mirror, tmp_path: Path) -> None:
    mirror.resumes = False
    mirror.breaks = [100_000]
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5)])
def test_a_leftover_of_another_file_is_replaced(mirror: Mirror, tmp_path: Path, left: bytes) -> None:
    (tmp_path / "a.tar.part").write_bytes(left)
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT


def test_a_connection_that_keeps_breaking_is_given_up_and_kept(mirror: Mirror, tmp_path: Path) -> None:
    mirror.breaks = [1000] + [0] * 20
    with pytest.raises(UserError, match=r"the connection broke 5 times without progress"):
        download(described(CONTENT, mirror), tmp_path)
    assert (tmp_path / "a.tar.part").read_bytes() == CONTENT[:1000]
    assert not (tmp_path / "a.tar").exists()


def _one_sentence(caught: pytest.ExceptionInfo[UserError], folder: Path) -> str:
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder / "a.tar") in text  # where to put the file by hand
    assert not (folder / "a.tar").exists()
    return text


@pytest.mark.parametrize(
    ("status", "says"), [(403, "403 Forbidden"), (404, "404 Not Found"), (410, "410 Gone")]
)
def test_refusals_name_the_host_and_the_status(
    mirror: Mirror, tmp_path: Path, status: int, says: str
) -> None:
    mirror.status["a.tar"] = status
    with pytest.raises(UserError, match=r"no mirror has it \(127\.0\.0\.1:\d+: " + says) as caught:
        download(described(CONTENT, mirror), tmp_path)
    _one_sentence(caught, tmp_path)
    assert mirror.asked == ["a.tar"]


def test_a_busy_server_is_asked_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.status["a.tar"] = 503
    with pytest.raises(UserError, match="503 Service Unavailable"):
        download(described(CONTENT, mirror), tmp_path)
    assert len(mirror.asked) == downloading.ATTEMPTS


def test_a_wrong_checksum_is_never_used(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["a.tar"] = CONTENT[::-1]
    with pytest.raises(UserError, match=r"MD5 checksum [0-9a-f]{32}; expected [0-9a-f]{32}") as caught:
        download(described(CONTENT, mirror), tmp_path)
    _one_sentence(caught, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_sha256_counts_as_well(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="SHA256 checksum"):
        download(described(CONTENT, mirror, sha256="0" * 64), tmp_path)


@pytest.mark.parametrize("announces", [True, False])
def test_a_truncated_file_is_never_used(mirror: Mirror, tmp_path: Path, announces: bool) -> None:
    mirror.files["a.tar"] = CONTENT[:1000]
    mirror.announces = announces
    with pytest.raises(UserError, match="its file has 1,000 bytes; expected 512,000") as caught:
        download(described(CONTENT, mirror), tmp_path)
    _one_sentence(caught, tmp_path)


@pytest.mark.parametrize("stated", [True, False])
def test_a_server_that_sends_too_much_is_not_heard_to_the_end(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: bool
) -> None:
    monkeypatch.setattr(downloading, "BLOCK", 10_000)
    monkeypatch.setattr(downloading, "UNSTATED", 100_000)
    mirror.announces, mirror.files["a.tar"] = False, CONTENT
    archive = described(CONTENT[:100_000], mirror, **({} if stated else {"size": 0}))
    arrived: list[int] = []
    with pytest.raises(UserError, match=r"it sent more than 100,000 bytes"):
        download(archive, tmp_path, lambda what, done, total: arrived.append(done))
    assert max(arrived) <= 100_000
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0


@pytest.mark.parametrize("honest", [True, False])
def test_a_web_page_is_told_from_the_file(mirror: Mirror, tmp_path: Path, honest: bool) -> None:
    mirror.files["a.tar"] = b"<!DOCTYPE html><html>Please log in</html>"
    mirror.html = honest
    with pytest.raises(UserError, match="it sent a web page instead of the file") as caught:
        download(described(CONTENT, mirror, size=0, md5="", sha256=""), tmp_path)
    _one_sentence(caught, tmp_path)


def test_the_next_mirror_is_tried(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files |= {"bad/a.tar": CONTENT[::-1], "good/a.tar": CONTENT}
    urls = [f"{mirror.url}/{where}/a.tar" for where in ("none", "bad", "good")]
    path, _ = download(described(CONTENT, mirror), tmp_path, urls=urls)
    assert path.read_bytes() == CONTENT
    assert mirror.asked == ["none/a.tar", "bad/a.tar", "good/a.tar"]


def test_no_network_is_said_plainly(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = socket.getaddrinfo

    def found(host: str, *rest: Any, **more: Any) -> Any:
        if host == "nowhere.invalid":  # no server of names is asked, which may know any name
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return find(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/a.tar"
        urls = [nobody, "http://nowhere.invalid/a.tar"]
        with pytest.raises(UserError, match="the network cannot be reached") as caught:
            download(described(CONTENT, mirror), tmp_path, urls=urls)
    text = _one_sentence(caught, tmp_path)
    assert "nowhere.invalid" in text


NETWORK_ERRORS = {
    "TLS": ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] bad record"),
    "no route": OSError(errno.EHOSTUNREACH, "No route to host"),
    "reset": ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    "chunks": http.client.IncompleteRead(b""),
}


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """What reading from the network raises, time by time; None = it works. At the end it works."""
    outcomes: list[Exception | None] = []
    read = http.client.HTTPResponse.read1

    def read1(answer: http.client.HTTPResponse, size: int = -1) -> bytes:
        if outcomes and (problem := outcomes.pop(0)):
            raise problem
        return read(answer, size)

    monkeypatch.setattr(http.client.HTTPResponse, "read1", read1)
    return outcomes


@pytest.mark.parametrize("what", NETWORK_ERRORS)
def test_a_network_error_in_the_middle_is_an_interruption(
    mirror: Mirror, tmp_path: Path, reading: list[Exception | None], what: str
) -> None:
    reading += [None, NETWORK_ERRORS[what]]
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT
    assert len(mirror.ranges) == 2
    assert mirror.ranges[1].startswith("bytes=")


def test_a_server_may_be_silent_for_some_seconds_and_is_then_asked_again(
    mirror: Mirror, tmp_path: Path, reading: list[Exception | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, allowed = http.client.HTTPConnection.connect, list[float | None]()

    def noted(connection: http.client.HTTPConnection) -> None:
        allowed.append(connection.timeout)
        connect(connection)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", noted)
    reading += [None, TimeoutError("timed out")]
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT
    assert allowed == [downloading.TIMEOUT] * 2
    assert mirror.ranges[1].startswith("bytes=")


@pytest.mark.parametrize("what", NETWORK_ERRORS)
def test_a_mirror_with_network_errors_is_given_up_for_the_next(
    mirror: Mirror, tmp_path: Path, reading: list[Exception | None], what: str
) -> None:
    mirror.files |= {"bad/a.tar": CONTENT, "good/a.tar": CONTENT}
    reading += [NETWORK_ERRORS[what]] * downloading.ATTEMPTS
    urls = [f"{mirror.url}/{where}/a.tar" for where in ("bad", "good")]
    assert download(described(CONTENT, mirror), tmp_path, urls=urls)[0].read_bytes() == CONTENT
    assert mirror.asked == ["bad/a.tar"] * downloading.ATTEMPTS + ["good/a.tar"]


def test_a_network_error_before_the_answer_is_an_interruption(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = list(NETWORK_ERRORS.values())
    begin = http.client.HTTPResponse.begin

    def fails_at_first(answer: http.client.HTTPResponse) -> None:
        if problems:
            raise problems.pop()
        begin(answer)

    monkeypatch.setattr(http.client.HTTPResponse, "begin", fails_at_first)
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ETIMEDOUT])
def test_an_error_of_writing_is_none_of_the_network(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A network folder that does not answer is a TimeoutError, as a web server that does not."""

    class Broken(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "open", lambda *_: Broken())
    with pytest.raises(OSError, match=os.strerror(code)):
        download(described(CONTENT, mirror), tmp_path)
    assert mirror.asked == ["a.tar"]


def test_a_file_put_there_by_hand_is_checked_and_used(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(CONTENT)
    assert download(described(CONTENT, mirror), tmp_path)[0].read_bytes() == CONTENT
    assert mirror.asked == []
    (tmp_path / "a.tar").write_bytes(CONTENT[:-1])
    with pytest.raises(UserError, match="is not the published archive: it has 511,999 bytes"):
        download(described(CONTENT, mirror), tmp_path)


# ---- unpacking


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


HOSTILE = {
    "climbs": _member("A/../../evil"),
    "absolute": _member("/tmp/evil"),
    "windows": _member("A\\..\\evil"),
    "symlink": _member("A/evil", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": _member("A/evil", tarfile.LNKTYPE, "A/good"),
    "fifo": _member("A/evil", tarfile.FIFOTYPE),
    "device": _member("A/evil", tarfile.CHRTYPE),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_members_are_refused_as_a_whole(mirror: Mirror, tmp_path: Path, what: str) -> None:
    content = _tar((_member("A/good"), b"1"), (HOSTILE[what], b""))
    facts = replace(fakes.FAKE_CIFAR10, archives=(described(content, mirror),))
    with pytest.raises(UserError, match=r"a\.tar was refused"):
        fetch_published(facts, tmp_path / "root")
    left = [p.name for p in tmp_path.rglob("*") if p.is_file()]
    assert left == ["a.tar"]  # nothing was unpacked, inside or outside the target


def test_a_link_followed_by_a_file_through_it_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    content = _tar((_member("A/door", tarfile.SYMTYPE, str(outside)), b""), (_member("A/door/evil"), b"1"))
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UserError, match="is a link"):
        unpack(tmp_path / "a.tar", tmp_path / "in", lambda parts: parts)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "/evil", "A/../../evil"])
def test_a_zip_that_climbs_out_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "1")
    with pytest.raises(UserError, match="would land outside"):
        unpack(tmp_path / "a.zip", tmp_path / "in", lambda parts: parts)
    assert not (tmp_path / "evil").exists()


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UserError, match="is a link"):
        unpack(tmp_path / "a.zip", tmp_path / "in", lambda parts: parts)


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "zip"])
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "A"
    folder.mkdir()
    (folder / "x").write_bytes(CONTENT)
    whole = {
        "tar": fakes.tar_of(folder),
        "tar.gz": fakes.tar_of(folder, mode="w:gz"),
        "zip": fakes.zip_of(folder),
    }[suffix]
    path = tmp_path / f"a.{suffix}"
    for damaged in (whole[: len(whole) // 2], b"no archive at all", b""):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"is damaged .*fetch it again"):
            unpack(path, tmp_path / "in" / str(len(damaged)), lambda parts: parts)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(_tar((_member("x"), b"1"), (_member("./x"), b"2")))
    with pytest.raises(UserError, match="two files for"):
        unpack(tmp_path / "a.tar", tmp_path / "in", lambda parts: parts)


def test_unpacked_files_are_ordinary(tmp_path: Path) -> None:
    info = _member("x")
    info.mode = 0o6777
    (tmp_path / "a.tar").write_bytes(_tar((info, b"1")))
    unpack(tmp_path / "a.tar", tmp_path / "in", lambda parts: parts)
    assert (tmp_path / "in" / "x").stat().st_mode & 0o7111 == 0


@each(
    ("member", "target"),
    [
        ("Tiny-ImageNet-C/frost/1/n1/a.JPEG", "frost/1/n1/a.JPEG"),
        ("./blur/defocus_blur/1/n1/a.JPEG", "defocus_blur/1/n1/a.JPEG"),
        ("defocus_blur/1/n1/a.JPEG", "defocus_blur/1/n1/a.JPEG"),
        ("Tiny-ImageNet-C/README.txt", None),
        ("Tiny-ImageNet-C/frost/1/n1/._a.JPEG", None),
    ],
)
def test_corruptions_land_in_one_layout_however_they_are_wrapped(member: str, target: str | None) -> None:
    archive = Archive(file="a.tar", urls=(), folder="Tiny-ImageNet-C", split=True)
    parts = place(archive)(tuple(p for p in member.split("/") if p != "."))
    assert (None if parts is None else "/".join(parts)) == target


# ---- a whole dataset


def _published(mirror: Mirror, made: Path, facts: PublishedDataset) -> PublishedDataset:
    """Archives of a fake on the mirror, and its description with their checksums."""
    archives = []
    for archive in facts.archives:
        folder = made / archive.folder
        if archive.file.endswith(".zip"):
            content = fakes.zip_of(folder)
        elif archive.split:
            chosen = ["speckle_noise"] if "extra" in archive.file else list(fakes.SOME)
            scratch = made / f"packed-{archive.file}"
            scratch.mkdir()
            for corruption in chosen:
                (folder / corruption).rename(scratch / corruption)
            content = fakes.tar_of(scratch)
        else:
            content = fakes.tar_of(folder, mode="w:gz" if archive.file.endswith("gz") else "w")
        mirror.files[archive.file] = content
        archives.append(
            replace(described(content, mirror, archive.file), folder=archive.folder, split=archive.split)
        )
    return replace(facts, archives=tuple(archives))


def check_here(facts: PublishedDataset, root: Path) -> None:
    """A fetch finds every archive here."""
    output = fetch_published(facts, root)
    assert len(output) == len(facts.archives)
    assert all("is here already" in line for line in output)


def test_cifar_is_fetched_and_usable(mirror: Mirror, tmp_path: Path) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    mirror.breaks = [5000]
    output = fetch_published(facts, tmp_path / "root")
    assert len(output) == 2
    assert all("checksum as published" in line for line in output)
    data = CifarC(facts, tmp_path / "root")
    assert fakes.stamps(data.corrupted("frost", 4).images)[7][:2] == (4, 7)
    assert list((tmp_path / "root" / "downloads").iterdir()) == []
    assert listing(tmp_path / "root")[1].state == "partly"  # the made archive has some corruptions


def test_fetching_twice_downloads_once(mirror: Mirror, tmp_path: Path) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    fetch_published(facts, tmp_path / "root")
    asked = len(mirror.asked)
    check_here(facts, tmp_path / "root")
    assert len(mirror.asked) == asked


def _shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


CHANGES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "truncated": _shortened,
    "replaced by a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_arrays_that_are_not_whole_are_fetched_again(mirror: Mirror, tmp_path: Path, what: str) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    root = tmp_path / "root"
    fetch_published(facts, root)
    whole = (root / "CIFAR-10-C" / "frost.npy").read_bytes()
    CHANGES[what](root / "CIFAR-10-C" / "frost.npy")
    mirror.asked.clear()
    output = fetch_published(facts, root)
    assert mirror.asked == ["CIFAR-10-C.tar"]
    assert "is here already (6 files in" in output[0]
    assert "CIFAR-10-C.tar: 4 files in" in output[1]
    assert (root / "CIFAR-10-C" / "frost.npy").read_bytes() == whole
    check_here(facts, root)


@pytest.fixture
def tiny(mirror: Mirror, tmp_path: Path) -> PublishedDataset:
    """A dataset in ``root``, two of whose archives share a folder; what its mirror was asked is forgotten."""
    made = fakes.make_tiny(tmp_path / "made", corruptions=[*fakes.SOME, "speckle_noise"])
    facts = _published(mirror, made, fakes.FAKE_TINY)
    fetch_published(facts, tmp_path / "root")
    mirror.asked.clear()
    return facts


IMAGE_CHANGES: dict[str, Callable[[Path], object]] = {
    "one image deleted": Path.unlink,
    "one image too many": lambda path: shutil.copy(path, path.with_name("more.JPEG")),
    "a class deleted": lambda path: shutil.rmtree(path.parent),
    "a corruption deleted": lambda path: shutil.rmtree(path.parents[2]),
}


@pytest.mark.parametrize("what", IMAGE_CHANGES)
def test_image_folders_that_are_not_whole_are_fetched_again(
    mirror: Mirror, tmp_path: Path, tiny: PublishedDataset, what: str
) -> None:
    image = tmp_path / "root" / "Tiny-ImageNet-C" / "frost" / "2" / fakes.WNIDS[0] / "test_0.JPEG"
    whole = image.read_bytes()
    IMAGE_CHANGES[what](image)
    fetch_published(tiny, tmp_path / "root")
    assert mirror.asked == ["Tiny-ImageNet-C.tar"]
    assert image.read_bytes() == whole
    assert len(list(image.parent.iterdir())) == 2
    check_here(tiny, tmp_path / "root")


def test_a_receipt_does_not_grow_with_the_images(tmp_path: Path, tiny: PublishedDataset) -> None:
    receipts = tmp_path / "root" / ".fetched"
    unpacked = [json.loads((receipts / f"{a.file}.json").read_text())["unpacked"] for a in tiny.archives]
    words, annotations = ((tmp_path / "made" / "tiny-imagenet-200" / name).stat().st_size
                          for name in ("wnids.txt", "val/val_annotations.txt"))  # fmt: skip
    assert annotations
    assert unpacked == [
        {"train": {"files": 12}, "val": {"files": 8 + 1}, "wnids.txt": {"bytes": words}},
        {corruption: {"files": 5 * 8} for corruption in sorted(fakes.SOME)},
        {"speckle_noise": {"files": 5 * 8}},
    ]


def test_hidden_files_and_files_beside_the_archive_do_not_count(
    mirror: Mirror, tmp_path: Path, tiny: PublishedDataset
) -> None:
    folder = tmp_path / "root" / "Tiny-ImageNet-C"
    (folder / "frost" / "1" / ".DS_Store").touch()
    (folder / "notes.txt").touch()
    check_here(tiny, tmp_path / "root")
    assert mirror.asked == []


def _as_earlier_versions_wrote_it(root: Path, archive: Archive) -> None:
    path = root / ".fetched" / f"{archive.file}.json"
    receipt = json.loads(path.read_text())
    del receipt["unpacked"]
    path.write_text(json.dumps(receipt))


def test_receipts_of_earlier_versions_are_compared_by_the_number_of_files(
    mirror: Mirror, tmp_path: Path, tiny: PublishedDataset
) -> None:
    """Where archives share a folder, it only has to exist."""
    root = tmp_path / "root"
    for archive in tiny.archives:
        _as_earlier_versions_wrote_it(root, archive)
    (root / "tiny-imagenet-200" / ".DS_Store").touch()
    (root / "Tiny-ImageNet-C" / "frost" / "2" / fakes.WNIDS[0] / "test_0.JPEG").unlink()
    check_here(tiny, root)
    (root / "tiny-imagenet-200" / "wnids.txt").unlink()
    fetch_published(tiny, root)
    assert mirror.asked == ["tiny-imagenet-200.zip"]
    shutil.rmtree(root / "Tiny-ImageNet-C")
    fetch_published(tiny, root)
    assert mirror.asked[1:] == ["Tiny-ImageNet-C.tar", "Tiny-ImageNet-C-extra.tar"]


@pytest.mark.parametrize("damage", ["", "[]", "{}", "null", '{"files": "many"}', '{"files": 4'])
def test_a_damaged_receipt_counts_as_none(mirror: Mirror, tmp_path: Path, damage: str) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    facts = replace(facts, archives=tuple(replace(a, md5="", sha256="") for a in facts.archives))
    fetch_published(facts, tmp_path / "root")
    (tmp_path / "root" / ".fetched" / "CIFAR-10-C.tar.json").write_text(damage)
    mirror.asked.clear()
    fetch_published(facts, tmp_path / "root")
    assert mirror.asked == ["CIFAR-10-C.tar"]


def test_a_link_to_another_disk_is_replaced_and_what_it_leads_to_is_kept(
    mirror: Mirror, tmp_path: Path, tiny: PublishedDataset
) -> None:
    link, elsewhere = tmp_path / "root" / "Tiny-ImageNet-C" / "frost", tmp_path / "elsewhere"
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    check_here(tiny, tmp_path / "root")
    shutil.rmtree(elsewhere / "1")
    fetch_published(tiny, tmp_path / "root")
    assert mirror.asked == ["Tiny-ImageNet-C.tar"]
    assert not link.is_symlink()
    assert sorted(p.name for p in elsewhere.iterdir()) == ["2", "3", "4", "5"]


def test_two_at_once_download_once_one_after_the_other(mirror: Mirror, tmp_path: Path) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    facts = replace(facts, archives=facts.archives[1:])
    (first, second), told = two_at_once(lambda progress: fetch_published(facts, tmp_path / "root", progress))
    where = f"{socket.gethostname()}:{os.getpid()}"
    assert told == [f"CIFAR-10-C.tar: waiting for {where}, which fetches it."]
    assert mirror.asked == ["CIFAR-10-C.tar"]
    assert "checksum as published" in first[0]
    assert "is here already" in second[0]
    assert list((tmp_path / "root" / ".fetched" / "running").iterdir()) == []


def test_what_is_here_is_found_in_a_folder_that_cannot_be_written(
    tmp_path: Path, tiny: PublishedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: pytest.fail("it writes"))
    check_here(tiny, tmp_path / "root")


def test_what_a_killed_process_had_unpacked_is_deleted_before_space_is_needed(
    mirror: Mirror, tmp_path: Path
) -> None:
    """A folder of another archive may be in use."""
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    huge = replace(facts, archives=(replace(facts.archives[1], size=10**18),))
    mine = [".unpacking-CIFAR-10-C.tar-x0_abcde"]
    kept = [".unpacking-cifar-10-python.tar.gz-x0_abcde", "unpacking-x0_abcde"]
    for name in mine + kept:
        (tmp_path / "root" / name / "frost").mkdir(parents=True)
        (tmp_path / "root" / name / "frost" / "a.JPEG").touch()
    with pytest.raises(UserError, match=r"needs .* GB below"):
        fetch_published(huge, tmp_path / "root")
    left = [p.name for p in (tmp_path / "root").iterdir()]
    assert sorted(left) == sorted([*kept, ".fetched"])


def test_the_folder_for_unpacking_names_its_archive(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that only the process with the claim on this archive deletes it."""
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    seen: set[str] = set()

    def look(what: str, *_: object) -> None:
        if what.startswith("unpacking"):
            seen.update(p.name[:-8] for p in (tmp_path / "root").glob(".unpacking-*"))

    fetch_published(facts, tmp_path / "root", look)
    assert seen == {f".unpacking-{archive.file}-" for archive in facts.archives}
    assert not list((tmp_path / "root").glob(".unpacking-*"))


def test_another_release_is_fetched_anew(mirror: Mirror, tmp_path: Path) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    fetch_published(facts, tmp_path / "root")
    newer = _published(mirror, fakes.make_cifar(tmp_path / "newer", corruptions=["fog"]), fakes.FAKE_CIFAR10)
    fetch_published(newer, tmp_path / "root")
    assert "fog" in CifarC(newer, tmp_path / "root").corruptions


def test_tiny_is_fetched_from_its_three_archives(mirror: Mirror, tmp_path: Path) -> None:
    made = fakes.make_tiny(tmp_path / "made", corruptions=[*fakes.SOME, "speckle_noise"])
    facts = _published(mirror, made, fakes.FAKE_TINY)
    fetch_published(facts, tmp_path / "root", keep=True)
    data = TinyImageNetC(facts, tmp_path / "root")
    assert data.corruptions == (*fakes.SOME, "speckle_noise")
    assert len(data.corrupted("speckle_noise", 5)) == 8
    assert {p.name for p in (tmp_path / "root" / "downloads").iterdir()} == set(mirror.files)


def test_without_a_published_checksum_it_says_what_came(mirror: Mirror, tmp_path: Path) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    bare = tuple(replace(a, md5="", sha256="", size=0) for a in facts.archives)
    output = fetch_published(replace(facts, archives=bare), tmp_path / "root")
    for line, archive in zip(output, facts.archives, strict=True):
        assert "no published checksum known" in line
        assert hashlib.sha256(mirror.files[archive.file]).hexdigest() in line


def test_a_mirror_of_ones_own_comes_first(mirror: Mirror, tmp_path: Path) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    mirror.files |= {f"own/{name}": content for name, content in mirror.files.items()}
    fetch_published(facts, tmp_path / "root", mirror=f"{mirror.url}/own/")
    assert mirror.asked == ["own/cifar-10-python.tar.gz", "own/CIFAR-10-C.tar"]


@pytest.mark.parametrize("given", ["ä ö", quote("ä ö"), "ä%20ö"])
def test_the_address_of_a_mirror_may_have_any_letters(mirror: Mirror, tmp_path: Path, given: str) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    mirror.files |= {f"{quote('ä ö')}/{name}": content for name, content in mirror.files.items()}
    fetch_published(facts, tmp_path / "root", mirror=f"{mirror.url}/{given}/")
    assert mirror.asked == [f"%C3%A4%20%C3%B6/{archive.file}" for archive in facts.archives]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://Bücher.example:8080/x/", "http://xn--bcher-kva.example:8080/x"),
        ("https://ä/?key=é&b=%C3", "https://xn--4ca/?key=%C3%A9&b=%C3"),
        ("HTTP://[::1]:80", "http://[::1]:80"),
        ("http://h/a'b~(c)", "http://h/a'b~(c)"),
    ],
)
def test_the_address_of_a_mirror_is_asked_in_ascii(given: str, asked: str) -> None:
    assert _web_folder(given) == asked


@each(
    "given",
    ["ftp://x", "x", "http:///x", "http://[::1/", "http://h:99999/", "http://a..ä/", "http://h/\udce4"],
)
def test_what_is_no_address_is_refused_in_one_sentence(tmp_path: Path, given: str) -> None:
    with pytest.raises(UserError, match="is not a web address; expected http"):
        fetch_published(fakes.FAKE_CIFAR10, tmp_path, mirror=given)
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_said_before_the_download(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    huge = tuple(replace(a, size=10**18) for a in facts.archives)
    with pytest.raises(UserError, match=r"needs .* GB below .* are free"):
        fetch_published(replace(facts, archives=huge), tmp_path / "root")
    assert mirror.asked == []


def test_a_disk_that_gets_full_while_files_are_unpacked_is_told_with_the_cure(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    monkeypatch.setattr("ttabench.data.fetch.extract.shutil.copyfileobj", full)
    with pytest.raises(UserError, match=r"No space left on device\); free space there, or set TTABENCH_DATA"):
        fetch_published(facts, tmp_path / "root")
    assert not list((tmp_path / "root").glob(".unpacking-*"))


def test_a_failed_fetch_leaves_what_was_there(mirror: Mirror, tmp_path: Path) -> None:
    facts = _published(mirror, fakes.make_cifar(tmp_path / "made"), fakes.FAKE_CIFAR10)
    fetch_published(facts, tmp_path / "root")
    before = CifarC(facts, tmp_path / "root").fingerprint()
    broken = tuple(replace(a, md5="0" * 32) for a in facts.archives)
    with pytest.raises(UserError, match="checksum"):
        fetch_published(replace(facts, archives=broken), tmp_path / "root")
    assert CifarC(facts, tmp_path / "root").fingerprint() == before


def test_names_that_cannot_be_fetched(tmp_path: Path) -> None:
    assert "nothing to fetch" in fetch("digits-c", tmp_path)[0]
    with pytest.raises(UserError, match="did you mean 'cifar10-c'"):
        fetch("cifar10c", tmp_path)
