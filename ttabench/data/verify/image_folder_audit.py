"""The audits of tinyimagenet-c and imagenet-c."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from ttabench.corruptions.corruption_names import SEVERITIES
from ttabench.data.files.image_folders import class_folders, find_corruptions, image_files
from ttabench.data.files.read_image import Fit, read_checked
from ttabench.data.published.imagenet import Files, FolderC, ImageNetC, TinyImageNetC
from ttabench.data.published.imagenet_facts import TINY_FIXED_RECORD
from ttabench.data.published.imagenet_subset import ImageNetSubset, open_imagenet_c
from ttabench.data.published.natural_shifts import NaturalImageNet
from ttabench.data.verify.findings import Audit, Finding, error, warning
from ttabench.errors import UserError, counted

SAMPLE = 20  # images decoded per corruption and severity, unless the audit is deep

KINDS: dict[str, type[FolderC]] = {
    "tiny": TinyImageNetC,
    "imagenet": ImageNetC,
    "natural": NaturalImageNet,
}


class FolderAudit(Audit):
    """Class folders and their images below `root`; decodes a sample of the images or, with `deep`, all."""

    def corruptions(self) -> list[str]:
        """The corruptions on disk, in canonical order."""
        return list(find_corruptions(self.folder))

    def run(self) -> Iterator[Finding]:
        classes, problems = self._clean()
        paths = find_corruptions(self.folder)
        for done, (corruption, path) in enumerate(paths.items()):
            self.on_progress(corruption, done, len(paths))
            problems += self._corruption(path, classes)
        yield from problems
        if not problems:
            yield Finding(
                "ok",
                f"{self.facts.name}: {self.facts.num_classes} classes, {self.facts.test} clean test images, "
                f"{len(paths)} corruptions at 5 severities.",
            )

    def clean_findings(self) -> list[Finding]:
        """What is wrong with the clean sets."""
        return self._clean()[1]

    def _clean(self) -> tuple[list[str], list[Finding]]:
        """The class names, and what is wrong with the clean sets."""
        kind: type[FolderC] = KINDS[self.facts.layout]
        try:
            opened = kind(self.facts, self.root)
            classes = list(opened.classes)
            files = opened.test_files()
            problems = list(self._clean_set("test", files, self.facts.test, opened.fit_of(files[0])))
        except UserError as problem:
            return [], [error(str(problem))]
        return classes, [*problems, *self._training(opened)]

    def _training(self, opened: FolderC) -> list[Finding]:
        """What is wrong with the training images."""
        if not (self.root / self.facts.clean_folder / "train").is_dir():
            text = f"{self.facts.clean_folder}/train is not here; methods that need source images cannot run."
            return [warning(text)]
        try:
            files, count = opened.train_files(), opened.train_count()
            return list(self._clean_set("training", files, count, opened.fit_of(files[0])))
        except UserError as problem:
            return [error(str(problem))]

    def _clean_set(self, split: str, labelled: Files, count: int, fit: Fit) -> Iterator[Finding]:
        files, labels = labelled
        if len(files) != count:
            yield error(f"{self.facts.clean_folder}: {len(files)} {split} images; expected {count}.")
        elif len(set(Counter(labels).values())) != 1:
            yield error(f"{self.facts.clean_folder}: the classes have different numbers of {split} images.")
        yield from self._readable(files, fit)

    def _readable(self, files: Sequence[Path], fit: Fit = "exact") -> Iterator[Finding]:
        for file in files if self.deep else files[:: max(1, len(files) // SAMPLE)]:
            try:
                read_checked(file, self.facts.image_size, fit)
            except UserError as problem:
                yield error(str(problem))
                return

    def _corruption(self, path: Path, classes: list[str]) -> Iterator[Finding]:
        first: set[str] = set()
        for severity in SEVERITIES:
            folder = path / str(severity)
            if not folder.is_dir():
                yield self.lacking(f"{path} has no severity {severity}.")
                continue
            names = class_folders(folder)
            if self.facts.layout == "tiny" and path.name == "frost" and len(names) > self.facts.num_classes:
                yield error(
                    f"{path} has {len(names):,} classes instead of {self.facts.num_classes}: this is the "
                    f"first release of Tiny ImageNet-C; fetch the fixed one, {TINY_FIXED_RECORD}."
                )
                return
            if len(names) != self.facts.num_classes or (classes and names != classes):
                expected = f"the {self.facts.num_classes} of the clean set"
                yield error(f"{folder} has {len(names)} classes; expected {expected}.")
                continue
            images = {f"{name}/{file.name}": file for name in names for file in image_files(folder / name)}
            yield from self._images(folder, names, images)
            first = first or set(images)
            if different := len(first ^ set(images)):
                yield error(f"{folder}: {different} file names differ from those of the first severity.")

    def _images(self, folder: Path, classes: list[str], images: dict[str, Path]) -> Iterator[Finding]:
        per_class = self.facts.test // self.facts.num_classes
        counts = dict.fromkeys(classes, 0)
        for name in images:
            counts[name.split("/")[0]] += 1
        low, high = min(counts.values()), max(counts.values())
        if (low, high) != (per_class, per_class):
            found = f"{low}" if low == high else f"{low} to {high}"
            yield error(f"{folder} has {found} images per class; expected {per_class}.")
        yield from self._readable(list(images.values()))


class ImageNetAudit(FolderAudit):
    """imagenet-c, whose download need not be whole.

    It is what a sweep measures under this name: all images, or ``here-N`` where the download is not whole.
    """

    partial: ClassVar[bool] = True

    def run(self) -> Iterator[Finding]:
        try:
            data = open_imagenet_c(self.facts, self.root)
        except UserError as problem:
            yield error(str(problem))
            return
        if not isinstance(data, ImageNetSubset):
            yield from super().run()
            return
        yield warning(
            f"{self.folder} is incomplete; a sweep measures the {counted(len(data.names), 'image')} of each "
            f"corruption that are in it, as {data.name}."
        )
        for done, (name, folder) in enumerate(data.pieces().items()):
            self.on_progress(name, done, len(data.pieces()))
            if name == "clean/train":
                continue
            try:
                files = data.files_in(folder)[0]
            except UserError as problem:  # an image that others have is missing
                yield error(str(problem))
                continue
            yield from self._readable(files, data.fit_of(files) if name == "clean/val" else "exact")
        yield from self._training(data)
