"""The state of a long stream on disk: its position and scores, the method, and all random generators."""

from __future__ import annotations

import json
import random
import time
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ttabench.cell import canonical
from ttabench.measure.scoring import Progress
from ttabench.measure.streams import method_state
from ttabench.measure.streams.method_state import NotStorable
from ttabench.method import Method
from ttabench.system.files import replacing

SECONDS = 30.0
"""Least time between two saved states; up to twice as long if saving takes more than a tenth of it."""


@dataclass
class Checkpoint:
    """A file that holds the state of one cell's stream.

    file      ``….npz``: arrays, and JSON data in one of them. It is replaced as a whole.
    identity  a state is used only if this is the same: cell, code, versions, device, threads.
    beside    further objects whose values belong to the state, by name.
    seconds   see :data:`SECONDS`; 0 = after every batch.
    """

    file: Path
    identity: Mapping[str, Any]
    seconds: float = SECONDS
    beside: dict[str, object] = field(default_factory=dict)
    _last: float = field(default_factory=time.monotonic, init=False)
    _pause: float = field(default=0.0, init=False)
    _usable: bool = field(default=True, init=False)
    _checked: bool = field(default=False, init=False)

    def due(self) -> bool:
        """Whether it is time to save again."""
        return self._usable and time.monotonic() - self._last >= max(self.seconds, self._pause)

    def try_to_save(self, method: Method[Any], progress: Progress, device: str) -> None:
        """Save the state. If that is impossible, a warning reports it, and the stream goes on."""
        started = time.monotonic()
        try:
            if not self._checked:
                method_state.check(method)
                self._checked = True
            self.save(method, progress, device)
        except NotStorable as problem:
            self._stop(f"{method.name}: the state cannot be stored ({problem}); a stopped stream starts anew")
        except OSError as problem:
            self._stop(f"{self.file.parent} cannot take the state of a stream ({problem.strerror})")
        self._last = time.monotonic()
        self._pause = min(10 * (self._last - started), 2 * self.seconds)  # a slow disk must not stop saving

    def _stop(self, text: str) -> None:
        self._usable = False
        warnings.warn(text, stacklevel=4)

    def save(self, method: Method[Any], progress: Progress, device: str) -> None:
        """Raises NotStorable, and OSError if the file cannot be written."""
        nodes: dict[str, Any] = {}
        saved: dict[str, NDArray[Any]] = {}
        for name, value in {"method": method, **self.beside}.items():
            nodes[name], arrays = method_state.store(value)
            saved |= {f"{name}_{key}": array for key, array in arrays.items()}
        numpy_name, numpy_keys, *numpy_rest = np.random.get_state(legacy=True)  # noqa: NPY002
        data = {
            "identity": dict(self.identity),
            "states": nodes,
            "number": progress.number, "position": progress.position, "done": progress.done,
            "seconds": progress.seconds, "worked": progress.worked,
            "python_random": random.getstate(), "numpy_random": [numpy_name, *numpy_rest],
        }  # fmt: skip
        saved |= {
            "correct": np.packbits(progress.correct[: progress.done]),
            "confidence": progress.confidence[: progress.done],
            "predicted": progress.predicted, "labels": progress.labels,
            "numpy_random": np.asarray(numpy_keys), "torch_random": torch.get_rng_state().numpy(),
            "json": np.frombuffer(json.dumps(data).encode(), np.uint8),
        }  # fmt: skip
        if device.startswith("cuda"):
            saved["cuda_random"] = torch.cuda.get_rng_state(device).numpy()
        with replacing(self.file) as part, part.open("wb") as opened:
            np.savez(opened, **saved)  # type: ignore[arg-type]

    def load(self, method: Method[Any], progress: Progress, device: str) -> bool:
        """Put the saved state into a prepared method and into `progress`; False if there is none to use.

        A state of another cell, code or machine is not used, and a damaged one is reported.
        """
        try:
            with np.load(self.file, allow_pickle=False) as opened:
                arrays = {name: opened[name] for name in opened.files}
            data = json.loads(arrays["json"].tobytes())
            if canonical(data["identity"]) != canonical(dict(self.identity)):
                return False
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
            warnings.warn(
                f"{self.file} is damaged ({problem}); this stream starts from its first image", stacklevel=3
            )
            return False
        try:
            for name, value in {"method": method, **self.beside}.items():
                parts = {k.removeprefix(f"{name}_"): v for k, v in arrays.items() if k.startswith(f"{name}_")}
                method_state.restore(value, data["states"][name], parts)
        except NotStorable as problem:
            method.reset()
            warnings.warn(f"{self.file}: {problem}; this stream starts from its first image", stacklevel=3)
            return False
        done = data["done"]
        progress.correct[:done] = np.unpackbits(arrays["correct"], count=done)
        progress.confidence[:done] = arrays["confidence"]
        progress.predicted[:], progress.labels[:] = arrays["predicted"], arrays["labels"]
        progress.number, progress.position, progress.done = data["number"], data["position"], done
        progress.seconds, progress.worked = data["seconds"], data["worked"]
        version, internal, gauss = data["python_random"]
        random.setstate((version, tuple(internal), gauss))
        name, *rest = data["numpy_random"]
        np.random.set_state((name, arrays["numpy_random"], *rest))  # noqa: NPY002
        torch.set_rng_state(torch.from_numpy(arrays["torch_random"]))
        if device.startswith("cuda"):
            torch.cuda.set_rng_state(torch.from_numpy(arrays["cuda_random"]), device)
        return True

    def remove(self) -> None:
        """Delete the file, at the end of the stream."""
        self.file.unlink(missing_ok=True)
