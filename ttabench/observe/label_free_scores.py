"""Scores by which settings can be chosen without target labels; of two settings, the higher score is better.

How well such scores choose is studied by Cygert et al., arXiv 2407.14231. p are the softmax probabilities of
the logits that are scored, (n, C), p̄ their mean over the images, and H the entropy, natural logarithm.

| name            | score                                                                                   |
| --------------- | --------------------------------------------------------------------------------------- |
| entropy         | −mean H(p)                                                                              |
| infomax         | H(p̄) − mean H(p), the mutual information of image and prediction                       |
| nuclear_norm    | the sum of the singular values of p, divided by √(n·min(n, C)) (Cui et al., CVPR 2020)  |
| snd             | soft neighbourhood density (Saito et al., ICCV 2021)                                    |
| consistency     | % of images that have the same prediction as a view of them, after adapting             |
| source_accuracy | accuracy in % on labelled source images, after adapting                                 |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.cell.protocol import Protocol
from ttabench.data.dataset import Labelled
from ttabench.errors import UserError
from ttabench.method import Method
from ttabench.nn import entropy
from ttabench.nn.pixels import to_tensor

CHEAP = ("entropy", "infomax", "nuclear_norm", "snd")
"""The scores that come from the logits alone; every cell has them. Together, `store.SCORES`."""
COSTLY = ("consistency", "source_accuracy")
"""The scores that need further forward passes."""
IMAGES = 1000  # that the costly scores look at, at most
SHIFT = 1 / 8  # of the width; how far a view is moved, at most
ROWS = 2000  # of p, at least, for the nuclear norm, where there are more images
NEIGHBOURS = 500  # rows of p for soft neighbourhood density, whose work grows with their square
TEMPERATURE = 0.05


class Collected:
    """The logits of a cell, batch by batch, as far as the scores need them.

    Memory does not grow with the number of images: of many, rows at equal distances are kept, in place.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._entropy: Tensor | float = 0.0
        self._mean: Tensor | float = 0.0
        self._rows = torch.empty(0, 0)  # of p; the first `_kept` of them are filled
        self._kept, self._every = 0, 1

    @torch.no_grad()
    def add(self, logits: Tensor) -> None:
        """Add the logits (b, C) of some images; a GPU is not waited for.

        A batch of foreign images alone has b = 0.
        """
        if not len(logits):
            return
        logits = logits.detach().float()
        p = logits.softmax(dim=1)
        self._entropy = self._entropy + entropy(logits).sum(dtype=torch.float64)
        self._mean = self._mean + p.sum(dim=0, dtype=torch.float64)
        rows = p[-self._seen % self._every :: self._every]
        self._seen += len(p)
        self._keep(rows)
        while self._kept >= 2 * ROWS:
            half = self._rows[: self._kept : 2].clone()
            self._rows[: len(half)] = half
            self._kept, self._every = len(half), 2 * self._every

    def _keep(self, rows: Tensor) -> None:
        """Write rows behind those that are kept; a few stay small, and many never need more room again."""
        end = self._kept + len(rows)
        if end > len(self._rows):
            room = min(2 * end, 2 * ROWS + len(rows))
            larger = rows.new_empty(max(room, end), rows.shape[1])
            if self._kept:
                larger[: self._kept] = self._rows[: self._kept]
            self._rows = larger
        self._rows[self._kept : end] = rows
        self._kept = end

    @torch.no_grad()
    def scores(self) -> dict[str, float | None]:
        """The scores of :data:`CHEAP`; None for a score that so few images do not have."""
        if not self._seen:
            return dict.fromkeys(CHEAP)
        mean = torch.as_tensor(self._mean).cpu() / self._seen
        within = float(self._entropy) / self._seen
        p = self._rows[: self._kept].cpu()
        values = {
            "entropy": -within,
            "infomax": float(torch.special.entr(mean).sum()) - within,
            "nuclear_norm": nuclear_norm(p),
            "snd": snd(p[:: math.ceil(len(p) / NEIGHBOURS)]) if len(p) > 2 else None,
        }
        return {name: None if value is None else round(value, 6) for name, value in values.items()}


