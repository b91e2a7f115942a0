"""The audit of cifar10-c and cifar100-c."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, BAR_CORRUPTIONS, SEVERITIES
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_array
from ttabench.data.published.clean_cifar import FILES, read_batches
from ttabench.data.verify.cifar_checksums import MD5
from ttabench.data.verify.findings import Audit, Finding, error
from ttabench.errors import UserError

SAMPLE = 200  # images compared with their clean versions, per severity

# At 32 pixels, the distance to the clean image grows with every severity for these corruptions only.
GROWING = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur", "gaussian_blur",
    "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression",
)  # fmt: skip


class CifarAudit(Audit):
    """Batches, labels and arrays below `root`; with `deep`, also every file's published checksum."""

    def corruptions(self) -> list[str]:
        """The corruptions on disk, in canonical order."""
        return [c for c in ALL_CORRUPTIONS if (self.folder / f"{c}.npy").is_file()]

    def run(self) -> Iterator[Finding]:
        test, problems = self._clean()
        if test is not None:
            problems += self._corrupted(test)
        yield from problems
        if test is not None and not problems:
            yield Finding(
                "ok",
                f"{self.facts.name}: {self.facts.num_classes} classes, {self.facts.train} training and "
                f"{len(test)} test images, {len(self.corruptions())} corruptions at 5 severities.",
            )

    def clean_findings(self) -> list[Finding]:
        """What is wrong with the clean sets."""
        return self._clean()[1]

    def _clean(self) -> tuple[Labelled | None, list[Finding]]:
        """The clean test set, None where a clean set cannot be read; and what is wrong with these sets."""
        problems = list(self._checksums()) if self.deep else []
        train_files, test_files = FILES[self.facts.clean_folder]
        try:
            problems += self._clean_set("training", self._read(train_files), self.facts.train)
            test = self._read(test_files)
        except UserError as problem:
            return None, [*problems, error(str(problem))]
        return test, [*problems, *self._clean_set("test", test, self.facts.test)]

    def _read(self, files: tuple[str, ...]) -> Labelled:
        return read_batches(self.root / self.facts.clean_folder, files, self.facts.num_classes)

    def _clean_set(self, split: str, data: Labelled, count: int) -> Iterator[Finding]:
        classes = self.facts.num_classes
        if len(data) != count:
            yield error(f"{self.facts.clean_folder}: {len(data)} {split} images; expected {count}.")
        per_class = np.bincount(data.labels, minlength=classes)
        if per_class.min() != per_class.max():
            spread = f"{per_class.min()} to {per_class.max()}"
            yield error(
                f"{self.facts.clean_folder}: {spread} {split} images per class; expected {count // classes}."
            )

    def _corrupted(self, test: Labelled) -> Iterator[Finding]:
        try:
            yield from self._labels(test)
        except UserError as problem:
            yield error(str(problem))
            return
        for done, corruption in enumerate(self.corruptions()):
            self.on_progress(corruption, done, len(self.corruptions()))
            yield from self._array(corruption, test)

    def _labels(self, test: Labelled) -> Iterator[Finding]:
        path = self.folder / "labels.npy"
        labels = open_array(path, (5 * len(test),), None).reshape(5, -1)
        for severity, rows in zip(SEVERITIES, labels, strict=True):
            if wrong := int((rows != test.labels).sum()):
                permuted = np.array_equal(np.sort(rows), np.sort(test.labels))
                hint = "; they are the same labels in another order" if permuted else ""
                yield error(
                    f"{path}: at severity {severity}, {wrong} of {len(test)} labels differ from those of the "
                    f"clean test set{hint}."
                )

    def _array(self, corruption: str, test: Labelled) -> Iterator[Finding]:
        path = self.folder / f"{corruption}.npy"
        try:
            images = open_array(path, (5 * len(test), *test.images.shape[1:]), np.uint8)
        except UserError as problem:
            yield error(str(problem))
            return
        parts = images.reshape(5, *test.images.shape)
        for text in mismatches(parts, test.images, growing=corruption in GROWING):
            yield error(f"{path}: {text}")

    def _checksums(self) -> Iterator[Finding]:
        files = [n for n in MD5 if n.startswith((f"{self.facts.clean_folder}/", f"{self.folder.name}/"))]
        for done, name in enumerate(files):
            self.on_progress(name, done, len(files))
            if not (self.root / name).is_file():
                continue
            with (self.root / name).open("rb") as file:
                md5 = hashlib.file_digest(file, _md5).hexdigest()
            if md5 != MD5[name]:
                yield error(f"{self.root / name} has the MD5 checksum {md5}; published is {MD5[name]}.")


class CifarBarAudit(Audit):
    """The batches only: the corrupted images are made here."""

    def run(self) -> Iterator[Finding]:
        findings = CifarAudit(self.facts, self.root, self.deep, self.on_progress).clean_findings()
        yield from findings
        if not findings:
            text = (
                f"{self.facts.test} clean test images, {len(BAR_CORRUPTIONS)} corruptions made on first use."
            )
            yield Finding("ok", f"{self.facts.name}: {text}")


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)


def mismatches(images: NDArray[np.uint8], clean: NDArray[np.uint8], *, growing: bool) -> Iterator[str]:
    """Why images (5, n, H, W, 3) cannot be the clean images (n, H, W, 3) at severities 1 … 5, row by row.

    In a sample, 75 % of the images must correlate more with the clean image of their row than with that of
    another row. With `growing`, the distance to the clean images must grow with every severity.
    """
    rows = np.unique(np.linspace(0, len(clean) - 1, min(SAMPLE, len(clean))).astype(int))
    reference = clean[rows].astype(np.float32)
    same_row = _standardised(reference)
    other_row = np.roll(same_row, 1, axis=0)
    distances = []
    for severity in SEVERITIES:
        sample = images[severity - 1][rows].astype(np.float32)
        distances.append(float(np.abs(sample - reference).mean()))
        corrupted = _standardised(sample)
        share = float(((corrupted * same_row).sum(axis=1) > (corrupted * other_row).sum(axis=1)).mean())
        if share < 0.75:
            yield (
                f"at severity {severity}, only {share:.0%} of the images are similar to the clean image of "
                "their row; they are in another order."
            )
    if growing and sorted(distances) != distances:
        yield "the severities are not in order: the distance to the clean images does not grow."


def _standardised(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each image as a row of zero mean and unit length."""
    rows = images.reshape(len(images), -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    unit: NDArray[np.float32] = rows / np.maximum(np.sqrt((rows * rows).sum(axis=1, keepdims=True)), 1e-6)
    return unit
