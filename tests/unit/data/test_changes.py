"""Images that change while a cell runs, or just after their hash was taken: no number is stored for them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from tests.unit.conftest import Run
from tests.unit.data_fakes import clean_images, labels_for
from tests.unit.stored_results import CELL
from tests.unit.sweep_processes import NET
from ttabench import get_dataset
from ttabench.cell.protocol import Protocol
from ttabench.data.catalog import foreign_set
from ttabench.data.files import fingerprint
from ttabench.data.files.fingerprint import file_sha256, folder_sha256
from ttabench.data.own.generate_corrupted import generate
from ttabench.errors import UnusableModel
from ttabench.run.unchanged_data import unchanged_data
from ttabench.store import Store


@pytest.fixture
def weather(tmp_path: Path, own_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``weather-c-local`` under fog at two severities, in arrays."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "pooled_net.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path / "nets")
    np.savez(tmp_path / "weather.npz", images=clean_images(40), labels=labels_for(40, 4))
    return generate(tmp_path / "weather.npz", corruptions=["fog"], severities=(4, 5), workers=0)


def as_folders(arrays: Path, target: Path) -> Path:
    """The same images in class folders."""
    with np.load(arrays / "test.npz") as file:
        images, labels = file["images"], file["labels"]
    sets = {"test": images} | {f"fog/{s}": np.load(arrays / f"fog-{s}.npy") for s in (4, 5)}
    for name, pictures in sets.items():
        for at, (image, label) in enumerate(zip(pictures, labels, strict=True)):
            folder = target / name / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{at}.png")
    return target


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Let `change` happen at every batch of TENT."""
    from ttabench_methods.tent import Tent

    original = Tent.adapt

    def adapt(self: Any, x: Tensor) -> Tensor:
        change()
        return original(self, x)

    monkeypatch.setattr(Tent, "adapt", adapt)


def sweep(
    ttabench: Run, data: Path | str, out: Path, *more: str, levels: str = "4,5"
) -> dict[tuple[str, int], str]:
    """Status of each cell, or its reason where it failed."""
    output = ttabench(
        "sweep", "--methods", "tent", "--archs", "pooled_net:build", "--datasets", data,
        "--corruptions", "fog", "--severities", levels, "--batch-size", "20", "--workers", "0",
        "--out", out, *more,
    )  # fmt: skip
    assert output.code in (0, 1), output.err
    return {
        (r.result.cell.method, r.result.cell.severity): r.result.reason or r.result.status
        for r in Store.at(out).latest().values()
    }


