"""Audit a dataset on disk: is every file there, and is it the right one?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ttabench.cell.subset_names import drawn_from
from ttabench.corruptions.corruption_names import (
    ALL_CORRUPTIONS,
    CORRUPTIONS,
    KNOWN_CORRUPTIONS,
    NATURAL,
    NO_SEVERITY,
    SEVERITIES,
)
from ttabench.data.balanced_subset import Drawn
from ttabench.data.catalog import EMBEDDED, dataset
from ttabench.data.data_root import data_root
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.files.postscript import refuse_postscript
from ttabench.data.own.class_checks import VALUES_OF_8_BITS, check_test_classes, class_warnings
from ttabench.data.own.domain_checks import copies_of_source, roles_of_domains
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.doubts import (
    labels_in_8_bits,
    not_read,
    numbered_folders,
    of_corruptions,
    of_folders,
    other_counts,
)
from ttabench.data.own.open_own import no_corruptions
from ttabench.data.own.overlap import overlap, shared_images
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.own.picture_checks import of_corruption, of_pixels
from ttabench.data.own.set_checks import check_classes
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.data.show import severities
from ttabench.data.verify.cifar_audit import CifarAudit, CifarBarAudit
from ttabench.data.verify.findings import Audit, Finding, error, is_usable, warning
from ttabench.data.verify.image_folder_audit import FolderAudit, ImageNetAudit
from ttabench.data.verify.natural_audit import NaturalAudit
from ttabench.errors import UnknownName, UserError, counted
from ttabench.system.progress import OnProgress, silent

AUDITS: dict[str, type[Audit]] = {
    "cifar": CifarAudit,
    "cifar-bar": CifarBarAudit,
    "cifar10.1": NaturalAudit,
    "tiny": FolderAudit,
    "imagenet": ImageNetAudit,
    "natural": NaturalAudit,
}


def verify(
    name: str, root: Path | str | None = None, *, deep: bool = False, on_progress: OnProgress = silent
) -> list[Finding]:
    """Audit the dataset `name`, a name or a path as :func:`ttabench.data.catalog.dataset` takes it.

    Checked are the classes, the number, type, order and size of images and labels, and the known defect
    of the first release of Tiny ImageNet-C. `deep` also compares every file with its published checksum,
    where there is one, and decodes every image. Raises UnknownName where there is no such dataset.
    """
    if name in PUBLISHED:
        return verify_published(PUBLISHED[name], data_root(root), deep=deep, on_progress=on_progress)
    try:
        data = dataset(name, root)
        if isinstance(data, Drawn):
            whole = drawn_from(name)
            return [*verify(whole, root, deep=deep, on_progress=on_progress), *_drawn_from_each(data)]
        return list(_read_everything(data, on_progress))
    except UnknownName:
        raise
    except UserError as problem:
        return [error(str(problem))]


def _drawn_from_each(data: Drawn) -> Iterator[Finding]:
    """How many images of each class a draw has of the first corrupted set, which the others are like."""
    first = data.corruptions[0]
    severity = NO_SEVERITY if first == NATURAL else severities(data, first)[-1]
    counts = np.bincount(data.corrupted(first, severity).labels, minlength=data.num_classes)
    of = counts[list(data.scored_classes)] if data.scored_classes else counts
    each = f"{of.min()}" if of.min() == of.max() else f"{of.min()} to {of.max()}"
    yield Finding("ok", f"{data.name}: {counted(data.count, 'image')}, {each} of each class.")


def verify_published(
    facts: PublishedDataset, root: Path, *, deep: bool = False, on_progress: OnProgress = silent
) -> list[Finding]:
    """Audit the published dataset that `facts` describe."""
    refuse_postscript()
    folder = root / facts.corrupted_folder
    if not folder.is_dir():
        return [error(f"{folder} is not here; run `ttabench data fetch {facts.name}`.")]
    audit = AUDITS[facts.layout](facts, root, deep, on_progress)
    findings = list(audit.run())
    if isinstance(audit, CifarAudit | FolderAudit):
        findings += _missing_corruptions(audit)
    return findings if is_usable(findings) else [each for each in findings if each.level != "ok"]


def _missing_corruptions(audit: CifarAudit | FolderAudit) -> Iterator[Finding]:
    present, folder = audit.corruptions(), audit.folder
    if missing := [c for c in CORRUPTIONS if c not in present]:
        yield audit.lacking(f"{folder} has no {', '.join(missing)}; fetch it again.")
    if missing := [c for c in ALL_CORRUPTIONS if c not in (*CORRUPTIONS, *present)]:
        yield warning(f"{folder} has no {', '.join(missing)} (for choosing hyper-parameters; not reported).")


def _read_everything(data: Dataset, on_progress: OnProgress) -> Iterator[Finding]:
    """Read all images of a dataset that is checked when it is read.

    What ttabench made holds the severities that were asked for, and its pixels are not doubted.
    """
    test = data.test()
    made_here = bool(data.manifest) if isinstance(data, OwnDataset) else data.name == EMBEDDED
    findings = list(_classes(data, test)) if isinstance(data, OwnDataset) else []
    if isinstance(data, OwnDataset):
        findings += map(warning, not_read(data)) if data.corruptions else [error(no_corruptions(data.folder))]
        findings += [warning(f"{data.name}: {text}") for text in (*of_folders(data), *of_pixels(test.images))]
    if isinstance(data, DomainFolders):
        findings += [warning(f"{data.name}: {text}") for text in copies_of_source(data)]
    counts: dict[tuple[str, int], int] = {}
    for done, corruption in enumerate(data.corruptions):
        on_progress(corruption, done, len(data.corruptions))
        levels = severities(data, corruption)
        if levels not in (SEVERITIES, (NO_SEVERITY,)) and not made_here:
            has = f"has severity {', '.join(map(str, levels))} only" if levels else "has no severity"
            findings.append(warning(f"{data.name}: {corruption} {has}."))
        images = {}
        for severity in levels:
            try:
                check_classes(data, corruption, severity)
                images[severity] = data.corrupted(corruption, severity).images
            except UserError as problem:
                findings.append(error(str(problem)))
        counts |= {(corruption, severity): len(each) for severity, each in images.items()}
        if corruption in KNOWN_CORRUPTIONS and not made_here:  # a domain has other images
            found = of_corruption(test.images, images, corruption)
            findings += [warning(f"{data.name}: {corruption}: {text}") for text in found]
    if isinstance(data, OwnDataset) and of_corruptions(data):
        findings += [warning(f"{data.name}: {text}") for text in other_counts(data, counts, len(test))]
    findings = list(dict.fromkeys(findings))  # a file of all severities has one problem, not five
    if is_usable(findings):
        kind = "corruption" if any(severity != NO_SEVERITY for _, severity in counts) else "other test set"
        there = f"{counted(len(test), 'test image')}, {counted(len(data.corruptions), kind)}"
        yield Finding("ok", f"{data.name}: {there}{_levels(data)}.")
    if isinstance(data, DomainFolders):
        yield Finding("ok", f"{data.name}: {roles_of_domains(data)}")
    yield from findings


def _levels(data: Dataset) -> str:
    """``" at severity 1, 5"``, ``" (fog at 1, 5; snow at 4)"``; "" for all five of each corruption."""
    levels = {name: ", ".join(map(str, severities(data, name))) for name in data.corruptions}
    if len(set(levels.values())) == 1:
        every = next(iter(levels.values()))
        return "" if every in (", ".join(map(str, SEVERITIES)), str(NO_SEVERITY)) else f" at severity {every}"
    return f" ({'; '.join(f'{name} at {each}' for name, each in levels.items() if each)})"


def _classes(data: OwnDataset, test: Labelled) -> Iterator[Finding]:
    """What is wrong with the classes of the clean sets."""
    train = data.train() if data.has_train() else None
    if train is not None:
        try:
            check_test_classes(test, train)
        except UserError as problem:
            yield error(f"{data.name}: {problem}")
            return
        if shared := shared_images(test.images, train.images):
            kind = error if shared == len(test) else warning
            yield kind(f"{data.name}: {overlap(shared, len(test))}.")
    for text in (*class_warnings(test, train), *numbered_folders(data)):
        yield warning(f"{data.name}: {text}")
    kind = error if data.num_classes > VALUES_OF_8_BITS else warning
    yield from (kind(f"{data.name}: {text}") for text in labels_in_8_bits(data))
