"""Whether the layer that a user names as the last one of a network makes its logits.

Number of classes, features and head come from this layer: with another one, they are those of a hidden layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.classifier.probe import probe
from ttabench.errors import UserError
from ttabench.models.soundness.noise import evaluated, gpus_of, noise_for
from ttabench.nn import on_output

IMAGES, SEED = 2, 5
ROUNDING = 1e-3  # of the distance between the smallest and the largest logit of an image


@torch.no_grad()
def check_last(classifier: Classifier, image_size: int, name: str) -> None:
    """Raise UserError if another layer than ``classifier.last`` makes the logits. Nothing is changed.

    What is done to the output of the layer, such as a temperature or a log-softmax, is no other layer. It has
    to keep the number of classes, and which classes of an image have the larger logits: methods take the
    output of the layer for the logits.
    """
    net, given = classifier.net, f"layer '{classifier.last}' of {name}"
    outputs: list[Tensor] = []
    noted = on_output({"": classifier.linear}, lambda _name, out: outputs.append(out))
    x = noise_for(net, IMAGES, image_size, SEED)
    with noted, evaluated(net), torch.random.fork_rng(devices=gpus_of(x)):
        logits: Tensor = net(x)
    if not outputs:
        raise UserError(f"{given} does not run; name the linear layer that makes the logits.")
    found = probe(net, image_size, tags=False).last
    if found is not None and net.get_submodule(found) is not classifier.linear:
        raise UserError(f"{given} does not make the logits, layer '{found}' does: last='{found}'.")
    made = outputs[-1]
    if made.shape[-1] != logits.shape[-1]:
        raise UserError(
            f"{given} has {made.shape[-1]} outputs, and {name} returns {logits.shape[-1]} logits; "
            "name the linear layer that makes them, with one output for each."
        )
    if made.shape != logits.shape:
        raise UserError(
            f"{given} gives a tensor of shape {tuple(made.shape)} for {IMAGES} images; expected "
            f"{tuple(logits.shape)}: methods read one vector of features per image before it."
        )
    ascending = logits.double().gather(1, made.argsort(dim=1))
    spread = ascending.amax(dim=1, keepdim=True) - ascending.amin(dim=1, keepdim=True)
    if (ascending.diff(dim=1) < -ROUNDING * spread).any():
        raise UserError(
            f"{name} changes the order of the outputs of layer '{classifier.last}', but methods use these "
            "outputs as the logits; put an order of the classes, weights or a mean into the weights of the "
            "layer."
        )
