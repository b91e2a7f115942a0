"""Images that changed code makes: it may do something else for each corruption and severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ttabench.store import Record
from ttabench.sweep.attestation.groups import Group, Key, Shown

MAKING_IMAGES = ("ttabench/corruptions/", "ttabench/data/")
"""Code that makes or reads images."""


def images_of(cell: Mapping[str, Any]) -> tuple[str, ...]:
    """On what the images depend that are read for a cell."""
    stream, contamination = (cell["protocol"].get(name, "") for name in ("stream", "contamination"))
    foreign = contamination.partition("(")[0]
    return cell["dataset"], cell["corruption"], str(cell["severity"]), stream, foreign


def _image_set(group: Group, record: Record) -> tuple[Any, ...]:
    """Images that changed code makes for a cell, with the old texts of this code; () if none changed."""
    made = [name for name in group.changed if name.startswith(MAKING_IMAGES)]
    then = frozenset((name, record.definitions.get(name)) for name in made)
    cell = record.data["cell"]
    return (then, cell["protocol"].get("limit", 0), *images_of(cell)) if made else ()


def of_each_image_set(
    groups: Sequence[Group], drawn: Sequence[tuple[Group, Record]]
) -> list[tuple[Group, Record]]:
    """The cheapest cell of each set of images that changed code makes, where none is drawn."""
    pairs = [(group, record) for group in groups for record in group.records]
    pairs.sort(key=lambda pair: pair[1].result.seconds)
    of_set = {_image_set(*pair): pair for pair in reversed(pairs)}
    for known in ((), *(_image_set(*pair) for pair in drawn)):
        of_set.pop(known, None)
    return list(of_set.values())


def with_other_images(groups: Sequence[Group], shown: Mapping[str, Shown]) -> dict[Key, Shown]:
    """Groups with images that changed code makes, and that are not shown to be the same → a cell with them.

    A cell may differ since its method changed too. So where another cell has the same images and agrees, only
    cells count of which nothing but the images could have changed.
    """
    agreed: set[tuple[Any, ...]] = set()
    differs: dict[tuple[Any, ...], Shown] = {}
    only_images: dict[tuple[Any, ...], Shown] = {}
    pairs = [(group, record) for group in groups for record in group.records]
    for group, record in pairs:
        found, images = shown.get(record.cell_id), _image_set(group, record)
        if found is not None and not found.why:
            agreed.add(images)
        elif found is not None:
            alone = all(name.startswith(MAKING_IMAGES) for name in group.changed)
            (only_images if alone else differs)[images] = found
    blamed = {images: of for images, of in differs.items() if images not in agreed} | only_images
    blamed.pop((), None)
    return {
        group.key: blamed[images]
        for group, record in pairs
        if (images := _image_set(group, record)) in blamed
    }
