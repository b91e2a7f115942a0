"""Read weights files of several formats without executing code from them."""

from __future__ import annotations

import pickle
import re
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ttabench.data.files.whole_archive import check_whole
from ttabench.errors import UserError

FORMATS = (".safetensors", ".npz", ".pt", ".pth", ".th", ".bin", ".ckpt", ".tar")
# Training scripts store the state dict under these keys. Averaged weights are not chosen silently. If a file
# has the last and the best epoch, the last is read: the best was chosen on the test images.
STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model", "net", "weights", "params", "last")
# Prefixes that wrappers add to all names: DataParallel, torch.compile, Lightning and others.
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "backbone.")
# What the readers raise on a file of which some bytes are wrong or missing.
DAMAGED = (
    SafetensorError, OSError, ValueError, EOFError, RuntimeError, KeyError, TypeError, IndexError,
    AssertionError, AttributeError, struct.error, zlib.error, zipfile.BadZipFile, tokenize.TokenError,
)  # fmt: skip


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors, npz or PyTorch file by name, without prefixes of wrappers.

    Raises UserError if the file is missing, damaged or no weights file (for example a web page), or if it
    holds Python objects besides tensors.
    """
    if not path.is_file():
        raise UserError(f"there is no file {path}.")
    if path.suffix not in FORMATS:
        raise UserError(
            f"{path.name}: '{path.suffix}' is not a format of weights that ttabench reads: "
            f"{', '.join(FORMATS)}."
        )
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if start[:1] == b"<" and b"html" in start.lower():
        raise UserError(f"{path} is a web page, not weights: the download went wrong; fetch it again.")
    try:
        if path.suffix == ".safetensors":
            tensors: Any = load_file(path)
        elif path.suffix == ".npz":
            tensors = _arrays(path)
        else:
            if _is_torchscript(path):
                raise UserError(f"{path} holds a TorchScript program; save its state_dict instead.")
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} holds Python objects besides tensors, or is damaged; loading them could run unknown "
            "code. Save only the state dict: safetensors.torch.save_file(model.state_dict(), FILE)."
        ) from None
    except DAMAGED as problem:
        if path.suffix == ".npz" and "allow_pickle" in str(problem):
            raise UserError(
                f"{path} holds Python objects besides arrays, which are never read: they may contain a "
                "program; save plain arrays instead."
            ) from None
        raise UserError(
            f"{path} is truncated or no {path.suffix[1:]} file; save or fetch it again."
        ) from None
    return _unwrapped(tensors, path)


def _arrays(path: Path) -> dict[str, Tensor]:
    """The numbers in an npz file; texts beside them, such as the name of the network, are left out."""
    check_whole(path)
    with np.load(path, allow_pickle=False) as arrays:
        read = {name: arrays[name] for name in arrays.files}
    return {
        name: torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
        for name, array in read.items()
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
    }


def _is_torchscript(path: Path) -> bool:
    """Whether it is a zip file with a TorchScript program. torch.load finds it out too, but warns."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(re.fullmatch("[^/]+/constants.pkl", name) for name in archive.namelist())


def _unwrapped(tensors: Any, path: Path) -> dict[str, Tensor]:
    while isinstance(tensors, Mapping) and (
        key := next((k for k in STATE_DICT_KEYS if isinstance(tensors.get(k), Mapping)), "")
    ):
        tensors = tensors[key]
    if not isinstance(tensors, Mapping):
        raise UserError(f"{path} holds a {type(tensors).__name__}; expected tensors by name.")
    named = {str(name): value for name, value in tensors.items() if isinstance(value, Tensor)}
    if not named:
        inner = [str(key) for key, value in tensors.items() if _holds_tensors(value)]
        below = f" by name, but under {', '.join(inner)}; save the one that you mean alone" if inner else ""
        raise UserError(f"{path} holds no tensors{below}.")
    prefix = _wrappers(named)
    return {name.removeprefix(prefix): value for name, value in named.items()}


def rewrapped(tensors: Mapping[str, Tensor], wanted: Iterable[str], origin: str) -> dict[str, Tensor]:
    """`tensors` as :func:`read_weights` gives them, for a network whose own names are the `wanted` ones.

    If all names of the network itself begin with a prefix that wrappers use, the prefix is added again. What
    training scripts keep beside a network, such as the weights of a criterion, is left out with a warning.

    Raises UserError where `origin`, the file, holds the network more than once.
    """
    names = set(wanted)
    prefix = _wrappers(names)
    places = _places(tensors, {name.removeprefix(prefix) for name in names})
    if len(places) > 1:
        under = ", ".join(place.removesuffix(".") for place in places)
        raise UserError(f"{origin} holds the network more than once, under {under}; save only one of them.")
    if places:
        _warn_of_others(tensors, places[0], origin)
        inside = [name for name in tensors if name.startswith(places[0])]
        return {prefix + name.removeprefix(places[0]): tensors[name] for name in inside}
    if any(name.startswith(prefix) for name in tensors):
        return dict(tensors)
    return {prefix + name: value for name, value in tensors.items()}


def _places(tensors: Collection[str], wanted: Collection[str]) -> list[str]:
    """The prefixes of names below which there are the `wanted` ones, but for counters, and no others."""
    needed = {name for name in wanted if not name.endswith("num_batches_tracked")}
    longest = max(needed, key=len, default="")  # few names end in it
    ends = {name.removesuffix(longest) for name in tensors if name.endswith(longest)}
    found = []
    for place in sorted(end for end in ends if not end or end.endswith(".")):
        below = {name.removeprefix(place) for name in tensors if name.startswith(place)}
        if needed <= below <= set(wanted):
            found.append(place)
    return found


def _warn_of_others(tensors: Iterable[str], place: str, origin: str) -> None:
    """Warn of tensors that are not below `place`, but for the counter of torch's AveragedModel."""
    others = [name for name in tensors if not name.startswith(place) and name != "n_averaged"]
    if others:
        said = others[0] + (f" and {len(others) - 1} more" if len(others) > 1 else "")
        warnings.warn(
            f"{origin}: the network is under {place.removesuffix('.')}; left out beside it: {said}.",
            UserWarning,
            stacklevel=3,
        )


def _wrappers(names: Collection[str]) -> str:
    """The prefix that wrappers added to all names, e.g. ``module.model.``; "" if there is none."""
    prefix = ""
    while more := next((p for p in PREFIXES if names and all(n.startswith(prefix + p) for n in names)), ""):
        prefix += more
    return prefix


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(each, Tensor) for each in value.values())