def flip(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 255
    with path.open("r+b") as file:  # the same file, as a memory map sees it
        file.write(content)


def test_an_array_that_is_overwritten_while_a_cell_runs_gives_no_number(
    ttabench: Run, weather: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch, lambda: flip(weather / "fog-5.npy"))
    found = sweep(ttabench, weather, tmp_path / "r")
    assert "changed during the sweep" in found["tent", 5] or "was written to while" in found["tent", 5]
    assert "changed during" in found["tent", 4] or "was written to while" in found["tent", 4]


def test_an_array_that_is_changed_and_put_back_gives_no_number(
    ttabench: Run, weather: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fingerprint is the old one again, but the method saw other images."""

    def change() -> None:
        flip(weather / "fog-5.npy")
        flip(weather / "fog-5.npy")

    changing(monkeypatch, change)
    found = sweep(ttabench, weather, tmp_path / "r")
    assert "fog-5.npy was written to while the cell ran" in found["tent", 5]


def test_a_folder_of_images_is_looked_at_again(
    ttabench: Run, weather: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = as_folders(weather, tmp_path / "photos-c-local")
    image = next((pictures / "fog" / "5").rglob("*.png"))

    def change() -> None:
        Image.fromarray(np.full((32, 32, 3), time.monotonic_ns() % 256, np.uint8)).save(image)

    changing(monkeypatch, change)
    found = sweep(ttabench, pictures, tmp_path / "r", levels="5")
    assert f"{image} was written to while the cell ran" in found["tent", 5]
    found = sweep(ttabench, pictures, tmp_path / "r4", levels="4")
    assert found["tent", 4] == "ok"  # its own images are as they were


def test_images_that_contaminate_a_stream_are_looked_at_again(
    ttabench: Run, weather: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "other.npz", images=clean_images(40, seed=5), labels=labels_for(40, 4))
    other = generate(tmp_path / "other.npz", corruptions=["fog"], severities=(5,), workers=0)
    changing(monkeypatch, lambda: flip(other / "test.npz", 400))
    found = sweep(ttabench, weather, tmp_path / "r", "--contamination", "other-c-local(0.5)")
    assert "other-c-local" in found["tent", 5]
    assert "changed during the sweep" in found["tent", 5] or "was written to" in found["tent", 5]


def test_foreign_images_that_were_overwritten_before_the_sweep_are_not_those_that_were_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder looks the same, and its remembered hash is that of the images before."""
    monkeypatch.setattr(fingerprint, "SETTLED", -60.0)
    path = tmp_path / "foreign" / "a.png"
    path.parent.mkdir()
    Image.fromarray(clean_images(2)[0]).save(path)
    planned = foreign_set(str(path.parent)).fingerprint()
    path.write_bytes(path.read_bytes() + b"more")
    digits = get_dataset("digits-c")
    protocol = Protocol(contamination="foreign-images-local(0.5)")
    cell = replace(
        CELL, dataset="digits-c", fingerprint=digits.fingerprint(), foreign=planned, protocol=protocol
    )
    with (
        pytest.raises(UnusableModel, match="foreign-images-local changed during the sweep"),
        unchanged_data(cell, digits, foreign_set(str(path.parent))) as check,
    ):
        check()


def test_data_that_do_not_change_give_numbers(ttabench: Run, weather: Path, tmp_path: Path) -> None:
    for data in (weather, as_folders(weather, tmp_path / "photos-c-local")):
        found = sweep(ttabench, data, tmp_path / f"results of {data.name}")
        assert found["tent", 4] == found["tent", 5] == "ok"


@pytest.mark.parametrize("hashed", [file_sha256, lambda path: folder_sha256(path.parent)])
def test_a_young_file_keeps_no_remembered_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed: Callable[[Path], str]
) -> None:
    """A second change within one tick of the clock of a file system leaves the same times."""
    path = tmp_path / "d" / "a.npy"
    path.parent.mkdir()
    path.write_bytes(b"one")
    monkeypatch.setattr(fingerprint, "_stamp", lambda stat: "the same times")
    first = hashed(path)
    path.write_bytes(b"two")
    assert hashed(path) != first
    monkeypatch.setattr(fingerprint, "SETTLED", -60.0)  # a minute later
    second = hashed(path)
    path.write_bytes(b"six")
    assert hashed(path) == second  # remembered


def test_what_a_full_look_found_is_not_missed_by_the_next_quick_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a sweep that refuses images which were overwritten just now would refuse them again."""
    path = tmp_path / "d" / "a.png"
    path.parent.mkdir()
    path.write_bytes(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "SETTLED", -60.0)
        first = folder_sha256(path.parent)
    path.write_bytes(b"other")
    assert folder_sha256(path.parent, quick=True) == first
    assert folder_sha256(path.parent) == folder_sha256(path.parent, quick=True) != first


def test_a_file_from_the_future_counts_as_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "SETTLED", -60.0)  # of its two times, one alone is young
    path = tmp_path / "a.npy"
    path.write_bytes(b"one")
    later = time.time() + 1e6
    os.utime(path, (later, later))
    file_sha256(path)
    assert not fingerprint._note(path).exists()


def test_a_link_that_leads_nowhere_and_is_hidden_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"one")
    (tmp_path / ".gone").symlink_to(tmp_path / "nowhere")
    assert folder_sha256(tmp_path)
    shutil.rmtree(tmp_path)
