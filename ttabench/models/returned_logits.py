"""What a network of the user must return: logits, a row for each image."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.models.soundness.linked_names import with_linked_names
from ttabench.models.soundness.noise import evaluated
from ttabench.models.soundness.private_copy import Reads, check_copy, places

IMAGES = 2  # images of noise that a network is tried on
ROUNDING = 1e-2  # by how much probabilities may miss a sum of 1, also in half precision


def as_classifier(
    net: nn.Module,
    image_size: int,
    mean: tuple[float, ...] = (0.0, 0.0, 0.0),
    std: tuple[float, ...] = (1.0, 1.0, 1.0),
    *,
    name: str,
) -> Classifier:
    """`net` as a classifier; one that is a :class:`Classifier` already is tried and returned.

    Raises UserError, with the `name` of the network, where it does not end in a linear layer, does not return
    logits, or has copies that do not compute the same with weights of their own (see
    :mod:`ttabench.models.soundness.private_copy`). An exception of the network is passed on.
    """
    if isinstance(net, nn.DataParallel | nn.parallel.DistributedDataParallel):
        net = net.module  # methods see whole batches, and not the part of one GPU
    if isinstance(net, torch.jit.ScriptModule):
        raise UserError(
            f"{name} is a scripted or traced network, in which a method finds no layers; expected the "
            "network as it was before torch.jit."
        )
    if isinstance(net, Classifier):
        if wrong := _wrong(net, image_size):
            raise UserError(f"{name} {wrong}.")
        check_copy(net, image_size, name)
        return net
    classifier = _wrapped(net, image_size, mean, std, name)
    check_copy(classifier, image_size, name)
    return classifier


def check_logits(classifier: Classifier, image_size: int, name: str) -> None:
    """Raise UserError where the classifier called `name` returns no logits, as with broken weights."""
    if wrong := _wrong(classifier, image_size):
        raise UserError(f"{name} {wrong}.")


def _wrapped(
    net: nn.Module, image_size: int, mean: tuple[float, ...], std: tuple[float, ...], name: str
) -> Classifier:
    try:
        classifier = with_linked_names(Classifier.wrap(net, image_size, mean, std))
        classifier.normalize.to(next((p.dtype for p in net.parameters()), torch.float32))
        return classifier
    except UserError as problem:
        if wrong := _wrong(net, image_size):
            raise UserError(f"{name} {wrong}.") from None
        raise problem


@torch.no_grad()
def _wrong(net: nn.Module, image_size: int) -> str:
    """What is wrong with the output of `net` in eval mode; "" if it may be logits. `net` does not change."""
    noise = torch.rand(IMAGES, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    with evaluated(net), Reads() as reads:
        out: object = net(noise.to(next(net.parameters(), noise)))
    if not isinstance(out, Tensor):
        return (
            f"returns a value of type {type(out).__name__}; expected logits, a tensor (B, C): "
            "let its forward return the logits alone"
        )
    if out.ndim != 2 or len(out) != IMAGES:
        return f"returns a tensor of shape {tuple(out.shape)} for {IMAGES} images; expected logits (B, C)"
    if not out.isfinite().all():
        return (
            "returns logits that are NaN or infinite on images of noise"
            f"{_first_not_finite(net, noise.to(next(net.parameters(), noise)))}; check its weights, its "
            "running statistics and its normalisation"
        )
    if (out >= 0).all() and ((out.float().sum(dim=1) - 1).abs() <= ROUNDING).all():
        return "returns probabilities; expected logits: leave out the softmax at its end"
    own = places(net).keys()  # without any, it does not end in a linear layer, which is said elsewhere
    if own and not reads.places.keys() & own:
        return (
            "does not compute with its own parameters: its forward belongs to another network, or is a "
            "function that keeps one. Write it as a module around the network, class Wrapped(nn.Module) with "
            "self.net = net"
        )
    return ""


def _first_not_finite(net: nn.Module, x: Tensor) -> str:
    """``, first after bn1``: the first layer with such an output for images `x` in eval mode; or ""."""
    found: list[str] = []

    def note(name: str, _layer: nn.Module, _inputs: object, out: object) -> None:
        if name and isinstance(out, Tensor) and not out.isfinite().all():
            found.append(name)

    hooks = [layer.register_forward_hook(partial(note, name)) for name, layer in net.named_modules()]
    try:
        with evaluated(net):
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return f", first after {found[0]}" if found else ""
