"""Make the -C version of a clean test set: in parallel processes, resumable, every file whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import threading
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ttabench.corruptions import (
    ALL_CORRUPTIONS,
    KNOWN_CORRUPTIONS,
    SEVERITIES,
    VERSION,
    check_request,
    load_frost_textures,
    procedural_frost_textures,
)
from ttabench.corruptions.any_size import check_quality, corrupt_any_size
from ttabench.corruptions.sizes import CONSTANTS
from ttabench.data.data_root import data_root
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_npz, save_npz
from ttabench.data.files.fingerprint import file_sha256
from ttabench.data.own.class_checks import (
    VALUES_OF_8_BITS,
    check_class_folders,
    check_order_of_classes,
    check_test_classes,
    class_warnings,
    labels_of_8_bits,
    order_of_numbers,
)
from ttabench.data.own.clean_images import automatic_size, read_clean
from ttabench.data.own.image_folder_checks import doubts_about
from ttabench.data.own.manifest import MANIFEST, SUFFIX, read_manifest
from ttabench.data.own.overlap import overlap, shared_images
from ttabench.data.own.picture_checks import of_pixels
from ttabench.data.published.facts import PUBLISHED
from ttabench.errors import UserError, printable
from ttabench.system.cores import available_cores
from ttabench.system.files import replace_file, replacing, user_path, writing
from ttabench.system.progress import OnProgress, silent
from ttabench.system.variables import with_variables
from ttabench.system.work_claims import FOLDER, WorkClaims

CLAIMS = ".generating"  # has the claim of the process that works in the folder, while it works there
PART = re.compile(r"\.\d+-[0-9a-f]{8}-.")  # how the temporary files of `replacing` begin
CHUNK = 1024  # images in memory at a time, in each process
TRAIN = "trained_on"  # key of the manifest: the digest of the training set
WORDS = {  # of what a folder is made from, by its keys in the manifest
    "made_from": "other images",
    "images": "another number of them",
    "image_size": "other images or another --size",
    "corruptions": "another version of the corruptions",
    "frost": "other --frost pictures",
    "seed": "another --seed",
    "jpeg": "another --jpeg",
}
FOLLOW_SIZE = ("made_from", "images", "image_size", "constants")
SPLITS = ("test", "val", "valid", "validation", "train")  # folders named after what they hold of a dataset
KERNELS = "OPENBLAS_CORETYPE"  # the variable by which OpenBLAS is told its kernels
AVX2, FMA3 = 11, 12  # cv::CpuFeatures, which have no names in Python
# Started first, so that no process still works on a slow one when all others are done.
SLOW = ("glass_blur", "frost", "zoom_blur", "snow", "motion_blur")


@dataclass(frozen=True)
class Task:
    """One file to make; it is sent to a worker process."""

    folder: Path
    corruption: str
    severity: int
    seed: int
    frost: Path | None
    jpeg: int = 0

    @property
    def file(self) -> str:
        return f"{self.corruption}-{self.severity}.npy"


def generate(
    source: Path | str,
    *,
    name: str = "",
    root: Path | str | None = None,
    train: Path | str | None = None,
    size: int = 0,
    corruptions: Sequence[str] = ALL_CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    frost: Path | str | None = None,
    jpeg: int = 0,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> Path:
    """Make ``<root>/<name>-c-local`` with the given corruptions × severities; returns that folder.

    source   a clean test set: .npz with `images` (N, H, W, 3) uint8 and `labels` (N,), or a folder of
             class folders of images.
    name     of the dataset; "" = the name of the file or folder, of birds/test that of birds.
    train    the training set, in one of the same forms. Training and methods that need source images
             read it.
    size     32, 64 or 224: resize to it. 0 = images of another size are resized to the nearest of these, and
             a warning says so. 32 pixels get the constants of CIFAR-10-C, 64 pixels those of Tiny
             ImageNet-C, 224 pixels those of ImageNet-C.
    frost    folder with the published frost pictures; None = the built-in pictures.
    jpeg     0, or the JPEG quality that corrupted images are saved with before they are stored as arrays.
             The published files of ImageNet-C and Tiny ImageNet-C have 85.
    workers  processes; None = one per core, 0 = this process.

    Worker processes make the same bytes on every x86-64 processor with AVX2. Elsewhere, and in this process,
    a few values of ``elastic_transform`` (about one in two million) may differ by 1, as matrix products are
    summed in another order.

    After an interruption, the same call makes the files that are missing. A folder made from other images,
    another training set, another seed or another version of the corruptions is refused. While another process
    works in the folder, also on another machine, the call waits. Raises UserError.
    """
    for what, given in (("corruptions", corruptions), ("severities", severities)):
        if not given:
            raise UserError(f"no {what} were given; name at least one.")
    for corruption in corruptions:
        for severity in severities:
            check_request(corruption, severity, seed)
    check_quality(jpeg)
    source, train = user_path(source), None if train is None else user_path(train)
    folder = data_root(root) / _folder_name(source, name)
    frost_folder = None if frost is None else user_path(frost)
    clean_sets = _read(source, train, size or _nearest(source))
    content = _content(folder.name, clean_sets["test.npz"], seed, frost_folder)
    if jpeg:
        content["jpeg"] = jpeg
    if training_set := clean_sets.get("train.npz"):
        content[TRAIN] = _digest(training_set)
    # A wrong folder is refused before anything is written into it.
    _manifest_of_same(folder, content)
    tasks = [
        Task(folder, c, s, seed, frost_folder, jpeg)
        for c in sorted(corruptions, key=lambda c: (c not in SLOW, KNOWN_CORRUPTIONS.index(c)))
        for s in sorted(set(severities), reverse=True)
    ]
    with _alone(folder):
        manifest = _start(folder, content, clean_sets)
        todo = [task for task in tasks if not _is_unchanged(task.file, folder, manifest)]
        done = len(tasks) - len(todo)
        with closing(_run(todo, _processes(workers, len(todo)))) as results:
            for task, sha256 in results:
                done += 1
                _add_to_manifest(folder, {task.file: sha256})
                on_progress(task.file, done, len(tasks))
    return folder


def _folder_name(source: Path, name: str) -> str:
    path = source.resolve()
    if not path.suffix and path.name.lower() in SPLITS:  # birds/test is about birds
        path = path.parent
    chosen = name or (path.name if path.is_dir() else path.stem)
    plain = re.sub(r"[^a-z0-9._]+", "-", chosen.lower()).strip("-.")
    if not plain or (name and plain != name.lower()):
        another = "use" if name else "give one with --name, of"
        raise UserError(
            f"'{chosen}' cannot be the name of a dataset; {another} letters, digits, '.', '_' and '-'."
        )
    plain = plain.removesuffix(SUFFIX).removesuffix("-c")
    if plain in PUBLISHED:
        raise UserError(f"'{chosen}' is the name of a published dataset; choose another one.")
    return f"{plain}-c{SUFFIX}"


def _nearest(source: Path) -> int:
    """The size to resize to where none is given; 0 = the images have one already. A warning says so."""
    if size := automatic_size(source):
        warnings.warn(
            printable(
                f"{source}: its images have no size with published constants, so all are resized to "
                f"{size}×{size} pixels, as --size {size} does. Another one: --size 32, 64 or 224."
            ),
            UserWarning,
            stacklevel=3,
        )
    return size


def _read(source: Path, train: Path | None, size: int) -> dict[str, Labelled]:
    """The clean sets by the names of their files; warns of what is unusual in them."""
    test = read_clean(source, size)
    clean_sets = {"test.npz": test}
    if train is not None:
        clean_sets["train.npz"] = _read_train(train, size, source, test)
    for text in _doubts(clean_sets, source, train):
        warnings.warn(printable(text), UserWarning, stacklevel=3)
    return clean_sets


def _doubts(clean_sets: Mapping[str, Labelled], source: Path, train: Path | None) -> Iterator[str]:
    """What is unusual in clean sets, in sentences."""
    test, other = clean_sets["test.npz"], clean_sets.get("train.npz")
    for text in (*class_warnings(test, other), *order_of_numbers(source), *of_pixels(test.images)):
        yield f"{source}: {text}"
    shared = shared_images(test.images, other.images) if other else 0
    if text := overlap(shared, len(test)):
        yield f"{source}: {text}."
    for place, data in ((source, test), (train, other)):
        if place is None or data is None:
            continue
        if place.is_dir():
            yield from doubts_about(place)
        if text := labels_of_8_bits(data.labels, 0, place):
            yield f"{place}: {text}."


def _content(name: str, test: Labelled, seed: int, frost: Path | None) -> dict[str, Any]:
    """The manifest without its files: what the folder is made from."""
    side = test.images.shape[1]
    textures = procedural_frost_textures() if frost is None else load_frost_textures(frost)
    return {
        "format": 1,
        "name": name,
        "made_from": _digest(test),
        "images": len(test),
        "image_size": side,
        "constants": CONSTANTS[side],
        "corruptions": VERSION,
        "frost": textures.fingerprint,
        "seed": seed,
    }


def _digest(data: Labelled) -> str:
    """SHA-256 (hex) over images and labels."""
    digest = hashlib.sha256(np.ascontiguousarray(data.images).data)
    digest.update(np.ascontiguousarray(data.labels).data)
    return digest.hexdigest()


def _in_words(different: Sequence[str]) -> str:
    """How users call the facts of two manifests that differ."""
    if "image_size" in different:  # then images and constants always differ, too
        different = ["image_size", *(key for key in different if key not in FOLLOW_SIZE)]
    return " and ".join(WORDS.get(key, f"another {key}") for key in different)


def _manifest_of_same(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The folder's manifest, {} for a new folder. Raises UserError if it was made from something else."""
    if manifest := read_manifest(folder):
        # Of both: what is left out at its default, such as jpeg, is a difference too.
        keys = [key for key in {**content, **manifest} if key not in ("files", TRAIN)]
        if different := [key for key in keys if manifest.get(key) != content.get(key)]:
            raise UserError(
                f"{folder} exists with {_in_words(different)}; give this one another --name, or delete it."
            )
        given = content.get(TRAIN)
        if given and (held := _train_digest(folder, manifest)) and held != given:
            raise UserError(
                f"{folder} has another training set than that of --train; leave --train out, choose another "
                "name, or delete the folder."
            )
    elif folder.exists() and any(not _is_temporary(path) for path in folder.iterdir()):
        raise UserError(f"{folder} holds files that were not generated; choose another name, or delete it.")
    return manifest


