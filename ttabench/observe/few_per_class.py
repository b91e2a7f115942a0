"""The alarm for a method that estimates something for each class, on few images of each."""

from __future__ import annotations

ENOUGH = 5  # images of each class


def too_few(images: int, classes: int) -> bool:
    """Whether this number of images, if it is known, is less than enough of each class."""
    return 0 < images < ENOUGH * classes


def few_of_each_alarm(what: str, images: int, classes: int) -> str:
    """The alarm for a method that estimates `what` for each class; "" if there is none.

    what   `Method.per_class`; "" = nothing.
    """
    if not what or not too_few(images, classes):
        return ""
    return f"few images: {images / classes:.2g} of each class, for each of which the method estimates {what}"
