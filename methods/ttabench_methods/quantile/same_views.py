"""Views that keep the class: shifts by one pixel, and mirror images where the data have this symmetry.

Predictions are averaged over the views. The share of images whose views get the same class shows what the
loss cannot show: features that are matched to those of other classes have as low a loss, but their class
changes from view to view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from ttabench.nn import widen

from .matching import Matching

STEPS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))  # pixels down and right
# Mirroring is a symmetry if the quantile loss of the mirror images is at most this many times that of the
# images. It is 1.0 to 1.5 times on clean and corrupted CIFAR-10, and 4 to 37 times on digits.
SYMMETRIC = 2.0
# There is an alarm if a smaller share of the images gets the class of its view. With ResNet20 on the extra
# corruptions, the share was 0.74 to 0.92 where matching helped, and 0.70 in one run that ended below the
# accuracy of Source (on 128 images, so ± 0.04).
AGREE = 0.72


def shifted(x: Tensor, down: int, right: int) -> Tensor:
    """x (B, 3, H, W), shifted by at most one pixel; the border is filled by reflection."""
    height, width = x.shape[-2:]
    padded = pad(x, (1, 1, 1, 1), mode="reflect")
    return padded[..., 1 - down : 1 - down + height, 1 - right : 1 - right + width]


class Views:
    """The views, chosen on decorrupted images x (B, 3, H, W) and their features z (B, k).

    mirror     whether mirroring is a symmetry: features of mirror images are about as near to the source's.
    agreement  share of the images that get the class of their mirror image or, without symmetry, of a shift.
    """

    @torch.no_grad()
    def __init__(self, matching: Matching, z: Tensor, x: Tensor) -> None:
        mirrored = matching.features(x.flip(-1))
        self.mirror = matching.loss_of(mirrored) <= SYMMETRIC * matching.loss_of(z)
        view = mirrored if self.mirror else matching.features(shifted(x, 0, 1))
        agrees = matching.logits(z).argmax(1) == matching.logits(view).argmax(1)
        self.agreement = float(agrees.float().mean())

    @property
    def alarm(self) -> str:
        """A sentence, or "" where views agree."""
        if self.agreement >= AGREE:
            return ""
        return (
            f"only {self.agreement:.0%} of the images get the class of a view that shows the same; a low "
            "quantile loss does not say that features are matched to their own class"
        )

    def of(self, x: Tensor) -> Iterator[Tensor]:
        """5 or 10 views, each (B, 3, H, W)."""
        for down, right in STEPS:
            view = shifted(x, down, right)
            yield view
            if self.mirror:
                yield view.flip(-1)

    def average(self, model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Mean log-probabilities (B, C) of the views of x."""
        log_probabilities = [widen(model(view)).log_softmax(1) for view in self.of(x)]
        return torch.stack(log_probabilities).mean(0)
