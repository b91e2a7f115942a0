"""Bring your own: generate a -C version, use existing -C folders, and never mix them with published data."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.conftest import Run
from tests.unit.sweep_processes import wait_for
from ttabench.corruptions.engine import corrupt
from ttabench.data import catalog
from ttabench.data.dataset import Labelled
from ttabench.data.files import array_files
from ttabench.data.files.array_files import open_npz, save_npz
from ttabench.data.files.fingerprint import folder_sha256
from ttabench.data.own import corrupting_processes, generate_corrupted, generated_folder
from ttabench.data.own.clean_images import enlarged, read_clean
from ttabench.data.own.generate_corrupted import generate
from ttabench.data.own.manifest import MANIFEST
from ttabench.data.published.cifar import CifarC
from ttabench.errors import UserError
from ttabench.system.files import user_path
from ttabench.system.work_claims import process_start

SMALL = {"corruptions": ("gaussian_noise", "brightness"), "severities": (1, 5), "workers": 0}


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A clean test set of 40 images of 4 classes."""
    path = tmp_path / "flowers.npz"
    np.savez(path, images=fakes.clean_images(40), labels=fakes.labels_for(40, 4))
    return path


# ---- generating


def test_a_generated_set_is_what_the_corruption_functions_make(clean: Path, tmp_path: Path) -> None:
    folder = generate(clean, root=tmp_path, **SMALL)
    assert folder == tmp_path / "flowers-c-local"
    data = catalog.dataset("flowers-c-local", tmp_path)
    assert (data.name, data.num_classes, data.image_size) == ("flowers-c-local", 4, 32)
    assert data.corruptions == ("gaussian_noise", "brightness")
    assert (data.test().images == fakes.clean_images(40)).all()
    for corruption in data.corruptions:
        for severity in (1, 5):
            result = data.corrupted(corruption, severity)
            assert (result.images == corrupt(fakes.clean_images(40), corruption, severity, seed=0)).all()
            assert (result.labels == fakes.labels_for(40, 4)).all()
    assert np.allclose(data.mean, fakes.clean_images(40).mean((0, 1, 2)) / 255, atol=1e-4)


