"""The audit of the natural shifts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from ttabench.corruptions.corruption_names import NATURAL, NO_SEVERITY
from ttabench.data.files.read_image import read_image
from ttabench.data.published.natural_shifts import Cifar101, NaturalImageNet
from ttabench.data.verify.cifar_audit import CifarAudit
from ttabench.data.verify.findings import Audit, Finding, error, is_usable
from ttabench.data.verify.image_folder_audit import SAMPLE, FolderAudit
from ttabench.errors import UserError


class NaturalAudit(Audit):
    """The clean sets, then the classes, number and size of the new images."""

    def run(self) -> Iterator[Finding]:
        is_cifar = self.facts.layout == "cifar10.1"
        kind: type[CifarAudit | FolderAudit] = CifarAudit if is_cifar else FolderAudit
        clean = kind(self.facts, self.root, self.deep, self.on_progress).clean_findings()
        try:
            findings = [*clean, *(self._arrays() if is_cifar else self._folders())]
        except UserError as problem:
            findings = [*clean, error(str(problem))]
        if is_usable(findings):
            text = f"{self.facts.shifted:,} images of {self.facts.shifted_classes} classes, no severities."
            yield Finding("ok", f"{self.facts.name}: {text}")
        yield from findings

    def _arrays(self) -> Iterator[Finding]:
        labels = Cifar101(self.facts, self.root).corrupted(NATURAL, NO_SEVERITY).labels
        counts = np.bincount(labels, minlength=self.facts.num_classes)
        if counts.min() != counts.max():
            yield error(
                f"{self.folder}: {counts.min()} to {counts.max()} images per class; expected equally many."
            )
        for archive in self.facts.archives if self.deep else ():
            path = self.folder / archive.file
            if not archive.packed and hashlib.sha256(path.read_bytes()).hexdigest() != archive.sha256:
                yield error(f"{path} is not the published file: its SHA-256 checksum differs.")

    def _folders(self) -> Iterator[Finding]:
        files, _ = NaturalImageNet(self.facts, self.root).natural_files()
        if len(files) != self.facts.shifted:
            yield error(f"{self.folder} holds {len(files)} images; expected {self.facts.shifted}.")
        for done, file in enumerate(files if self.deep else files[:: max(1, len(files) // SAMPLE)]):
            self.on_progress(f"decoding {self.facts.name}", done, 0)
            try:
                read_image(file, self.facts.image_size, "imagenet")
            except UserError as problem:
                yield error(str(problem))
