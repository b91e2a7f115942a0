"""Summaries of the source data on disk, so that each is computed once for all workers and later sweeps."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from ttabench.measure.summary_tensors import pack, unpack
from ttabench.provenance import module_hash
from ttabench.system.bounded_folder import largest_size, make_room
from ttabench.system.environment import processor, versions
from ttabench.system.files import replacing

FORMAT = 1
LIMIT = "TTABENCH_SOURCE_GB"
"""The variable of the environment that limits the size of the folder; 0 keeps nothing."""
BUDGET_GB = 8.0
DIGEST = 32  # bytes at the end of a file: the SHA-256 of all before


class NoMemo(dict[Any, Any]):
    """A memo of source summaries that keeps none of them.

    A memo knows a classifier by features of some images, and these do not see its last layer. A method that
    changes this layer would get the summary of the classifier before.
    """

    def __setitem__(self, request: Any, summary: Any) -> None:
        pass


class SourceCache:
    """A folder of files, one for each summary.

    A file's name is the SHA-256 of all that its bits depend on: `identity` (the images and the code that
    computes it), the request, weights and code of the classifier, library versions, processor or GPU,
    threads and precision. So a worker on another kind of device computes its own.

    Several workers may use one folder: the first computes, those that ask for the same wait for it. A
    damaged file is computed again, with a warning. The folder holds at most ``$TTABENCH_SOURCE_GB`` (8 GB
    unless set; 0 turns it off): the least recently used files are deleted first. It can be deleted at any
    time.
    """

    def __init__(self, folder: Path, identity: Sequence[str]) -> None:
        self._folder = folder
        self._identity = list(identity)
        self._budget = largest_size(LIMIT, BUDGET_GB)

    def get(
        self,
        request: Sequence[Any],
        classifier: nn.Module,
        probe: Tensor,
        device: str,
        compute: Callable[[], Any],
    ) -> Any:
        """The summary: tensors, or tuples and dictionaries of them. `compute` makes it if it is not stored.

        probe   features of some images: they distinguish classifiers that have the same weights.
        """
        if not self._budget:
            return compute()
        state = [_hash_of({"probe": probe, **classifier.state_dict()}), *_code(classifier)]
        facts = [FORMAT, self._identity, request, state, versions(), _arithmetic(device)]
        name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        file = self._folder / f"{name[:40]}.summary"
        with self._turn(file):
            value = self._read(file, device)
            if value is None:
                value = compute()
                self._write(file, value)
        return value

    def _read(self, file: Path, device: str) -> Any:
        try:
            data = file.read_bytes()
        except OSError:
            return None
        value = _decoded(data, device)
        if value is None:
            warnings.warn(
                f"{file} is damaged; the summary of the source data is computed again.", stacklevel=5
            )
        with contextlib.suppress(OSError):
            os.utime(file)
        return value

    def _write(self, file: Path, value: Any) -> None:
        data = _encoded(value)
        if len(data) > self._budget / 4:
            return
        try:
            with replacing(file) as part:
                part.write_bytes(data)
            make_room(((held,) for held in self._folder.glob("*.summary")), self._budget)
        except OSError as problem:
            warnings.warn(
                f"{file.parent} cannot be written ({problem.strerror}); nothing is kept.", stacklevel=5
            )

    @contextmanager
    def _turn(self, file: Path) -> Iterator[None]:
        """Wait until no other worker uses this file. If files cannot be locked, both compute the summary."""
        lock = file.with_suffix(".lock")
        try:
            import fcntl

            self._folder.mkdir(parents=True, exist_ok=True)
            lock_file = lock.open("w")
            fcntl.flock(lock_file, fcntl.LOCK_EX)  # the system frees it when its process ends
        except (ImportError, OSError):
            yield
            return
        with lock_file:
            yield
            with contextlib.suppress(OSError):
                lock.unlink()


def _hash_of(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"\0{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _code(classifier: nn.Module) -> list[str]:
    """The layers of a classifier with their settings, and hashes of their code where it is not torch's."""
    modules = sorted({type(layer).__module__ for layer in classifier.modules()})
    return [repr(classifier), *(f"{name} {module_hash(name)}" for name in modules if name[:6] != "torch.")]


def _arithmetic(device: str) -> list[Any]:
    """What kernels and their order of additions depend on."""
    kind = torch.device(device).type
    return [
        kind,
        processor(device),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled(kind),
        str(torch.get_autocast_dtype(kind)),
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
    ]


# ---- files


def _encoded(value: Any) -> bytes:
    tensors: list[Tensor] = []
    metadata = {"structure": json.dumps(pack(value, tensors))}
    metadata["on_cpu"] = json.dumps([tensor.device.type == "cpu" for tensor in tensors])
    rows = {str(i): tensor.detach().cpu().contiguous().clone() for i, tensor in enumerate(tensors)}
    data = safetensors.torch.save(rows, metadata)
    return data + hashlib.sha256(data).digest()


def _decoded(data: bytes, device: str) -> Any:
    """The value; None if the bytes are not those that were written."""
    data, digest = data[:-DIGEST], data[-DIGEST:]
    if hashlib.sha256(data).digest() != digest:
        return None
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    on_cpu = json.loads(metadata["on_cpu"])
    rows = safetensors.torch.load(data)
    tensors = [rows[str(i)] if cpu else rows[str(i)].to(device) for i, cpu in enumerate(on_cpu)]
    return unpack(json.loads(metadata["structure"]), tensors)
