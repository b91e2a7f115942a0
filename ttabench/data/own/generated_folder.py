"""The folder of a generated dataset: its manifest, its clean sets, and one process at a time in it."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_npz, save_npz
from ttabench.data.files.fingerprint import file_sha256
from ttabench.data.own.manifest import MANIFEST, read_manifest
from ttabench.errors import UserError
from ttabench.system.files import PART, replace_file, replacing, writing
from ttabench.system.work_claims import FOLDER, WorkClaims

CLAIMS = ".generating"  # has the claim of the process that works in the folder, while it works there
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


def digest(data: Labelled) -> str:
    """SHA-256 (hex) over images and labels."""
    found = hashlib.sha256(np.ascontiguousarray(data.images).data)
    found.update(np.ascontiguousarray(data.labels).data)
    return found.hexdigest()


def _in_words(different: Sequence[str]) -> str:
    """How users call the facts of two manifests that differ."""
    if "image_size" in different:  # then images and constants always differ, too
        different = ["image_size", *(key for key in different if key not in FOLLOW_SIZE)]
    return " and ".join(WORDS.get(key, f"another {key}") for key in different)


def manifest_of_same(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
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
    if TRAIN not in manifest and is_unchanged("train.npz", folder, manifest):
        return digest(open_npz(folder / "train.npz"))
    return str(manifest.get(TRAIN, ""))


def _is_temporary(path: Path) -> bool:
    """Whether it is of a process that works in the folder, or was killed there."""
    return path.name == CLAIMS or bool(PART.match(path.name))


def start(folder: Path, content: dict[str, Any], clean_sets: Mapping[str, Labelled]) -> dict[str, Any]:
    """Write the clean sets; returns the manifest.

    The manifest is written first. So a folder with anything in it can always be continued. A file that holds
    its images already is not written again: a sweep that reads it would refuse its cell.
    """
    before = manifest_of_same(folder, content)
    manifest = dict(before or content)
    if TRAIN in content:
        manifest[TRAIN] = content[TRAIN]
    if manifest != before:
        manifest = add_to_manifest(folder, {}, manifest)
    for file, data in clean_sets.items():
        if is_unchanged(file, folder, manifest) and _are_equal(open_npz(folder / file), data):
            continue
        with writing(folder / file), replacing(folder / file) as part:
            save_npz(part, data)
        manifest = add_to_manifest(folder, {file: file_sha256(folder / file)})
    return manifest


def _are_equal(one: Labelled, other: Labelled) -> bool:
    return np.array_equal(one.images, other.images) and np.array_equal(one.labels, other.labels)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
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


def add_to_manifest(
    folder: Path, files: dict[str, str], content: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Add the checksums of files to the manifest, which is `content` at first; returns the manifest."""
    manifest = content or read_manifest(folder)
    manifest["files"] = {**manifest.get("files", {}), **files}
    with writing(folder / MANIFEST):
        replace_file(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
    return manifest


def is_unchanged(file: str, folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a file is as the manifest says."""
    return (folder / file).is_file() and manifest["files"].get(file) == file_sha256(folder / file)
