"""Which folders beside a source domain are test sets, and what a person should know of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from ttabench.data.files.image_folders import class_folders, labelled_files
from ttabench.data.own.domain_folders import SPLITS, DomainFolders, domains_beside
from ttabench.data.own.overlap import overlap_of_files
from ttabench.errors import UserError


def test_domains(folder: Path) -> list[str]:
    """The domains beside a source domain that are its test sets: its training images are none."""
    source = folder.resolve().name
    return [name for name in domains_beside(folder) if not _trains(name, source)]


def _trains(name: str, source: str) -> bool:
    """Whether a folder is called like the training images of another one: ``photos-train`` of ``photos``."""
    return (
        re.fullmatch(rf"{re.escape(source)}[-_. ]?(train|training|source)", name, re.IGNORECASE) is not None
    )


def roles_of_domains(data: DomainFolders) -> str:
    """A sentence that says which folder is the source, which are the test sets, and what else was meant."""
    return (
        f"{data.source} is taken as a source domain; its test sets are the folders beside it: "
        f"{', '.join(data.corruptions)}. For corruptions of {data.source}: "
        f"ttabench data generate {shlex.quote(str(data.folder))}"
    )


def other_domains(data: DomainFolders) -> Iterator[str]:
    """Sentences about folders beside the source that are no test sets, or cannot be read.

    Of those with other classes, the ones that have most classes of the source.
    """
    ours = set(data.classes)
    for name in sorted(set(class_folders(data.root)) - {*data.pieces(), *SPLITS}):
        folder = data.root / name
        try:
            theirs = set(class_folders(folder))
        except UserError as problem:
            yield str(problem)
            continue
        if ours == theirs:
            trains = f"it is called like the training images of {data.source}"
            why = trains if _trains(name, data.source) else f"{folder / data.classes[0]} holds no images"
            yield f"{folder} is no domain here, as {why}."
        elif 2 * len(ours & theirs) > max(len(ours), len(theirs)):
            yield f"{folder} is no domain here, as its classes are others: {_differences(ours, theirs)}."


def copies_of_source(data: DomainFolders) -> Iterator[str]:
    """A sentence for each domain with images of the source."""
    source = labelled_files(data.folder, data.classes)[0]
    for name in data.corruptions:
        files = labelled_files(data.root / name, data.classes)[0]
        if text := overlap_of_files(files, source):
            yield f"{name}: {text}."


def _differences(ours: set[str], theirs: set[str]) -> str:
    """``it lacks owl and has owls``"""
    parts = [
        f"{verb} {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        for verb, names in (("lacks", sorted(ours - theirs)), ("has", sorted(theirs - ours)))
        if names
    ]
    return f"it {' and '.join(parts)}"