def test_processes_and_chunks_change_nothing(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = generate(clean, root=tmp_path / "a", **SMALL)
    two = generate(clean, root=tmp_path / "b", **{**SMALL, "workers": 2})
    monkeypatch.setattr(array_files, "CHUNK", 7)
    three = generate(clean, root=tmp_path / "c", **SMALL)
    prints = {catalog.dataset(str(f)).fingerprint() for f in (one,)}
    assert prints == {catalog.dataset("flowers-c-local", tmp_path / w).fingerprint() for w in "abc"}
    names = sorted(p.name for p in one.iterdir())
    for other in (two, three):
        assert sorted(p.name for p in other.iterdir()) == names
        assert all((other / n).read_bytes() == (one / n).read_bytes() for n in names)


@pytest.mark.slow
@pytest.mark.skipif(
    not cv2.checkHardwareSupport(corrupting_processes.AVX2), reason="needs a processor with AVX2"
)
def test_all_processors_with_avx2_make_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenBLAS has other kernels by processor; of 20 million values of elastic_transform, some differed."""
    images = np.random.default_rng(0).integers(0, 256, (6500, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "noise.npz", images=images, labels=np.arange(6500) % 10)
    made, options = [], {"corruptions": ["elastic_transform"], "severities": [5]}
    for name, kernels in (("a", "Haswell"), ("b", "Nehalem"), ("c", "")):
        with monkeypatch.context() as patch:
            patch.setenv("OPENBLAS_CORETYPE", kernels)
            folder = generate(tmp_path / "noise.npz", root=tmp_path / name, workers=1, **options)
            assert os.environ["OPENBLAS_CORETYPE"] == kernels  # as it was
        made.append(np.load(folder / "elastic_transform-5.npy"))
    assert (made[0] == made[1]).all()
    assert (made[0] == made[2]).all()


def test_an_interrupted_run_goes_on(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = corrupting_processes._make

    def dies(task: corrupting_processes.Task) -> str:
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(task.file)
        return real(task)

    monkeypatch.setattr(corrupting_processes, "_make", dies)
    with pytest.raises(KeyboardInterrupt):
        generate(clean, root=tmp_path, **SMALL)
    folder = tmp_path / "flowers-c-local"
    assert sorted(p.name for p in folder.glob("*-*.npy")) == sorted(made)
    with pytest.raises(UserError, match="generate it first"):
        catalog.dataset(str(folder)).corrupted("gaussian_noise", 1)
    stamps = {name: (folder / name).stat().st_mtime_ns for name in made}
    monkeypatch.undo()
    steps: list[tuple[str, int, int]] = []
    generate(clean, root=tmp_path, **SMALL, on_progress=lambda *step: steps.append(step))
    assert [(done, total) for _, done, total in steps] == [(2, 4), (3, 4), (4, 4)]
    assert stamps == {name: (folder / name).stat().st_mtime_ns for name in made}


def test_a_killed_worker_is_one_sentence_and_the_next_run_goes_on(clean: Path, tmp_path: Path) -> None:
    def kill(file: str, done: int, total: int) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(UserError, match=r"a worker process was killed.*Run the same command again"):
        generate(clean, root=tmp_path, workers=2, on_progress=kill)
    folder = tmp_path / "flowers-c-local"
    made = {path.name for path in folder.glob("*-*.npy")}
    assert 0 < len(made) < 95
    steps: list[str] = []
    generate(clean, root=tmp_path, workers=0, on_progress=lambda file, done, total: steps.append(file))
    assert len(steps) < 95
    assert len(list(folder.iterdir())) == 95 + 2  # with the clean set and the manifest


def train_of(clean: Path) -> Path:
    """A training set with the labels of the clean test set, and other images."""
    with np.load(clean) as stored:
        np.savez(clean.parent / "train.npz", images=255 - stored["images"], labels=stored["labels"])
    return clean.parent / "train.npz"


def test_what_ends_before_its_first_corrupted_file_goes_on(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, data: Labelled) -> None:
        if "train.npz" in path.name:
            raise KeyboardInterrupt
        save_npz(path, data)

    monkeypatch.setattr(generated_folder, "save_npz", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(clean, train=train_of(clean), root=tmp_path, **SMALL)
    monkeypatch.undo()
    folder = generate(clean, train=train_of(clean), root=tmp_path, **SMALL)
    assert len(catalog.dataset(folder.name, tmp_path).train())


def test_temporary_files_of_a_killed_process_are_no_obstacle_and_are_deleted(
    clean: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "flowers-c-local"
    (folder / ".generating" / "running").mkdir(parents=True)
    for file in ("ttabench.json", "train.npz"):
        (folder / f".123-0a1b2c3d-{file}").touch()
    generate(clean, root=tmp_path, **SMALL)
    assert len(list(folder.iterdir())) == 4 + 2


def test_a_disk_that_fills_up_is_one_sentence(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory map has its full size from the start, and whoever writes into it is killed."""
    monkeypatch.setattr(array_files, "CHUNK", 20)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fills_up(images: np.ndarray, *_: object, **__: object) -> np.ndarray:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (images.size, before[1])
        )  # files get no larger than a chunk
        return images

    monkeypatch.setattr(corrupting_processes, "corrupt_any_size", fills_up)
    try:
        with pytest.raises(UserError, match=r"brightness-5\.npy cannot be written \(File too large\)"):
            generate(clean, root=tmp_path, **{**SMALL, "corruptions": ["brightness"]})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(p.name for p in (tmp_path / "flowers-c-local").iterdir()) == ["test.npz", "ttabench.json"]


def test_files_are_written_as_numpy_writes_them(clean: Path, tmp_path: Path) -> None:
    made = generate(clean, root=tmp_path, **SMALL) / "brightness-5.npy"
    np.save(tmp_path / "again.npy", np.load(made))
    assert made.read_bytes() == (tmp_path / "again.npy").read_bytes()


def test_two_at_once_work_one_after_the_other(clean: Path, tmp_path: Path) -> None:
    folder = generate(clean, root=tmp_path, **{**SMALL, "severities": [5]})
    second = threading.Thread(target=generate, args=(clean,), kwargs={"root": tmp_path, **SMALL})
    with warnings.catch_warnings(record=True, action="always") as told:
        with generated_folder.alone(folder):
            part = folder / ".123-0a1b2c3d-brightness-1.npy"
            part.touch()
            second.start()
            wait_for(lambda: told or not second.is_alive())
            assert part.exists()
            assert second.is_alive()
            assert not (folder / "brightness-1.npy").exists()
        second.join()
    where = f"{socket.gethostname()}:{os.getpid()}"
    assert [str(each.message) for each in told] == [f"{folder}: waiting for {where}, which works there."]
    assert len(list(folder.iterdir())) == 4 + 2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the processes of Linux")
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_command(tmp_path: Path, ends: signal.Signals) -> None:
    """Ctrl-C goes to all processes of a terminal, SIGKILL to one."""
    np.savez(tmp_path / "many.npz", images=fakes.clean_images(9000), labels=fakes.labels_for(9000, 4))
    # Without job control a shell starts background commands with SIGINT ignored, and Python keeps that.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", f"{start}from ttabench.cli import main; main()", "data", "generate"]
    with (tmp_path / "stderr").open("w") as stderr:
        running = subprocess.Popen(
            [*command, tmp_path / "many.npz", "--root", tmp_path, "--workers", "2"],
            stderr=stderr, start_new_session=True,
        )  # fmt: skip
    folder = tmp_path / "many-c-local"
    wait_for(lambda: any(folder.glob(".*-glass_blur-5.npy.part")))
    listed = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
    children = [int(pid) for pid in listed.split()]
    assert len(children) >= 2
    try:
        os.killpg(running.pid, ends) if ends == signal.SIGINT else running.kill()
        running.wait(300)
        wait_for(lambda: not any(map(process_start, children)))
    finally:
        for pid in filter(process_start, children):
            os.kill(pid, signal.SIGKILL)
    assert not any(folder.glob("glass_blur-*.npy"))  # which take long, and nobody went on to make them
    if ends == signal.SIGINT:
        assert running.returncode == 130
        assert (tmp_path / "stderr").read_text() == "ttabench: interrupted.\n"
        assert not any(folder.glob(".*"))


