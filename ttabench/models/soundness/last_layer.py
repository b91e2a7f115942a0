"""Whether the layer that a user names as the last one of a network makes its logits.

Number of classes, features and head come from this layer: with another one, they are those of a hidden layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.classifier.probe import probe
from ttabench.errors import UserError
from ttabench.models.soundness.noise import evaluated, noise_for

__all__ = ["check_last"]

IMAGES, SEED = 2, 5


@torch.no_grad()
def check_last(classifier: Classifier, image_size: int, name: str) -> None:
    """Raise UserError if another layer than ``classifier.last`` makes the logits. Nothing is changed.

    What is done to the output of the layer, such as a temperature or a log-softmax, is no other layer. It has
    to keep the number of classes.
    """
    net, given = classifier.net, f"layer '{classifier.last}' of {name}"
    outputs: list[Tensor] = []
    hook = classifier.linear.register_forward_hook(lambda _layer, _inputs, out: outputs.append(out))
    x = noise_for(net, IMAGES, image_size, SEED)
    try:
        with evaluated(net), torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            logits: Tensor = net(x)
    finally:
        hook.remove()
    if not outputs:
        raise UserError(f"{given} does not run; name the linear layer that makes the logits.")
    found = probe(net, image_size, tags=False).last
    if found is not None and net.get_submodule(found) is not classifier.linear:
        raise UserError(f"{given} does not make the logits, layer '{found}' does: last='{found}'.")
    if outputs[-1].shape[-1] != logits.shape[-1]:
        raise UserError(
            f"{given} has {outputs[-1].shape[-1]} outputs, and {name} returns {logits.shape[-1]} logits; "
            "name the linear layer that makes them, with one output for each."
        )
