"""Load a source classifier, and warn of what its user should know before its numbers are believed."""

from __future__ import annotations

import warnings

from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.model import Model
from ttabench.models.soundness.norm_lookalikes import left_out, lookalikes
from ttabench.system.progress import OnProgress, silent

__all__ = ["load_with_warnings"]


def load_with_warnings(model: Model, device: str, progress: OnProgress = silent) -> Loaded:
    """`model.load`, with a warning if its clean accuracy is too low, differs from the claimed one, or is
    better with other inputs; and if layers look like norm layers and do not count as such."""
    loaded = model.load(device, progress)
    if text := loaded.note.get("warning"):
        warnings.warn(f"{model}: {text}", stacklevel=2)
    if not model.trainable and (
        said := left_out(lookalikes(loaded.classifier.net, model.dataset.image_size))
    ):
        warnings.warn(f"{model}: {said}.", stacklevel=2)
    return loaded
