"""Streams that are contaminated by a foreign set: what is checked before, and how its name is measured with.

The measuring code reads the name of a foreign set in a small alphabet, without a dot. A *coded* name says the
same in it; :func:`ttabench.data.catalog.dataset` opens it.
"""

from __future__ import annotations

from dataclasses import replace

from ttabench.cell.protocol import Protocol, parse_contamination
from ttabench.data.balanced_subset import undrawn
from ttabench.data.catalog import CODED, foreign_set
from ttabench.data.dataset import Dataset
from ttabench.data.foreign_set import ForeignSet
from ttabench.errors import UserError, counted


def foreign_of_size(contamination: str, *sides: int) -> ForeignSet | None:
    """What contaminates a stream of images whose sides are these, in pixels; None for noise.

    Raises UserError where there is no such set, or its images have another size.
    """
    if not (name := _foreign_name(contamination)):
        return None
    foreign = foreign_set(name)
    if other := [side for side in sides if side != foreign.image_size]:
        raise UserError(
            f"images of {name} are {foreign.image_size} pixels wide, those of the stream {other[0]}; "
            "contaminate with a dataset of the same size, or with noise."
        )
    return foreign


def check_share(contamination: str, images: int) -> None:
    """Raise UserError where the share is so small that no image is foreign beside these test images."""
    _, share = parse_contamination(contamination) or ("", 0.0)
    if contamination and not round(images * share / (1 - share)):  # as `foreign_images` counts them
        raise UserError(
            f"contamination {contamination} adds no image to a stream of {counted(images, 'image')}; give a "
            "larger share, or more images."
        )


def checked_foreign(contamination: str, data: Dataset) -> ForeignSet | None:
    """What contaminates a stream of `data`; None for noise, and for no contamination.

    Raises UserError where it cannot contaminate one.
    """
    foreign = foreign_of_size(contamination, data.image_size)
    if foreign is None:
        return None
    if undrawn(foreign.data).name == undrawn(data).name:
        raise UserError(
            f"--contamination {contamination}: the images of {foreign.name} are not foreign for a "
            f"network of {data.name}; name another dataset, or noise."
        )
    return foreign


def foreign_fingerprint(contamination: str) -> str:
    """What the dataset is made from that contaminates a stream, see :attr:`Cell.foreign`; "" for noise."""
    name = _foreign_name(contamination)
    return foreign_set(name).fingerprint() if name else ""


def coded(protocol: Protocol) -> Protocol:
    """`protocol` with the coded name of its foreign set."""
    if not (name := _foreign_name(protocol.contamination)):
        return protocol
    share = protocol.contamination.removeprefix(name)
    return replace(protocol, contamination=f"{CODED}{name.encode().hex()}{share}")


def _foreign_name(contamination: str) -> str:
    """``cifar10.1(0.2)`` → ``cifar10.1``; "" for noise, and for no contamination."""
    name = contamination.partition("(")[0]
    return "" if name == "noise" else name
