"""The published checkpoints of Compact Transformers: names, download, pins, and the guard."""

from __future__ import annotations

import hashlib
import io
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.unit.models.test_bring import Squares
from tests.unit.models_by_name import bring, construct, published, recall
from tests.unit.web import Mirror, two_at_once
from ttabench.data.dataset import Dataset, Labelled
from ttabench.errors import UserError
from ttabench.models.architectures.arch_names import MEMBERS
from ttabench.models.external import checkpoint_model, download_weights, official_checkpoints
from ttabench.models.external.download_weights import obtain
from ttabench.models.external.official_checkpoints import NAMES, PUBLISHED, checkpoint

pytestmark = pytest.mark.usefixtures("own_cache")

FILE = "cct_7_3x1_32_sine_cifar10_5000epochs.pth"


class Images(Squares):
    """As many classes and pixels as wanted; the labels are those of four."""

    def __init__(self, num_classes: int = 10, image_size: int = 32, name: str = "some-c") -> None:
        self.num_classes, self.image_size, self.name = num_classes, image_size, name

    def test(self) -> Labelled:
        every = super().test()
        return Labelled(every.images[:4], every.labels[:4])


@pytest.fixture(autouse=True)
def _one_layer_of_seven(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is downloaded, loaded and measured here is a network of one layer: that of seven takes long."""
    member = MEMBERS["cct_7_3x1_32_sine"]
    shallow = replace(member, options={**member.options, "layers": 1})
    monkeypatch.setitem(MEMBERS, member.name, shallow)


def sine() -> nn.Module:
    return construct("official/cct_7_sine", Images()).net


def in_the_authors_format() -> bytes:
    """A checkpoint of cct_7_3x1_32_sine: the state dict alone, with other positions than are computed."""
    torch.manual_seed(0)
    file = io.BytesIO()
    torch.save(sine().state_dict() | {"classifier.positional_emb": torch.zeros(1, 256, 256)}, file)
    return file.getvalue()


@pytest.fixture
def served(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """A server that has one of the files, at the first of the addresses that all of them now have."""

    def moved(each: official_checkpoints.Checkpoint) -> official_checkpoints.Checkpoint:
        urls = tuple(f"{mirror.url}/{where}/{each.file.file}" for where in ("new", "old"))
        return replace(each, file=replace(each.file, urls=urls))

    monkeypatch.setattr(official_checkpoints, "PUBLISHED", tuple(map(moved, PUBLISHED)))
    mirror.files[f"new/{FILE}"] = in_the_authors_format()
    return mirror


# ---- names


def test_the_names_are_those_of_the_authors() -> None:
    assert set(NAMES) >= {
        "cct_7_3x1_32", "cct_7_3x1_32_sine", "cct_7_3x1_32_c100", "cct_7_3x1_32_sine_c100",
        "cct_7_7x2_224_sine", "cct_14_7x2_224", "cct_14_7x2_384", "cct_14_7x2_384_fl",
    }  # fmt: skip
    assert len(set(NAMES)) == len(PUBLISHED)


def test_the_guide_lists_them_all() -> None:
    page = (Path(__file__).parents[4] / "docs" / "bring-your-own.md").read_text()
    rows = re.findall(r"^\| `(cct_\w+)` \| ([\w-]+).* \| ([\d.]+) % \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted((c.name, c.trained_on, f"{c.claimed:.2f}") for c in PUBLISHED)


@pytest.mark.parametrize("each", PUBLISHED, ids=NAMES)
def test_each_is_found_for_the_data_it_was_trained_on(each: official_checkpoints.Checkpoint) -> None:
    data = Images(each.num_classes, each.image_size)
    assert checkpoint(f"official/{each.name}", data) is each
    assert MEMBERS[each.member].image_size == each.image_size
    assert construct(f"official/{each.name}", data).num_classes == each.num_classes
    file = published(f"official/{each.name}", data)
    assert file is not None
    assert file.claimed == each.claimed == checkpoint_model.CLAIMS[each.file.file]
    for url in each.file.urls:
        assert url.endswith(f"/{each.file.file}")


@pytest.mark.parametrize(
    ("asked", "data", "name"),
    [
        ("cct_7", Images(10), "cct_7_3x1_32"),
        ("cct", Images(10), "cct_7_3x1_32"),
        ("cct_7_3x1", Images(100), "cct_7_3x1_32_c100"),
        ("cct_7_3x1_32", Images(100), "cct_7_3x1_32_c100"),
        ("cct_7_sine", Images(100), "cct_7_3x1_32_sine_c100"),
        ("cct_7_3x1_32_sine_1500", Images(100), "cct_7_3x1_32_sine_1500_c100"),
        ("CCT-14", Images(1000, 224), "cct_14_7x2_224"),
        ("cct_14", Images(102, 384), "cct_14_7x2_384_fl"),
    ],
)
def test_short_names_and_the_data_choose_the_checkpoint(asked: str, data: Dataset, name: str) -> None:
    assert checkpoint(f"official/{asked}", data).name == name


@pytest.mark.parametrize(
    ("asked", "data", "says"),
    [
        ("cct_7_3x1_23", Images(10), "official checkpoint 'cct_7_3x1_23'; did you mean 'cct_7_3x1_32'"),
        ("resnet18", Images(10), "unknown official checkpoint 'resnet18'. Valid: cct_14_7x2_224, "),
        ("cct_7_3x1_32_c100", Images(10), "trained on CIFAR-100 (100 classes, 32 pixels), but some-c has 10"),
        ("cct_7_3x1_32", Images(200, 64), "on CIFAR-10 (10 classes, 32 pixels) or CIFAR-100 (100 classes, "),
        ("cct_14_7x2_384", Images(1000, 224), "384 pixels), but some-c has 1000 classes and 224 pixels."),
    ],
)  # fmt: skip
def test_what_was_never_published_is_explained(asked: str, data: Dataset, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        checkpoint(f"official/{asked}", data)


# ---- from the server to a classifier


def test_it_is_downloaded_loaded_measured_and_kept(served: Mirror, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    brought = bring("official/cct_7_sine", Images(), progress=lambda *step: steps.append(step))
    assert served.asked == [f"new/{FILE}"]
    content = served.files[f"new/{FILE}"]
    assert (f"downloading {FILE}", len(content), len(content)) in steps
    assert brought.note["origin_sha256"] == hashlib.sha256(content).hexdigest()
    assert f"{served.url}/new/{FILE}" in brought.note["origin"]
    tensors = torch.load(io.BytesIO(content), weights_only=True)
    sinusoids = sine().state_dict()["classifier.positional_emb"]
    for name, value in brought.classifier.net.state_dict().items():
        assert torch.equal(value, sinusoids if name == "classifier.positional_emb" else tensors[name])
    mean = brought.classifier.normalize.mean.flatten()
    torch.testing.assert_close(mean, torch.tensor([0.4914, 0.4822, 0.4465]))
    again = recall("official/cct_7_sine", Images(), brought.sha256)
    assert again is not None
    bring("official/cct_7_sine", Images())
    assert served.asked == [f"new/{FILE}"]  # nothing is fetched twice


def test_an_accuracy_far_from_the_claim_is_a_warning(served: Mirror) -> None:
    warning = bring("official/cct_7_3x1_32_sine", Images()).note["warning"]
    assert "but 98.00 % is claimed" in warning


def test_a_claim_holds_for_a_file_of_ones_own_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.pth"
    file.write_bytes(in_the_authors_format())
    assert bring("official/cct_7_sine", Images(), checkpoint=file).note["claimed"] == 98.00
    file = file.rename(tmp_path / FILE)
    assert bring("cct_7_sine", Images(), checkpoint=file).note["claimed"] == 98.00


def test_the_former_address_is_tried_next(served: Mirror) -> None:
    served.files[f"old/{FILE}"] = served.files.pop(f"new/{FILE}")
    bring("official/cct_7_sine", Images())
    assert served.asked == [f"new/{FILE}", f"old/{FILE}"]


def test_a_404_says_where_to_put_the_file(served: Mirror, tmp_path: Path) -> None:
    content = served.files.pop(f"new/{FILE}")
    with pytest.raises(
        UserError, match=r"no mirror has it \(127.0.0.1:\d+: 404 Not Found; .*put it at "
    ) as caught:
        bring("official/cct_7_sine", Images())
    place = tmp_path / "cache" / "downloads" / "compact-transformers" / FILE
    assert f"put it at {place}," in str(caught.value)
    place.write_bytes(content)
    assert bring("official/cct_7_sine", Images()).note["claimed"] == 98.00


def test_a_web_page_is_never_taken_for_weights(served: Mirror) -> None:
    served.files[f"new/{FILE}"] = b"<!DOCTYPE html><html>moved</html>"
    with pytest.raises(UserError, match="it sent a web page instead of the file"):
        bring("official/cct_7_sine", Images())


def test_weights_of_another_architecture_are_refused(served: Mirror) -> None:
    file = io.BytesIO()
    torch.save({"fc.weight": torch.zeros(10, 4)}, file)
    served.files[f"new/{FILE}"] = file.getvalue()
    with pytest.raises(UserError, match="is of another architecture"):
        bring("official/cct_7_sine", Images())


def test_learned_positions_are_not_made_up(tmp_path: Path) -> None:
    """Only fixed sinusoids may be missing from a file."""
    file = tmp_path / "learned.pt"
    tensors = construct("cct_2", Images()).net.state_dict()
    del tensors["classifier.positional_emb"]
    torch.save(tensors, file)
    with pytest.raises(UserError, match=r"it lacks classifier\.positional_emb"):
        bring("cct_2", Images(), checkpoint=file)


# ---- pins


def weights(mirror: Mirror, **changes: object) -> official_checkpoints.WeightsFile:
    file = official_checkpoints.WeightsFile(file="w.pth", urls=(f"{mirror.url}/w.pth",), folder="")
    return replace(file, **changes)


def test_the_first_download_is_pinned_and_a_later_one_must_agree(mirror: Mirror) -> None:
    mirror.files["w.pth"] = b"first"
    path, sha256 = obtain(weights(mirror), "somebody")
    pin = path.with_name("w.pth.sha256")
    assert pin.read_text() == f"{hashlib.sha256(b'first').hexdigest()}  w.pth\n"
    assert sha256 == hashlib.sha256(b"first").hexdigest()
    assert obtain(weights(mirror), "somebody") == (path, sha256)
    path.unlink()
    mirror.files["w.pth"] = b"second"
    with pytest.raises(
        UserError, match=r"not the file that was first downloaded .* If .*, delete .*w\.pth\.sha256"
    ):
        obtain(weights(mirror), "somebody")
    pin.unlink()
    assert obtain(weights(mirror), "somebody")[1] == hashlib.sha256(b"second").hexdigest()


def test_a_file_that_changed_on_disk_is_noticed(mirror: Mirror) -> None:
    mirror.files["w.pth"] = b"first"
    path, _ = obtain(weights(mirror), "somebody")
    path.write_bytes(b"changed")
    with pytest.raises(UserError, match="not the file that was first downloaded"):
        obtain(weights(mirror), "somebody")


def test_a_published_checksum_comes_before_any_pin(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["w.pth"] = b"another"
    with pytest.raises(UserError, match=r"its file has the SHA256 checksum .*; expected 0000"):
        obtain(weights(mirror, sha256="0" * 64), "somebody")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_damaged_pin_is_explained(mirror: Mirror) -> None:
    mirror.files["w.pth"] = b"first"
    path, _ = obtain(weights(mirror), "somebody")
    path.with_name("w.pth.sha256").write_text("nothing\n")
    with pytest.raises(UserError, match="is damaged: it holds no SHA-256"):
        obtain(weights(mirror), "somebody")


# ---- several processes


def test_two_at_once_download_once_and_pin_the_whole_file(mirror: Mirror) -> None:
    """Without a claim, both append to the same part of the file."""
    content = mirror.files["w.pth"] = bytes(range(256)) * 100
    mirror.breaks = [1000]  # the first process waits with a part of the file
    (first, second), told = two_at_once(lambda progress: obtain(weights(mirror), "somebody", progress))
    where = f"{socket.gethostname()}:{os.getpid()}"
    assert told == [f"w.pth: waiting for {where}, which downloads it."]
    assert mirror.asked == ["w.pth", "w.pth"]  # the second time for the rest
    path, sha256 = first
    assert second == first
    assert path.read_bytes() == content
    assert sha256 == hashlib.sha256(content).hexdigest()
    assert sorted(each.name for each in path.parent.iterdir()) == ["running", "w.pth", "w.pth.sha256"]
    assert list((path.parent / "running").iterdir()) == []


def test_a_file_that_is_there_needs_no_claim(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache may be read-only."""
    mirror.files["w.pth"] = b"first"
    there = obtain(weights(mirror), "somebody")
    monkeypatch.setattr("ttabench.data.fetch.download.WorkClaims", lambda *_: pytest.fail("it writes"))
    monkeypatch.setattr(download_weights, "replace_file", lambda *_: pytest.fail("it writes"))
    assert obtain(weights(mirror), "somebody") == there
