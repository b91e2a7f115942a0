"""Make the -C version of a clean test set with our corruptions: in parallel, resumable, never half a file."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ttabench.corruptions import (
    ALL_CORRUPTIONS,
    SEVERITIES,
    VERSION,
    check_request,
    corrupt,
    load_frost_textures,
    procedural_frost_textures,
)
from ttabench.data.catalog import MANIFEST, NAMES, data_root
from ttabench.data.files.arrays import open_npz, save_npz
from ttabench.data.files.fingerprint import file_sha256
from ttabench.data.own.clean_images import read_clean
from ttabench.data.own.own_dataset import SUFFIX, read_manifest
from ttabench.errors import UserError

# (what was finished, files done, files in all)
OnFile = Callable[[str, int, int], None]

CHUNK = 1024  # images in memory at a time, in each process
# The slow ones first, so that no process is left with a slow one at the end.
SLOW = ("glass_blur", "frost", "zoom_blur", "snow", "motion_blur")


@dataclass(frozen=True)
class Task:
    """One file to make; travels to a worker process."""

    folder: Path
    corruption: str
    severity: int
    seed: int
    frost: Path | None

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
    workers: int | None = None,
    on_file: OnFile | None = None,
) -> Path:
    """The folder ``<root>/<name>-c-local``, with every corruption × severity that was asked for.

    source   a clean test set: .npz with `images` (N, H, W, 3) uint8 and `labels` (N,), or a folder of
             class folders of images.
    name     what to call it; by default the name of the file or folder.
    train    the training set, likewise; methods that look at source images need it.
    size     32 or 64: resize to it. 0 = the images have one of these sizes, and with it their constants
             (32: CIFAR-10-C, 64: Tiny ImageNet-C).
    frost    folder with the published frost pictures; by default our own are used.
    workers  processes; None = one per core, 0 = this one.

    Run again after an interruption, it makes what is missing. Files made from other images, another
    seed or another version of the corruptions are never mixed in. Raises UserError.
    """
    for corruption in corruptions:
        for severity in severities:
            check_request(corruption, severity, seed)
    folder = data_root(root) / _folder_name(Path(source), name)
    frost_folder = None if frost is None else Path(frost).expanduser()
    manifest = _start(folder, Path(source).expanduser(), train, size, seed, frost_folder)
    wanted = [
        Task(folder, c, s, seed, frost_folder)
        for c in sorted(corruptions, key=lambda c: (c not in SLOW, ALL_CORRUPTIONS.index(c)))
        for s in sorted(set(severities), reverse=True)
    ]
    todo = [task for task in wanted if not _is_made(task, manifest)]
    done = len(wanted) - len(todo)
    for task, sha256 in _run(todo, _processes(workers, len(todo))):
        done += 1
        _note(folder, {task.file: sha256})
        if on_file is not None:
            on_file(task.file, done, len(wanted))
    for task in wanted:
        for left in folder.glob(f".*-{task.file}"):  # by a process that was killed
            left.unlink(missing_ok=True)
    return folder


def _folder_name(source: Path, name: str) -> str:
    chosen = name or (source.stem if source.suffix else source.name)
    plain = re.sub(r"[^a-z0-9._]+", "-", chosen.lower()).strip("-.")
    if not plain or (name and plain != name.lower()):
        raise UserError(f"'{chosen}' cannot name a dataset; use letters, digits, '.', '_' and '-'.")
    plain = plain.removesuffix(SUFFIX).removesuffix("-c")
    if plain in NAMES:
        raise UserError(f"'{chosen}' is the name of a published dataset; choose another one.")
    return f"{plain}-c{SUFFIX}"


def _start(
    folder: Path, source: Path, train: Path | str | None, size: int, seed: int, frost: Path | None
) -> dict[str, Any]:
    """Make the folder with its clean sets and manifest, or check that it is the same set's."""
    test = read_clean(source, size)
    side = test.images.shape[1]
    textures = procedural_frost_textures() if frost is None else load_frost_textures(frost)
    digest = hashlib.sha256(test.images.tobytes() + test.labels.tobytes())
    content = {
        "format": 1,
        "name": folder.name,
        "made_from": digest.hexdigest(),
        "images": len(test),
        "image_size": side,
        "constants": "CIFAR-10-C" if side == 32 else "Tiny ImageNet-C",
        "corruptions": VERSION,
        "frost": textures.fingerprint,
        "seed": seed,
    }
    if manifest := read_manifest(folder):
        if differs := [key for key, value in content.items() if manifest.get(key) != value]:
            raise UserError(
                f"{folder} was made from something else ({', '.join(differs)} differ); "
                "choose another name, or delete it."
            )
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} holds files that were not generated; choose another name, or delete it.")
    folder.mkdir(parents=True, exist_ok=True)
    sets = {"test.npz": test}
    if train is not None:
        sets["train.npz"] = read_clean(Path(train).expanduser(), size)
        if sets["train.npz"].images.shape[1:] != test.images.shape[1:]:
            raise UserError(f"{train} has images of another size than {source}.")
    files = {**manifest.get("files", {})}
    for file, labelled in sets.items():
        with _whole(folder / file) as part:
            save_npz(part, labelled)
        files[file] = file_sha256(folder / file)
    return _note(folder, files, content)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A place to write to, which becomes `path` if all went well and vanishes if not."""
    part = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield part
        part.replace(path)
    except OSError as problem:
        raise UserError(f"{path} cannot be written ({problem.strerror}).") from None
    finally:
        part.unlink(missing_ok=True)


def _note(folder: Path, files: dict[str, str], content: dict[str, Any] | None = None) -> dict[str, Any]:
    """Add files to the manifest."""
    manifest = content or read_manifest(folder)
    manifest["files"] = {**manifest.get("files", {}), **files}
    with _whole(folder / MANIFEST) as part:
        part.write_text(json.dumps(manifest, indent=1, sort_keys=True))
    return manifest


def _is_made(task: Task, manifest: dict[str, Any]) -> bool:
    path = task.folder / task.file
    return path.is_file() and manifest["files"].get(task.file) == file_sha256(path)


def _processes(workers: int | None, tasks: int) -> int:
    if workers is not None and workers < 0:
        raise UserError(f"{workers} workers; expected 0 (this process) or more.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores if workers is None else workers, tasks)


def _run(tasks: Sequence[Task], processes: int) -> Iterator[tuple[Task, str]]:
    """(task, SHA-256 of its file) as they are finished."""
    if processes <= 1:
        for task in tasks:
            yield task, _make(task)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _one_thread) as pool:
        running = {pool.submit(_make, task): task for task in tasks}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process was killed (out of memory?); run the same command again to go on, "
                "perhaps with fewer workers."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _one_thread() -> None:
    """The processes are the parallelism; threads inside them would only get in each other's way."""
    import cv2
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    cv2.setNumThreads(1)
    threadpool_limits(1)


def _make(task: Task) -> str:
    """Corrupt the clean images into one file; its SHA-256. The result does not depend on the chunks."""
    clean = open_npz(task.folder / "test.npz").images
    textures = None if task.frost is None else load_frost_textures(task.frost)
    path = task.folder / task.file
    with _whole(path) as part:
        out = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=clean.shape)
        for start in range(0, len(clean), CHUNK):
            rows = slice(start, start + CHUNK)
            out[rows] = corrupt(
                clean[rows], task.corruption, task.severity, task.seed,
                frost_textures=textures, start=start, workers=1,
            )  # fmt: skip
        out.flush()
        del out
    return file_sha256(path)
