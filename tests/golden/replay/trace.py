"""A folder of golden traces: models.npz, inputs.npz, traces/*.npz. Pickles are never loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.errors import UserError

from .nets import build

Arrays = Mapping[str, np.ndarray]


class Folder:
    """Raises UserError where `path` holds no traces."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files = sorted((self.path / "traces").glob("*.npz"))
        if not self.files:
            raise UserError(f"'{path}' holds no golden traces; expected a folder with traces/*.npz in it.")
        for name in ("models.npz", "inputs.npz"):
            if not (self.path / name).is_file():
                raise UserError(f"'{path}' has traces but no {name}; expected it beside traces/.")

    def traces(self) -> list[Trace]:
        return [Trace(self, file) for file in self.files]

    def trace(self, name: str) -> Trace:
        return Trace(self, self.path / "traces" / f"{name}.npz")

    @cached_property
    def inputs(self) -> Arrays:
        return _load(self.path / "inputs.npz")

    @cached_property
    def weights(self) -> dict[str, dict[str, Tensor]]:
        """By net and by name, of all files models….npz."""
        models: dict[str, dict[str, Tensor]] = {}
        for file in sorted(self.path.glob("models*.npz")):
            for key, value in _load(file).items():
                model, _, name = key.partition("/")
                models.setdefault(model, {})[name] = torch.from_numpy(value)
        return models


class Trace:
    """One recorded run. ``trace["field"]`` is an array of the file, ``trace.meta`` its settings.

    method  the part of the file's name before the first "-".
    """

    def __init__(self, folder: Folder, file: Path) -> None:
        self.folder = folder
        self.file = file
        self.name = file.stem
        self.method = self.name.split("-")[0]

    def __repr__(self) -> str:
        return f"Trace({self.name})"

    @cached_property
    def arrays(self) -> Arrays:
        return _load(self.file)

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads(str(self.arrays["meta_json"])) if "meta_json" in self.arrays else {}

    def __getitem__(self, field: str) -> np.ndarray:
        return self.arrays[field]

    def __contains__(self, field: str) -> bool:
        return field in self.arrays

    def tensor(self, field: str, dtype: torch.dtype | None = None) -> Tensor:
        return torch.from_numpy(np.asarray(self.arrays[field])).to(dtype)

    def recorded(self, field: str, dtype: torch.dtype) -> Tensor:
        """`field` of the run in this precision, where it was recorded in both."""
        twin = f"f64_{field}"
        return self.tensor(twin if dtype == torch.float64 and twin in self else field, torch.float64)

    def classifier(self, dtype: torch.dtype) -> Classifier:
        """The source net, in eval mode."""
        extra = {key: int(self.meta[key]) for key in ("groups", "heads") if key in self.meta}
        return build(self.folder.weights[self.meta["model"]], dtype, **extra)

    @cached_property
    def idx(self) -> np.ndarray:
        """Positions in ``inputs["x"]`` of the images of the stream."""
        return self.arrays["idx"].astype(np.int64)

    def images(self, positions: np.ndarray, dtype: torch.dtype, field: str = "x") -> Tensor:
        """Images (n, 3, H, W) in [0, 1], divided in float32 and then widened."""
        return as_images(self.folder.inputs[field][positions], dtype)

    def batches(self, dtype: torch.dtype, size: int = 0) -> Iterator[Tensor]:
        """The stream in batches of `size` (0 = the trace's `batch_size`), the last one short."""
        size = size or int(self.meta["batch_size"])
        for start in range(0, len(self.idx), size):
            yield self.images(self.idx[start : start + size], dtype)

    def groups(self, dtype: torch.dtype) -> Iterator[Tensor]:
        """The stream in groups of `update_every_x` images; an incomplete last one is dropped."""
        size = int(self.meta["update_every_x"])
        return (x for x in self.batches(dtype, size) if len(x) == size)

    def fisher(self, dtype: torch.dtype, size: int) -> Iterator[Tensor]:
        """``inputs["x_fisher"]`` in order in batches of `size`, the last one short."""
        for start in range(0, len(self.folder.inputs["x_fisher"]), size):
            yield self.images(np.s_[start : start + size], dtype, "x_fisher")  # type: ignore[arg-type]


def as_images(pixels: np.ndarray, dtype: torch.dtype) -> Tensor:
    """uint8 → [0, 1], divided in float32 and then widened."""
    return (torch.from_numpy(np.ascontiguousarray(pixels)).to(torch.float32) / 255).to(dtype)


def _load(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
