"""A look at the pixels of every batch that does not make the host wait for a GPU."""

from __future__ import annotations

import warnings

from torch import Tensor

from ttabench.api.late_answer import LateAnswer, LateCheck
from ttabench.errors import UserError

EXPECTED = (
    "pass pixels in [0, 1], and give the normalisation of the network with mean= and std= of ttabench.adapt."
)

DARK = 1.5 / 255  # the brightest pixel of a batch of pictures is not 1 of 255


def warn_of_dark(images: Tensor, what: str) -> None:
    """Warn of images of any shape in [0, 1] that are black as their pixels were divided by 255 twice."""
    if 0 < (brightest := float(images.max())) < DARK:
        warnings.warn(
            f"{what} have no value above {brightest:.4f}: they seem to be divided by 255 twice, as by "
            "ToTensor and once more; pass pixels in [0, 1].",
            UserWarning,
            stacklevel=2,
        )


class PixelCheck(LateCheck):
    """Whether images are in [0, 1]; a first batch without a value above 1/255 is warned of.

    The first batch, and every batch on a CPU, is refused before anything is learned from it. On a GPU, the
    answer about a later batch is read at the next call.
    """

    def __init__(self) -> None:
        self._first = True

    def look(self, x: Tensor) -> None:
        """Look at images (B, 3, H, W). Raises UserError for values outside [0, 1] and NaN."""
        self._settle()
        if not x.numel():
            return
        images = x.detach()
        answer = LateAnswer((images.min() >= 0) & (images.max() <= 1))  # NaN is neither
        if not self._first and answer.late:
            self._waiting = answer
            return
        if not answer.read():
            raise UserError(f"images have values outside [0, 1] or NaN; {EXPECTED}")
        if self._first:
            warn_of_dark(images, "images")
        self._first = False

    def _settle(self) -> None:
        """Read the answer about the last batch. Raises UserError where it was wrong."""
        if not self._was_sound():
            raise UserError(
                "the batch before this one had values outside [0, 1] or NaN, and the network has learned "
                f"from it: call reset(), and {EXPECTED}"
            )