def test_more_can_be_added_later_and_a_spoilt_file_is_made_again(clean: Path, tmp_path: Path) -> None:
    folder = generate(clean, root=tmp_path, **SMALL)
    path = folder / "brightness-5.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"x")
    with pytest.raises(UserError, match=r"brightness-5\.npy is not what was generated"):
        catalog.dataset(str(folder)).corrupted("brightness", 5)
    generate(clean, root=tmp_path, **{**SMALL, "severities": (1, 3, 5)})
    assert path.read_bytes() == whole
    assert len(catalog.dataset(str(folder)).corrupted("brightness", 3)) == 40


def test_files_that_are_there_are_not_written_again(clean: Path, tmp_path: Path) -> None:
    trains = [tmp_path / f"train-{seed}.npz" for seed in (8, 9)]
    for seed, train in zip((8, 9), trains, strict=True):
        np.savez(train, images=fakes.clean_images(40, seed=seed), labels=fakes.labels_for(40, 4))
    folder = generate(clean, root=tmp_path, train=trains[0], **SMALL)
    trained = fakes.clean_images(40, seed=8)

    def states() -> set[tuple[str, int, int]]:
        return {(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}

    before = states()
    generate(clean, root=tmp_path, train=trains[0], **SMALL)
    assert states() == before
    generate(clean, root=tmp_path, **{**SMALL, "severities": (1, 3, 5)})
    written = {name for name, *_ in states() - before}
    assert written == {MANIFEST, "gaussian_noise-3.npy", "brightness-3.npy"}
    manifest = json.loads((folder / MANIFEST).read_text())
    for state in (manifest, {key: value for key, value in manifest.items() if key != "trained_on"}):  # older
        (folder / MANIFEST).write_text(json.dumps(state))
        with pytest.raises(UserError, match="has another training set than that of --train"):
            generate(clean, root=tmp_path, train=trains[1], **SMALL)
        assert (catalog.dataset(folder.name, tmp_path).train().images == trained).all()
        generate(clean, root=tmp_path, train=trains[0], **SMALL)
    (folder / "train.npz").unlink()
    with pytest.raises(UserError, match="has another training set"):
        generate(clean, root=tmp_path, train=trains[1], **SMALL)
    generate(clean, root=tmp_path, train=trains[0], **SMALL)
    assert (catalog.dataset(folder.name, tmp_path).train().images == trained).all()


def test_files_from_another_source_seed_or_version_are_not_mixed(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(clean, root=tmp_path, **SMALL)
    with pytest.raises(UserError, match="exists with another --seed; give this one another --name, or"):
        generate(clean, root=tmp_path, seed=1, **SMALL)
    np.savez(tmp_path / "other.npz", images=fakes.clean_images(40, seed=9), labels=fakes.labels_for(40, 4))
    with pytest.raises(UserError, match="flowers-c-local exists with other images; give"):
        generate(tmp_path / "other.npz", name="flowers", root=tmp_path, **SMALL)
    monkeypatch.setattr(generate_corrupted, "VERSION", "another")
    with pytest.raises(UserError, match="with another version of the corruptions;"):
        generate(clean, root=tmp_path, **SMALL)
    with pytest.raises(UserError, match="other images or another --size and another version of the corr"):
        generate(clean, root=tmp_path, size=64, **SMALL)


@each("first, then", [(50, 0), (0, 50), (50, 60)])
def test_files_of_another_jpeg_quality_are_not_mixed(
    clean: Path, tmp_path: Path, first: int, then: int
) -> None:
    generate(clean, root=tmp_path, jpeg=first, **SMALL)
    with pytest.raises(UserError, match="exists with another --jpeg;"):
        generate(clean, root=tmp_path, jpeg=then, **SMALL)


def test_nothing_is_written_into_a_strangers_folder(clean: Path, tmp_path: Path) -> None:
    folder = tmp_path / "flowers-c-local"
    folder.mkdir()
    (folder / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="holds files that were not generated"):
        generate(clean, root=tmp_path, **SMALL)
    assert [p.name for p in folder.iterdir()] == ["thesis.tex"]


def test_image_folders_and_a_training_set(tmp_path: Path) -> None:
    images, labels = fakes.clean_images(12, 64), fakes.labels_for(12, 3)
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        fakes.write_png(tmp_path / "birds" / f"class{label}" / f"{i:02}.png", image)
        fakes.write_png(tmp_path / "train" / f"class{label}" / f"{i:02}.png", 255 - image)
    folder = generate(tmp_path / "birds", train=tmp_path / "train", root=tmp_path, **SMALL)
    data = catalog.dataset(str(folder))
    order = np.argsort(labels, kind="stable")
    assert (data.test().images == images[order]).all()
    assert data.test().labels.tolist() == sorted(labels)
    assert (data.train().images == 255 - images[order]).all()
    expected = corrupt(images[order], "brightness", 5, seed=0)
    assert (data.corrupted("brightness", 5).images == expected).all()


def test_training_images_of_another_size_are_refused(clean: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "large.npz", images=fakes.clean_images(6, 64), labels=fakes.labels_for(6, 3))
    with pytest.raises(UserError, match=rf"large\.npz has images of another size than {clean}"):
        generate(clean, train=tmp_path / "large.npz", root=tmp_path / "root", **SMALL)


def test_without_a_training_set_it_says_how_to_add_one(clean: Path, tmp_path: Path) -> None:
    data = catalog.dataset(str(generate(clean, root=tmp_path, **SMALL)))
    with pytest.raises(UserError, match=r"again, with --train\. Else: put train\.npz"):
        data.train()
    generate(clean, train=train_of(clean), root=tmp_path, **SMALL)
    assert len(catalog.dataset(data.name, tmp_path).train()) == 40


@pytest.mark.parametrize(("side", "nearest"), [(28, 32), (96, 64)])
def test_other_sizes_are_resized_to_the_nearest_or_on_request(
    tmp_path: Path, side: int, nearest: int
) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, images=fakes.clean_images(4, side), labels=[0, 1, 0, 1])
    with pytest.raises(UserError, match=rf"{side}×{side} pixels; .*--size 32, --size 64 or --size 224"):
        read_clean(path)
    with pytest.warns(UserWarning, match=f"all are resized to {nearest}×{nearest} pixels"):
        data = catalog.dataset(str(generate(path, root=tmp_path, **SMALL)))
    assert data.test().images.shape == (4, nearest, nearest, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = catalog.dataset(str(generate(path, root=tmp_path, name="y", size=64, **SMALL)))
    assert data.test().images.shape == (4, 64, 64, 3)


def test_images_that_a_size_enlarges_are_a_warning(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=fakes.clean_images(4, 28), labels=[0, 1, 0, 1])
    with pytest.warns(UserWarning, match=r"x\.npz: images of 28×28 pixels are enlarged to 64×64"):
        generate(tmp_path / "x.npz", root=tmp_path, size=64, **SMALL)
    with pytest.warns(UserWarning, match=r"x\.npz: images of 28×28 pixels are enlarged to 32×32"):
        generate(tmp_path / "x.npz", root=tmp_path, name="nearest", **SMALL)
    for row, (height, width) in enumerate(((64, 64), (50, 90), (70, 80))):
        fakes.write_png(
            tmp_path / "y" / f"{row % 2}" / f"{row}.png", np.full((height, width, 3), row, np.uint8)
        )
    says = r"1 of 3 images, such as .*1\.png \(90×50 pixels\), are enlarged to 64×64"
    with pytest.warns(UserWarning, match=says):
        generate(tmp_path / "y", root=tmp_path, size=64, **SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not enlarged(tmp_path / "y", 50)


def test_images_that_are_cropped_once_more_are_a_warning(tmp_path: Path) -> None:
    for row, side in enumerate((224, 224, 300)):
        fakes.write_png(tmp_path / "y" / f"{row % 2}" / f"{row}.png", fakes.clean_images(1, side, row)[0])
    with pytest.warns(UserWarning, match=r"2 of 3 images, such as .*0\.png, have 224×224 pixels already"):
        generate(tmp_path / "y", root=tmp_path, size=224, **SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(tmp_path / "y", root=tmp_path, name="small", size=64, **SMALL)
        (tmp_path / "y" / "0" / "2.png").unlink()
        generate(tmp_path / "y", root=tmp_path, name="whole", size=224, **SMALL)


@each("first, then", [((224, 224), (375, 500)), ((40, 40), (224, 224)), ((40, 50), (50, 40))])
def test_images_of_mixed_sizes_need_a_size(
    tmp_path: Path, first: tuple[int, int], then: tuple[int, int]
) -> None:
    """Whichever comes first, and in the training set too."""
    for row, (height, width) in enumerate((first, then)):
        fakes.write_png(tmp_path / "x" / "a" / f"{row}.png", np.full((height, width, 3), row, np.uint8))
    says = (
        rf"x has images of mixed sizes: .*0\.png has {first[1]}×{first[0]} pixels and .*1\.png has "
        rf"{then[1]}×{then[0]}; name the size that all are resized to: --size 32, --size 64 or --size 224\."
    )
    if first == (40, 50):  # of equally many pixels, the narrower one is the first
        says = r"1\.png has 40×50 pixels and .*0\.png has 50×40; name"
    with pytest.raises(UserError, match=says):
        generate(tmp_path / "x", root=tmp_path, **SMALL)
    with pytest.raises(UserError, match=says):
        read_clean(tmp_path / "x")
    assert read_clean(tmp_path / "x", 224).images[:, 0, 0, 0].tolist() == [0, 1]


def test_one_file_of_another_size_among_many_is_resized_too(tmp_path: Path) -> None:
    for row in range(120):
        side = 224 if row != 1 else 256
        fakes.write_png(tmp_path / "x" / "a" / f"{row:03}.png", np.full((side, side, 3), row, np.uint8))
    assert read_clean(tmp_path / "x", 224).images[:, 0, 0, 0].tolist() == list(range(120))


def test_resizing_takes_the_centred_square(tmp_path: Path) -> None:
    wide = np.zeros((64, 192, 3), np.uint8)
    wide[:, 64:128] = 255
    fakes.write_png(tmp_path / "x" / "a" / "1.png", wide)
    assert (read_clean(tmp_path / "x", 64).images == 255).all()
    with pytest.raises(UserError, match="192×64"):
        read_clean(tmp_path / "x")


@each(
    ("arrays", "says"),
    [
        ({"images": np.zeros((2, 32, 32, 3))}, "no labels; it holds images"),
        ({"x": np.zeros(3)}, "no images and no labels"),
        ({"images": np.zeros((2, 32, 32, 3), np.float32), "labels": [0, 1]}, r"expected uint8 \(multiply"),
        ({"images": np.zeros((2, 3, 32, 32), np.uint8), "labels": [0, 1]}, r"transpose\(0, 2, 3, 1\)"),
        ({"images": np.zeros((2, 32, 32), np.uint8), "labels": [0, 1]}, r"expected \(N, H, W, 3\)"),
        ({"images": np.zeros((2, 32, 32, 3), np.uint8), "labels": [0]}, r"x\.npz has 1 labels, and it has 2"),
        ({"images": np.zeros((2, 32, 32, 3), np.uint8), "labels": [0.0, 1.0]}, "labels are float64"),
        ({"images": np.zeros((2, 32, 32, 3), np.uint8), "labels": [[0], [1]]}, r"shape \(2, 1\)"),
        ({"images": np.zeros((2, 32, 32, 3), np.uint8), "labels": [-1, 1]}, "classes count from 0"),
        ({"images": np.zeros((0, 32, 32, 3), np.uint8), "labels": np.zeros(0, int)}, "holds no images"),
        ({"images": np.array([{}]), "labels": [0]}, "'images' holds Python objects, which are never read"),
        ({"images": np.zeros((1, 32, 32, 3), np.uint8), "labels": np.array([{}])}, "'labels' holds Python"),
    ],
)
def test_a_wrong_npz_is_told_what_to_change(tmp_path: Path, arrays: dict[str, object], says: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=says):
        generate(path, root=tmp_path, **SMALL)
    assert not (tmp_path / "x-c-local").exists()


@pytest.mark.parametrize("content", [b"", b"<html>", b"PK\x03\x04broken"])
def test_no_npz_at_all(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.npz"):
        generate(tmp_path / "x.npz", root=tmp_path, **SMALL)
    with pytest.raises(UserError, match="there is no file or folder"):
        generate(tmp_path / "y.npz", root=tmp_path, **SMALL)
    np.save(tmp_path / "z.npz.npy", np.zeros(3))
    (tmp_path / "z.npz.npy").rename(tmp_path / "z.npz")
    with pytest.raises(UserError, match="single array"):
        generate(tmp_path / "z.npz", root=tmp_path, **SMALL)


@pytest.mark.parametrize("name", ["cifar10", "cifar10-c", "CIFAR10-c-local"])
def test_generated_sets_may_share_a_stem_but_never_a_name(clean: Path, tmp_path: Path, name: str) -> None:
    assert generate(clean, name=name, root=tmp_path, **SMALL).name == "cifar10-c-local"
    assert "cifar10-c-local" not in catalog.NAMES


def test_a_folder_named_after_its_split_gives_the_name_of_its_parent(clean: Path, tmp_path: Path) -> None:
    images = np.full((32, 32, 3), 90, np.uint8)
    for name in ("crow", "owl"):
        folder = tmp_path / "Birds" / "test" / name
        folder.mkdir(parents=True)
        Image.fromarray(images).save(folder / "0.png")
    assert generate(tmp_path / "Birds" / "test", root=tmp_path, **SMALL).name == "birds-c-local"


def test_a_folder_has_no_file_type_that_its_name_loses(tmp_path: Path) -> None:
    for name in ("crow", "owl"):
        fakes.write_png(tmp_path / "birds.v1" / name / "0.png", fakes.clean_images(1)[0])
    assert generate(tmp_path / "birds.v1", root=tmp_path, **SMALL).name == "birds.v1-c-local"
    assert catalog.dataset("birds.v1-c-local", tmp_path).num_classes == 2


def test_a_source_whose_name_is_none_for_a_dataset_needs_another_one(clean: Path, tmp_path: Path) -> None:
    source = clean.rename(tmp_path / "花.npz")
    with pytest.raises(
        UserError, match="'花' cannot be the name of a dataset; give one with --name, of letters"
    ):
        generate(source, root=tmp_path, **SMALL)
    assert generate(source, name="flower", root=tmp_path, **SMALL).name == "flower-c-local"


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x y"])
def test_names_that_are_none(clean: Path, tmp_path: Path, name: str) -> None:
    if name:
        with pytest.raises(UserError, match="cannot be the name of a dataset"):
            generate(clean, name=name, root=tmp_path, **SMALL)
    else:
        assert generate(clean, name=name, root=tmp_path, **SMALL).name == "flowers-c-local"


def test_a_wrong_request_is_refused_before_anything_is_written(clean: Path, tmp_path: Path) -> None:
    for name, wrong, says in (
        ("corruptions", ["fgo"], "unknown corruption 'fgo'; did you mean 'fog'"),
        ("corruptions", [], "no corruptions were given; name at least one"),
        ("severities", [6], "severity 6 of gaussian_noise; expected an integer from 1 to 5"),
        ("severities", [], "no severities were given; name at least one"),
        ("seed", -1, "seed -1; expected 0 or a positive integer"),
        ("size", 48, "size 48; the corruptions have constants for 32, 64 and 224 pixels"),
        ("workers", -1, "-1 workers; expected 0"),
    ):
        with pytest.raises(UserError, match=says):
            generate(clean, root=tmp_path / "root", **{**SMALL, name: wrong})
        assert not (tmp_path / "root").exists(), name


def test_classes_are_sorted_whatever_the_file_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, name in enumerate(("b", "c", "a")):
        for i in range(2):
            fakes.write_png(tmp_path / "x" / name / f"{i}.png", np.full((32, 32, 3), 2 * value + i, np.uint8))
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: sorted(real(path), key=lambda e: e.name, reverse=True))
    result = read_clean(tmp_path / "x")
    assert result.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert result.images[:, 0, 0, 0].tolist() == [4, 5, 0, 1, 2, 3]


# ---- arrays in files


def test_npz_images_are_mapped_where_they_are_stored_plain(tmp_path: Path) -> None:
    data = Labelled(fakes.clean_images(5), fakes.labels_for(5, 2))
    for write, mapped in ((np.savez, True), (np.savez_compressed, False)):
        write(tmp_path / "x.npz", images=data.images, labels=data.labels)
        result = open_npz(tmp_path / "x.npz")
        assert (result.images == data.images).all()
        assert (result.images.base is not None and isinstance(result.images.base, np.memmap)) == mapped


def test_equal_data_gives_equal_npz_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Labelled(fakes.clean_images(5), fakes.labels_for(5, 2))
    save_npz(tmp_path / "a.npz", data)
    monkeypatch.setattr("time.time", lambda: 4e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2099, 1, 1, 1, 1, 1, 0, 1, 0))
    save_npz(tmp_path / "b.npz", data)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


# ---- existing -C folders


def test_an_existing_folder_of_stacked_arrays(tmp_path: Path) -> None:
    root = fakes.make_cifar(tmp_path)
    folder = root / "CIFAR-10-C"
    np.savez(folder / "test.npz", images=fakes.clean_images(20), labels=fakes.labels_for(20, 10))
    data = catalog.dataset(str(folder))
    assert data.name == "cifar-10-c-local"
    assert [stamp[:2] for stamp in fakes.stamps(data.corrupted("frost", 2).images)] == [
        (2, i) for i in range(20)
    ]
    labels = np.load(folder / "labels.npy")
    np.save(folder / "labels.npy", np.roll(labels, 1))
    with pytest.raises(UserError, match="another order"):
        catalog.dataset(str(folder)).corrupted("frost", 2)


def test_an_existing_folder_of_images(tmp_path: Path) -> None:
    folder = tmp_path / "Birds-C"
    fakes.make_folders_c(folder, ("crow", "owl"), 3, 48)
    with pytest.raises(UserError, match="no clean test set: put its images at test/<class>/"):
        catalog.dataset(str(folder))
    for c, name in enumerate(("crow", "owl")):
        for i in range(3):
            fakes.write_png(folder / "test" / name / f"{i}.png", np.full((48, 48, 3), 100 * c, np.uint8))
    data = catalog.dataset(str(folder))
    assert (data.name, data.image_size, data.num_classes) == ("birds-c-local", 48, 2)
    assert data.corrupted("frost", 3).labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert abs(int(data.corrupted("frost", 3).images[4, 0, 0, 0]) - 120) <= 2
    assert data.test().images[:, 0, 0, 0].tolist() == [0] * 3 + [100] * 3
    with pytest.raises(UserError, match="no training images"):
        data.train()
    (folder / "frost" / "3" / "raven").mkdir()
    with pytest.raises(UserError, match="they differ in raven"):
        catalog.dataset(str(folder)).corrupted("frost", 3)


@each("sides", [[(40, 50), (30, 60)], [(48, 48), (48, 60)], [(64, 64), (64, 64)]])
def test_clean_images_of_another_size_than_the_corrupted_ones(
    tmp_path: Path, sides: list[tuple[int, int]]
) -> None:
    """The first clean file says nothing of the size that all must have."""
    folder = tmp_path / "Birds-C"
    fakes.make_folders_c(folder, ("crow", "owl"), 1, 48)
    for name, shape in zip(("crow", "owl"), sides, strict=True):
        fakes.write_png(folder / "test" / name / "0.png", np.zeros((*shape, 3), np.uint8))
    name, (height, width) = ("crow", sides[0]) if sides[0] != (48, 48) else ("owl", sides[1])
    with pytest.raises(UserError) as refused:
        catalog.dataset(str(folder))
    assert " has 48×48 pixels, and the clean one " in str(refused.value)
    assert f"test/{name}/0.png has {width}×{height}; bring all clean images to 48×48" in str(refused.value)


def test_a_folder_without_anything_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no clean test set: put test\.npz"):
        catalog.dataset(str(tmp_path))
    with pytest.raises(UserError, match="there is no folder"):
        catalog.dataset(str(tmp_path / "nothing"))


def test_what_was_opened_by_path_is_known_by_name(clean: Path, tmp_path: Path) -> None:
    folder = generate(clean, name="known", root=tmp_path / "a", **SMALL)
    opened = catalog.dataset(str(folder))
    assert catalog.dataset("known-c-local").fingerprint() == opened.fingerprint()
    np.savez(tmp_path / "other.npz", images=fakes.clean_images(6, seed=5), labels=[0, 1, 2] * 2)
    other = catalog.dataset(str(generate(tmp_path / "other.npz", name="known", root=tmp_path / "b", **SMALL)))
    assert catalog.dataset("known-c-local").fingerprint() == other.fingerprint() != opened.fingerprint()


@pytest.mark.usefixtures("own_data")
def test_a_folder_whose_name_means_another_folder_is_refused(clean: Path, tmp_path: Path) -> None:
    one = generate(clean, name="twice", root=tmp_path / "one", **SMALL)
    catalog.check_names([catalog.dataset(str(one)), catalog.dataset("digits-c")])
    generate(clean, name="twice", **SMALL)
    catalog.check_names([catalog.dataset("twice-c-local")])
    both = re.escape(f"{one} and {tmp_path}/data/twice-c-local")
    with pytest.raises(UserError, match=rf"{both} .* generate .* --name"):
        catalog.check_names([catalog.dataset(str(one))])


def test_a_renamed_folder_is_opened_by_its_first_name_too(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest holds the first name. Workers open data by it."""
    monkeypatch.setenv("TTABENCH_DATA", str(tmp_path))
    folder = generate(clean, name="birds", **SMALL)
    folder.rename(tmp_path / "crows-c-local")
    opened = catalog.dataset("crows-c-local")
    catalog.check_names([opened])
    assert opened.name == "birds-c-local"
    assert catalog.dataset(opened.name).fingerprint() == opened.fingerprint()


def test_a_file_name_that_is_not_utf_8_is_one_sentence_or_read(tmp_path: Path) -> None:
    before = folder_sha256(tmp_path)
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"")
    assert folder_sha256(tmp_path) != before
    with pytest.raises(UserError, match=r"caf\\udce9.png' is not a usable path \(its name is not UTF-8\)"):
        user_path(os.fsdecode(b"caf\xe9.png"))


def test_two_folders_of_one_name_are_no_sweep_and_are_not_trained(
    clean: Path, tmp_path: Path, ttabench: Run
) -> None:
    for site in ("a", "b"):
        folder = generate(clean, name="weather", root=tmp_path / site, **SMALL)
        (folder / MANIFEST).unlink()
    both = ",".join(str(tmp_path / site / "weather-c-local") for site in ("a", "b"))
    dry = ("sweep", "--corruptions", "brightness", "--dry-run", "--out", tmp_path / "out")
    for command in (dry, ("train",)):
        output = ttabench(*command, "--datasets", both, "--archs", "resnet18")
        assert output.code == 2
        assert f"rename {tmp_path}/a/weather-c-local" in output.err


def test_a_clean_set_is_no_dataset_yet(clean: Path) -> None:
    with pytest.raises(UserError, match="clean test set without corruptions") as refused:
        catalog.dataset(str(clean))
    assert f"`ttabench data generate {clean} --train TRAIN`" in str(refused.value)


# ---- local and published are never mixed


def test_equal_bytes_still_have_two_names_and_two_fingerprints(tmp_path: Path) -> None:
    root = fakes.make_cifar(tmp_path)
    published = CifarC(fakes.FAKE_CIFAR10, root)
    np.savez(root / "CIFAR-10-C" / "test.npz", images=published.test().images, labels=published.test().labels)
    local = catalog.dataset(str(root / "CIFAR-10-C"))
    assert (local.corrupted("frost", 3).images == published.corrupted("frost", 3).images).all()
    assert local.name != published.name
    assert local.fingerprint() != published.fingerprint()


@pytest.mark.parametrize("attribute", ["kind", "version"])
def test_how_the_bytes_are_read_is_part_of_the_fingerprint(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str
) -> None:
    data = catalog.dataset(str(generate(clean, root=tmp_path, **SMALL)))
    before = data.fingerprint()
    monkeypatch.setattr(type(data), attribute, "published" if attribute == "kind" else 99)
    assert data.fingerprint() != before


@pytest.mark.parametrize("name", ["cifar10-c", "flowers"])
def test_a_manifest_with_a_published_name_is_refused(clean: Path, tmp_path: Path, name: str) -> None:
    folder = generate(clean, root=tmp_path, **SMALL)
    manifest = json.loads((folder / "ttabench.json").read_text())
    (folder / "ttabench.json").write_text(json.dumps({**manifest, "name": name}))
    with pytest.raises(UserError, match="-local at the end"):
        catalog.dataset(str(folder))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff", b"{}", b"[]", b'{"name": "x-local", "files": []}', b"[" * 100_000,
        b'{"name": ' * 50_000,
    ],
)  # fmt: skip
def test_a_broken_manifest_is_one_sentence(clean: Path, tmp_path: Path, content: bytes) -> None:
    folder = generate(clean, root=tmp_path, **SMALL)
    (folder / "ttabench.json").write_bytes(content)
    with pytest.raises(UserError, match=r"ttabench\.json is damaged; delete the folder"):
        catalog.dataset(str(folder))


def test_a_generated_file_changed_on_disk_is_noticed_even_with_its_old_time(
    clean: Path, tmp_path: Path
) -> None:
    folder = generate(clean, root=tmp_path, **SMALL)
    data = catalog.dataset(str(folder))
    before = data.fingerprint()
    path = folder / "brightness-1.npy"
    stat, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert data.fingerprint() != before
    with pytest.raises(UserError, match="not what was generated"):
        data.corrupted("brightness", 1)


def test_generated_sets_are_listed(clean: Path, tmp_path: Path) -> None:
    folder = generate(clean, root=tmp_path, **SMALL)
    entry = next(e for e in catalog.listing(tmp_path) if e.name == "flowers-c-local")
    assert entry.size == sum(p.stat().st_size for p in folder.iterdir())
    assert Image.MAX_IMAGE_PIXELS is not None  # reading other people's images keeps Pillow's guard