def nuclear_norm(p: Tensor) -> float:
    """The sum of the singular values of p (n, C), over its largest possible value √(n·min(n, C)): 0 … 1."""
    n, classes = p.shape
    wide = p.double().numpy()
    gram = wide.T @ wide if classes <= n else wide @ wide.T
    singular = np.sqrt(np.linalg.eigvalsh(gram).clip(0))
    return float(singular.sum()) / math.sqrt(n * min(n, classes))


def snd(p: Tensor) -> float:
    """Soft neighbourhood density of p (n, C), n ≥ 2: 0 … ln(n − 1).

    It is the mean entropy of the softmax over each row of the cosine similarities, divided by 0.05, without
    the similarity of an image to itself. It is higher where predictions form dense groups.
    """
    unit = torch.nn.functional.normalize(p.float(), dim=1)
    similar = (unit @ unit.T / TEMPERATURE).fill_diagonal_(-math.inf)
    chances = similar.softmax(dim=1)
    return float(torch.special.entr(chances).sum(dim=1).mean())


# ---- after adapting


def sample(count: int, seed: int) -> NDArray[np.int64]:
    """Positions of at most :data:`IMAGES` of `count` images, in random order."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(count)[:IMAGES]


def some_of(data: Labelled) -> Labelled:
    """A sample of labelled images, the same for every cell."""
    chosen = sample(len(data), 0)
    return Labelled(data.images[chosen], data.labels[chosen])


def costly_scores(
    method: Method[Any], images: NDArray[np.uint8] | None, source: Callable[[], Labelled],
    protocol: Protocol, device: str, seed: int,
) -> dict[str, float | None]:  # fmt: skip
    """The scores of :data:`COSTLY`; None for a score whose images are not there.

    images   (n, H, W, 3) uint8 of the cell, of which some are looked at; None where they come once.
    source   labelled source images; raises UserError where there are none, as with ImageNet.
    """
    scores: dict[str, float | None] = dict.fromkeys(COSTLY)
    if images is None:
        return scores
    try:
        labelled = source()
    except UserError:
        pass
    else:
        scores["source_accuracy"] = source_accuracy(method, labelled, protocol, device)
    some = images[sample(len(images), seed)]
    scores["consistency"] = consistency(method, some, protocol, device, seed)
    return scores


def consistency(
    method: Method[Any], images: NDArray[np.uint8], protocol: Protocol, device: str, seed: int
) -> float:
    """The share of images (n, H, W, 3), in %, that `method` predicts the same for as for a view of them.

    A view is the image moved by up to an eighth of its width in both directions, with its edge repeated.
    Views are drawn by `seed` and not by torch's generator, so later cells do not depend on them.
    """
    draw = torch.Generator().manual_seed(seed)
    same = [
        method.predict(x).argmax(dim=1) == method.predict(moved(x, draw)).argmax(dim=1)
        for x in _batches(images, protocol, device)
    ]
    return 100 * float(torch.cat(same).double().mean())


def source_accuracy(method: Method[Any], source: Labelled, protocol: Protocol, device: str) -> float:
    """The accuracy in % of the adapted `method` on labelled source images."""
    batches = _batches(source.images, protocol, device)
    predicted = [method.predict(x).argmax(dim=1).cpu() for x in batches]
    return 100 * float((torch.cat(predicted).numpy() == source.labels).mean())


def moved(x: Tensor, draw: torch.Generator) -> Tensor:
    """Images (b, 3, H, W), each moved at random."""
    height, width = x.shape[-2:]
    most = max(1, round(SHIFT * width))
    padded = torch.nn.functional.pad(x, (most, most, most, most), mode="replicate")
    corners = torch.randint(2 * most + 1, (len(x), 2), generator=draw).tolist()
    views = [image[:, top : top + height, left : left + width]
             for image, (top, left) in zip(padded, corners, strict=True)]  # fmt: skip
    return torch.stack(views)


def _batches(images: NDArray[np.uint8], protocol: Protocol, device: str) -> Iterator[Tensor]:
    """Batches on the device; what is done with one runs in the precision of the protocol."""
    half, batch_size = protocol.precision == "bfloat16", protocol.batch_size
    with torch.autocast(torch.device(device).type, torch.bfloat16, half, cache_enabled=False):
        for start in range(0, len(images), batch_size):
            yield to_tensor(images[start : start + batch_size], device)