def _train_digest(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The digest of the training set of a folder; "" where it has none. Older manifests do not say it."""
    if TRAIN not in manifest and _is_unchanged("train.npz", folder, manifest):
        return _digest(open_npz(folder / "train.npz"))
    return str(manifest.get(TRAIN, ""))


def _is_temporary(path: Path) -> bool:
    """Whether it is of a process that works in the folder, or was killed there."""
    return path.name == CLAIMS or bool(PART.match(path.name))


def _start(folder: Path, content: dict[str, Any], clean_sets: Mapping[str, Labelled]) -> dict[str, Any]:
    """Write the clean sets; returns the manifest.

    The manifest is written first. So a folder with anything in it can always be continued. A file that holds
    its images already is not written again: a sweep that reads it would refuse its cell.
    """
    before = _manifest_of_same(folder, content)
    manifest = dict(before or content)
    if TRAIN in content:
        manifest[TRAIN] = content[TRAIN]
    if manifest != before:
        manifest = _add_to_manifest(folder, {}, manifest)
    for file, data in clean_sets.items():
        if _is_unchanged(file, folder, manifest) and _are_equal(open_npz(folder / file), data):
            continue
        with writing(folder / file), replacing(folder / file) as part:
            save_npz(part, data)
        manifest = _add_to_manifest(folder, {file: file_sha256(folder / file)})
    return manifest


def _are_equal(one: Labelled, other: Labelled) -> bool:
    return np.array_equal(one.images, other.images) and np.array_equal(one.labels, other.labels)


def _read_train(train: Path, size: int, source: Path, test: Labelled) -> Labelled:
    """The training set, checked against the test set that was read from `source`."""
    check_class_folders(source, train)
    check_order_of_classes(source, train)
    data = read_clean(train, size)
    if data.images.shape[1:] != test.images.shape[1:]:
        raise UserError(f"{train} has images of another size than {source}.")
    _check_label_types({source: test, train: data})
    check_test_classes(test, data)
    if (shared := shared_images(test.images, data.images)) == len(test):
        raise UserError(
            f"all {shared:,} images of {source} are in {train} too, and accuracy on training images says "
            "nothing of new ones; give another --train, or leave it out."
        )
    return data


def _check_label_types(sets: Mapping[Path, Labelled]) -> None:
    """Raise UserError for labels of 8 bits beside those of more classes."""
    num_classes = max(int(data.labels.max()) for data in sets.values()) + 1
    for place, data in sets.items():
        if num_classes > VALUES_OF_8_BITS and (text := labels_of_8_bits(data.labels, num_classes, place)):
            raise UserError(f"{place}: {text}.")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A block that processes run one after the other, on all machines that share the folder.

    Temporary files that are there before and after it are of processes that were killed.
    """

    def waiting(where: list[str]) -> None:
        warnings.warn(f"{folder}: waiting for {', '.join(where)}, which works there.", stacklevel=2)

    try:
        with _claims(folder / CLAIMS) as claims, claims.alone("generate", waiting):
            _delete_parts(folder)
            try:
                yield
            finally:
                _delete_parts(folder)
    finally:
        with suppress(OSError):  # another process waits
            (folder / CLAIMS / FOLDER).rmdir()
            (folder / CLAIMS).rmdir()


def _claims(place: Path) -> WorkClaims:
    with suppress(UserError):
        return _open_claims(place)
    return _open_claims(place)  # a process that ended had just removed the empty folder


def _open_claims(place: Path) -> WorkClaims:
    with writing(place.parent):
        place.mkdir(parents=True, exist_ok=True)
    return WorkClaims(place)


def _delete_parts(folder: Path) -> None:
    for path in folder.glob(".*"):
        if PART.match(path.name):
            with suppress(OSError):
                path.unlink()


def _add_to_manifest(
    folder: Path, files: dict[str, str], content: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Add the checksums of files to the manifest, which is `content` at first; returns the manifest."""
    manifest = content or read_manifest(folder)
    manifest["files"] = {**manifest.get("files", {}), **files}
    with writing(folder / MANIFEST):
        replace_file(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
    return manifest


def _is_unchanged(file: str, folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a file is as the manifest says."""
    return (folder / file).is_file() and manifest["files"].get(file) == file_sha256(folder / file)


def _processes(workers: int | None, tasks: int) -> int:
    if workers is not None and workers < 0:
        raise UserError(f"{workers} workers; expected 0 (this process) or more.")
    return min(available_cores() if workers is None else workers, tasks)


def _run(tasks: Sequence[Task], processes: int) -> Generator[tuple[Task, str], None, None]:
    """(task, SHA-256 of its file), in the order in which they finish."""
    if processes == 0:
        for task in tasks:
            yield task, _make(task)
        return
    context = get_context("spawn")
    ends_with, lifeline = context.Pipe(duplex=False)
    with _same_kernels(), ProcessPoolExecutor(processes, context, _prepare, (ends_with,)) as pool:
        try:
            with _no_ctrl_c():
                running = {pool.submit(_make, task): task for task in tasks}
            for future in as_completed(running):
                yield running[future], future.result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process was killed, perhaps because memory ran out. Run the same command again, "
                "if need be with fewer --workers; it continues."
            ) from None
        except BaseException:
            lifeline.close()  # do not wait for the files that are being made
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            lifeline.close()


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Ctrl-C never reaches processes that are started now; it reaches this one after the block."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _same_kernels() -> Iterator[None]:
    """OpenBLAS in processes that are started now has the kernels of Haswell, on all processors with AVX2.

    By itself, it chooses them by processor, and they sum in different orders.
    """
    import cv2

    known = cv2.checkHardwareSupport(AVX2) and cv2.checkHardwareSupport(FMA3)
    with with_variables({KERNELS: "Haswell"} if known else {}):
        yield


def _prepare(ends_with: Connection) -> None:
    """Prepare a worker process. It ends when the other end of the pipe is closed, or its process is killed.

    It has one thread for its work: the processes already use all cores.
    """
    threading.Thread(target=_leave_with, args=(ends_with,), daemon=True).start()
    import cv2
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    cv2.setNumThreads(1)
    threadpool_limits(1)


def _leave_with(parent: Connection) -> None:
    parent.poll(None)  # nothing is ever sent
    os._exit(1)


def _make(task: Task) -> str:
    """Write the corrupted images of one file; returns its SHA-256.

    It is no memory map: whoever writes into a map on a full disk is killed.
    """
    clean = open_npz(task.folder / "test.npz").images
    textures = None if task.frost is None else load_frost_textures(task.frost)
    path = task.folder / task.file
    header = {"descr": "|u1", "fortran_order": False, "shape": clean.shape}
    with writing(path), replacing(path) as part, part.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, header)
        for start in range(0, len(clean), CHUNK):
            chunk = corrupt_any_size(
                clean[start : start + CHUNK], task.corruption, task.severity, task.seed,
                frost_textures=textures, start=start, workers=1, jpeg=task.jpeg,
            )  # fmt: skip
            out.write(chunk.tobytes())
    return file_sha256(path)
