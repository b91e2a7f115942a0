"""Whether gradients of the logits reach what a method learns."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from ttabench.errors import UserError, counted, out_of_memory
from ttabench.method import Method
from ttabench.models.soundness.even_threads import even_threads
from ttabench.models.soundness.group_norm import guard_group_norm
from ttabench.models.soundness.noise import gpus_of, noise_for
from ttabench.nn import norm_affine, on_output

IMAGES, SEED = 3, 2
REENTRANT = (
    "it uses gradient checkpointing in its re-entrant form, in which layers may learn nothing; switch "
    "checkpointing off, or pass use_reentrant=False to torch.utils.checkpoint"
)


class NoGradientError(Exception):
    """Gradients of the logits reach nothing of what should learn; the text says why."""


@dataclass(frozen=True)
class Unreached:
    """Parameters that a method adapts and that get no gradient.

    sentence  names them; "" if there are none.
    runs      whether one of their layers runs in eval mode. Otherwise they do not matter for the logits.
    """

    sentence: str = ""
    runs: bool = False


def gradient_problem(classifier: nn.Module, image_size: int) -> str:
    """Why a method that needs gradients cannot run on `classifier`; "" if it can. Nothing is changed.

    Norm layers are tried, or all parameters if there are none.
    """
    model = copy.deepcopy(classifier).eval().requires_grad_(False)
    guard_group_norm(model)
    try:
        norm_affine(model)
    except UserError:
        model.requires_grad_(True)
    try:
        _unreached(model, image_size)
    except NoGradientError as problem:
        return str(problem)
    return ""


def check_learning(method: Method[Any], image_size: int, name: str) -> Unreached:
    """The parameters that a prepared method adapts and that get no gradient. Nothing is changed.

    They belong to layers that do not run in eval mode, such as auxiliary heads, or that run without
    gradients. Methods whose parameters are not the network's are tried with gradients of the images. Raises
    UserError if there is no gradient at all, and if a parameter would be updated twice.
    """
    if _learns_twice(vars(method).values()):
        raise UserError(
            f"{method.name} cannot run on {name}: two of its layers share a parameter that the method "
            "adapts, and would update it twice; give each layer its own."
        )
    model = copy.deepcopy(method.model)
    learned = [key for key, p in model.named_parameters() if p.requires_grad]
    try:
        unreached = _unreached(model, image_size)
    except NoGradientError as problem:
        raise UserError(f"{method.name} cannot run on {name}: {problem}.") from None
    if not unreached:
        return Unreached()
    runs = _run(model, {key.rpartition(".")[0] for key in unreached}, image_size)
    why = "its layer runs without gradients" if runs else "its layer does not run in eval mode"
    return Unreached(
        f"{len(unreached)} of {counted(len(learned), 'adapted parameter')} of {name} get no gradient and "
        f"stay as they are, the first is {unreached[0].removeprefix('net.')}: {why}",
        runs,
    )


@torch.no_grad()
def _run(model: nn.Module, layers: Collection[str], image_size: int) -> bool:
    """Whether one of these layers runs."""
    ran: list[str] = []
    noted = on_output({name: model.get_submodule(name) for name in layers}, lambda name, _: ran.append(name))
    x = noise_for(model, IMAGES, image_size, SEED)
    with noted, torch.random.fork_rng(devices=gpus_of(x)):
        model(x)
    return bool(ran)


def _unreached(model: nn.Module, image_size: int) -> list[str]:
    """The parameters that require gradients and get none. Raises NoGradientError if there is no gradient."""
    if _is_reentrant(model, image_size):
        raise NoGradientError(REENTRANT)
    learned = [key for key, p in model.named_parameters() if p.requires_grad]
    without = _without_gradient(model, learned, image_size)
    if without is None or (learned and len(without) == len(learned)):
        raise NoGradientError(
            "no gradient reaches what it should learn: the network, or a part of it, runs without gradients "
            "(torch.no_grad, torch.inference_mode, detach), or with rounded values"
        )
    return without


def _is_reentrant(model: nn.Module, image_size: int) -> bool:
    """Whether a part of `model` is checkpointed in the re-entrant form, by its node in the graph."""
    try:
        with _trial(model, image_size, images=True) as (logits, _):
            nodes = graph_of(logits)
    except RuntimeError as problem:  # a part of the network lacks what a gradient needs
        if out_of_memory(problem):
            raise
        return False
    return any(type(node).__name__ == "CheckpointFunctionBackward" for node in nodes)


def graph_of(tensor: Tensor) -> set[Node]:
    """The nodes of the graph that made a tensor."""
    queue = [tensor.grad_fn] if tensor.grad_fn is not None else []
    seen = set(queue)
    while queue:
        new = {before for before, _ in queue.pop().next_functions if before is not None} - seen
        seen |= new
        queue += new
    return seen


@contextmanager
def _trial(model: nn.Module, image_size: int, *, images: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits of images of noise with their graph, and the images, which may require gradients."""
    x = noise_for(model, IMAGES, image_size, SEED).requires_grad_(images)
    with torch.random.fork_rng(devices=gpus_of(x)), torch.inference_mode(False), torch.enable_grad():
        yield model(x), x


def _without_gradient(model: nn.Module, learned: Collection[str], image_size: int) -> list[str] | None:
    """The parameters among `learned` that get no gradient; None if nothing at all gets one.

    Where nothing in `model` is learned, the images should get a gradient.
    """
    model.zero_grad()
    try:
        with even_threads(model), _trial(model, image_size, images=not learned) as (logits, x):
            # Not the sum: the softmax of some losses would have no gradient at it.
            torch.autograd.backward((logits * torch.randn_like(logits)).sum())
    except RuntimeError as problem:
        if out_of_memory(problem):
            raise
        return None  # no part of the logits has a gradient, or a part of them lacks what it needs
    if not learned:
        return None if x.grad is None else []
    return [key for key, p in model.named_parameters() if key in learned and p.grad is None]


def _learns_twice(attributes: Iterable[Any]) -> bool:
    """Whether an optimiser has a parameter more than once."""
    for optimizer in attributes:
        if isinstance(optimizer, torch.optim.Optimizer):
            places = [id(p) for group in optimizer.param_groups for p in group["params"]]
            if len(set(places)) < len(places):
                return True
    return False
