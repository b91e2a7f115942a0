"""Unknown classes: are predictions less certain on foreign images than on the test images?

The images of a contaminated stream are test images, whose classes are known, and foreign ones. A certainty is
a number per image, from its logits z over the scored classes; higher is more certain.

| name    | certainty                                                                                |
| ------- | ---------------------------------------------------------------------------------------- |
| softmax | the largest softmax probability (Hendrycks and Gimpel, ICLR 2017)                        |
| energy  | ln Σ e^z, the negative energy at temperature 1 (Liu et al., NeurIPS 2020)                |
| own     | the method's own, see :meth:`ttabench.method.Method.known_score`; not all methods have one |

| name  | figure, in percent; t is the highest threshold that accepts at least 95 % of the test images      |
| ----- | -------------------------------------------------------------------------------------------------- |
| auroc | the chance that a test image is more certain than a foreign one; equal certainties count one half |
| fpr95 | foreign images with a certainty of at least t                                                     |
| h     | 2ab/(a + b): a, test images with at least t that are right; b, foreign images below t             |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttabench.observe.label_free_scores import Collected

CERTAINTIES = ("softmax", "energy", "own")
FIGURES = ("auroc", "fpr95", "h")
ACCEPTED = 95
"""Percent of the test images that the threshold accepts."""


class Certainties(Collected):
    """The certainties of all images of a contaminated stream, as they arrive: (3, N) float32.

    The figures need every one of them. Their memory, 12 bytes per image, is taken at the first batch. It is
    part of the saved state of a long stream, like the label-free scores.

    total    N, test images and foreign ones.
    classes  those that predictions are chosen from; () = all.
    """

    _fault = ""  # of the method's own certainty; not in states that were stored before

    def __init__(self, total: int, classes: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._total, self._classes = total, list(classes)
        self._values = torch.empty(len(CERTAINTIES), 0)
        self._noted = 0
        self._own = True

    @torch.no_grad()
    def note(self, method: Any, logits: Any) -> None:
        """Add the logits (b, C) of the next images; a GPU is not waited for.

        What is no such tensor is left to the scorer, which refuses it.
        """
        if not isinstance(logits, Tensor) or logits.dim() != 2 or self._noted + len(logits) > self._total:
            return
        own = method.known_score(logits.detach()) if self._own else None
        if self._own and (self._noted or own is not None):
            self._fault = certainty_fault(own, len(logits))
        self._own = own is not None and not self._fault
        z = (logits[:, self._classes] if self._classes else logits).detach().float()
        softmax, energy = z.softmax(dim=1).amax(dim=1), z.logsumexp(dim=1)
        if not self._values.shape[1]:
            self._values = z.new_zeros(len(CERTAINTIES), self._total)
        new = slice(self._noted, self._noted + len(z))
        for row, value in enumerate((softmax, energy, own if self._own else softmax)):
            self._values[row, new] = torch.as_tensor(value)
        self._noted += len(z)

    def alarm(self) -> str:
        """Why the certainty that the method has of its own gives no figures; "" where it does or has none."""
        is_nan = self._own and bool(torch.isnan(self._values[CERTAINTIES.index("own")]).any())
        fault = self._fault or ("is NaN for some images" if is_nan else "")
        return fault and f"the method's known_score() {fault}, so unknown classes are not judged by it"

    def figures(self, foreign: NDArray[np.bool_], right: NDArray[np.bool_]) -> dict[str, Any]:
        """``{"images": m, "softmax": {"auroc": …}, …}``; {} where not every image was noted.

        foreign  (N,) which images of the stream are foreign.
        right    (n,) which test images were classified right, in the order of the stream.
        """
        if not foreign.any() or self._noted != self._total:
            return {}
        values = self._values.cpu().numpy()
        found: dict[str, Any] = {"images": int(foreign.sum())}
        for name, row in zip(CERTAINTIES, values, strict=True):
            usable = (self._own or name != "own") and not np.isnan(row).any()
            found[name] = figures(row[~foreign], row[foreign], right) if usable else None
        return found


def certainty_fault(own: object, count: int) -> str:
    """What is wrong with the kind or shape of a certainty `own` of `count` images; "" for nothing."""
    if own is None:
        return "is None for some batches"
    if not isinstance(own, Tensor):
        return f"is of type {type(own).__name__}, not a tensor"
    if own.shape != (count,):
        return f"has shape {tuple(own.shape)} for {count} images, not ({count},)"
    return ""


def figures(
    known: NDArray[np.float32], foreign: NDArray[np.float32], right: NDArray[np.bool_]
) -> dict[str, float]:
    """Those of :data:`FIGURES`, in percent, to four decimals.

    known    (n,) certainties of the test images, n ≥ 1.
    foreign  (m,) of the foreign images, m ≥ 1.
    right    (n,) whether the prediction is right.
    """
    ascending = np.sort(known)
    below, up_to = (np.searchsorted(ascending, foreign, side) for side in ("left", "right"))
    above = len(known) - (below.astype(np.float64) + up_to) / 2  # a tie is half above and half below
    threshold = ascending[len(known) - -(-ACCEPTED * len(known) // 100)]
    rejected = float((foreign < threshold).mean())
    kept = float((right & (known >= threshold)).mean())
    h = 2 * kept * rejected / (kept + rejected) if kept and rejected else 0.0
    values = float(above.mean()) / len(known), 1 - rejected, h
    return {name: round(100 * value, 4) for name, value in zip(FIGURES, values, strict=True)}


@contextmanager
def watched(method: Any, note: Callable[[Any, Any], None]) -> Iterator[None]:
    """Call `note(method, logits)` with what each batch of a stream got from `adapt` or `predict`.

    For that time, the method is an instance of a subclass: its attributes, and with them its saved state, are
    as without. Calls from within the method, and its offline passes, are not noted.
    """
    cls, inside = type(method), 0

    def calls(name: str) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal inside
            inside += 1
            try:
                found = getattr(super(subclass, self), name)(*arguments, **named)
            finally:
                inside -= 1
            if not inside and name != "fit":
                note(self, found)
            return found

        return call

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    subclass: Any = type(cls)(  # type: ignore[misc]
        cls.__name__, (cls,), {**names, **{name: calls(name) for name in ("adapt", "predict", "fit")}}
    )
    method.__class__ = subclass
    try:
        yield
    finally:
        method.__class__ = cls
