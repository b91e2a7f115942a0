"""Audit a dataset on disk: what is there, and whether it is what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ttabench.corruptions.names import ALL_CORRUPTIONS, CORRUPTIONS, SEVERITIES
from ttabench.data.catalog import data_root, dataset
from ttabench.data.dataset import Dataset
from ttabench.data.on_disk import OnDisk
from ttabench.data.published.facts import PUBLISHED, Published
from ttabench.data.verify.cifar import CifarAudit
from ttabench.data.verify.findings import Audit, Finding, OnStep, error
from ttabench.data.verify.image_folders import FolderAudit
from ttabench.errors import UserError


def verify(
    name: str, root: Path | str | None = None, *, deep: bool = False, on_step: OnStep | None = None
) -> list[Finding]:
    """Audit the dataset `name` (as :func:`ttabench.data.catalog.dataset` takes it).

    Classes, counts, types, labels, their order and repetition, sizes of images, and the known defect
    of the first Tiny ImageNet-C release. `deep` compares every file with its published checksum where
    one is known, and decodes every image. Raises UserError only on an unknown name.
    """
    step = on_step or _quietly
    if name in PUBLISHED:
        return verify_published(PUBLISHED[name], data_root(root), deep=deep, on_step=step)
    try:
        return list(_by_reading(dataset(name, root), step))
    except UserError as problem:
        if str(problem).startswith(("unknown dataset", "there is no")):
            raise
        return [error(str(problem))]


def verify_published(
    facts: Published, root: Path, *, deep: bool = False, on_step: OnStep | None = None
) -> list[Finding]:
    """The same for any description of a published dataset."""
    folder = root / facts.corrupted_folder
    if not folder.is_dir():
        return [error(f"{folder} is not here; run `ttabench data fetch {facts.name}`.")]
    kind: type[Audit] = CifarAudit if facts.layout == "cifar" else FolderAudit
    audit = kind(facts, root, deep, on_step or _quietly)
    found = set(audit.corruptions())
    return [*audit.run(), *_missing(found, folder)]


def _missing(found: set[str], folder: Path) -> Iterator[Finding]:
    if missing := [c for c in CORRUPTIONS if c not in found]:
        yield error(f"{folder} has no {', '.join(missing)}; fetch it again.")
    if missing := [c for c in ALL_CORRUPTIONS if c not in (*CORRUPTIONS, *found)]:
        yield Finding("warning", f"{folder} has no {', '.join(missing)} (for tuning; never reported).")


def _by_reading(opened: Dataset, step: OnStep) -> Iterator[Finding]:
    """Read all of a dataset that checks itself as it is read."""
    test = opened.test()
    found: list[Finding] = []
    for done, corruption in enumerate(opened.corruptions):
        step(corruption, done, len(opened.corruptions))
        severities = opened.severities(corruption) if isinstance(opened, OnDisk) else SEVERITIES
        if severities != SEVERITIES:
            only = ", ".join(map(str, severities)) or "none"
            found.append(Finding("warning", f"{opened.name}: of {corruption} there is only severity {only}."))
        for severity in severities:
            try:
                opened.corrupted(corruption, severity)
            except UserError as problem:
                found.append(error(str(problem)))
    if all(finding.level != "error" for finding in found):
        text = f"{opened.name}: {len(test)} test images, {len(opened.corruptions)} corruptions."
        found.insert(0, Finding("ok", text))
    yield from found


def _quietly(what: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""
