"""Load tensors into a network by name, and hash its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.errors import UserError


def content_hash(classifier: Classifier) -> str:
    """SHA-256 (hex) of a classifier's tensors: parameters, buffers and the normalisation.

    The hash covers sorted names, types, shapes and little-endian values in row-major order. It does not
    depend on file format, memory layout or device.
    """
    tensors = dict(classifier.net.state_dict())
    tensors["normalize.mean"], tensors["normalize.std"] = classifier.normalize.mean, classifier.normalize.std
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The name of the first tensor with NaN or an infinite value; "" if there is none."""
    return next((name for name, t in tensors if t.is_floating_point() and not t.isfinite().all()), "")


def check_finite(net: nn.Module, name: str) -> None:
    """Raises UserError if the network called `name` has weights that are not finite, or a buffer with NaN.

    The masks of some networks are buffers with infinite values.
    """
    if broken := not_finite(net.named_parameters()):
        raise UserError(f"{name} has weights that are NaN or infinite, first in {broken}.")
    buffers = ((key, t) for key, t in net.named_buffers() if t.is_floating_point())
    if broken := next((key for key, t in buffers if t.isnan().any()), ""):
        raise UserError(f"{name} has buffers that are NaN, first in {broken}.")


def load_weights(
    net: nn.Module, tensors: Mapping[str, Tensor], origin: str, optional: Collection[str] = ()
) -> None:
    """Copy `tensors` into `net`; error messages call them `origin`.

    `optional` are names (after the last dot) that a file may lack, such as a built-in normalisation. The
    network then keeps its own values.

    Raises UserError, and leaves `net` as it was, where a name, a shape or a kind of number does not fit, or a
    value is NaN.
    """
    wanted = net.state_dict()
    # Files from before PyTorch 0.4.1, and exports, lack the counter; eval mode does not use it.
    may_lack = ("num_batches_tracked", *optional)
    absent = [n for n in wanted if n not in tensors and n.rpartition(".")[2] not in may_lack]
    extra = [n for n in tensors if n not in wanted]
    if absent or extra:
        which = f"lacks {absent[0]}" if absent else f"has {extra[0]}, which the architecture does not have"
        more = len(absent) + len(extra) - 1
        raise UserError(
            f"{origin} is of another architecture: it {which}" + (f" ({more} more differ)." if more else ".")
        )
    for name, ours in wanted.items():
        if name in tensors and tensors[name].shape != ours.shape:
            raise UserError(
                f"{origin} does not fit: {name} has shape {tuple(tensors[name].shape)}, "
                f"the architecture {tuple(ours.shape)}."
            )
    if rounded := [n for n in wanted if n in tensors and _is_rounded(tensors[n], wanted[n])]:
        raise UserError(
            f"{origin} holds {_type(tensors[rounded[0]])} in {rounded[0]}, and the network has "
            f"{_type(wanted[rounded[0]])}: a quantised network has other numbers; save it as it was "
            "before."
        )
    if broken := not_finite(tensors.items()):
        raise UserError(
            f"{origin} holds NaN or infinite values, first in {broken}: the training that wrote it diverged; "
            "use weights of an earlier epoch."
        )
    wanted.update(tensors)  # in the network's own state dict, which has the versions of its layers
    net.load_state_dict(wanted)


def _is_rounded(given: Tensor, ours: Tensor) -> bool:
    """Whether whole numbers are given for a tensor of fractions."""
    return ours.is_floating_point() and not given.is_floating_point()


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
