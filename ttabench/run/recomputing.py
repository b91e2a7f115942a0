"""A network whose blocks compute their activations again, tried beside the network as it was."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from ttabench.cell import Cell
from ttabench.data.catalog import dataset
from ttabench.errors import UnusableModel, UserError, out_of_memory
from ttabench.models.recomputed_activations import recompute_activations
from ttabench.models.resolve import resolve_model
from ttabench.models.soundness.even_threads import even_threads
from ttabench.models.soundness.noise import noise_for
from ttabench.run.other_generators import seeded_generators

IMAGES, SEED = 2, 5


def recompute_where_same(net: nn.Module, image_size: int, name: str) -> int:
    """As :func:`recompute_activations`, of a network on the CPU that it does not change otherwise.

    Raises UnusableModel if logits, gradients or buffers are others then, bit for bit. The code of a network
    may make a difference of the class of a block, or of how often a block has run.
    """
    usual = {train: _numbers(net, image_size, train=train) for train in (False, True)}
    try:
        blocks = recompute_activations(net)
        same = all(
            numbers is None or _same(numbers, _numbers(net, image_size, train=train))
            for train, numbers in usual.items()
        )
    except TypeError:  # a class of blocks may allow no class like it
        same = False
    if not same:
        raise UnusableModel(
            f"{name} gives other numbers, or none, where its blocks compute activations again; use "
            "--activations keep"
        )
    return blocks


def check_networks(cells: Iterable[Cell]) -> None:
    """Raises UserError for a network of these cells that :func:`recompute_where_same` refuses."""
    for cell in {(cell.arch, cell.dataset, cell.checkpoint): cell for cell in cells}.values():
        data = dataset(cell.dataset)
        loaded = resolve_model(cell.arch, data).recall(cell.checkpoint)
        if loaded is None:  # its cells fail with this reason
            continue
        try:
            recompute_where_same(loaded.classifier, data.image_size, cell.arch)
        except UnusableModel as problem:
            raise UserError(f"{problem}.") from None


def _same(numbers: list[Tensor], again: list[Tensor] | None) -> bool:
    return (
        again is not None
        and len(numbers) == len(again)
        and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(numbers, again, strict=True))
    )


def _numbers(net: nn.Module, image_size: int, *, train: bool) -> list[Tensor] | None:
    """What a copy of `net` gives for images of noise; None where it fails."""
    trial = copy.deepcopy(net).train(train).requires_grad_(True)
    try:
        with (
            seeded_generators(SEED), torch.random.fork_rng(devices=[]), torch.inference_mode(False),
            torch.enable_grad(), even_threads(trial),
        ):  # fmt: skip
            torch.manual_seed(SEED)
            return list(_of_two_passes(trial, image_size))
    except Exception as problem:  # a network may raise anything
        if out_of_memory(problem):
            raise
        return None


def _of_two_passes(net: nn.Module, image_size: int) -> Iterator[Tensor]:
    """Logits and gradients of two batches with one backward pass, the buffers, and logits after them."""
    x = noise_for(net, IMAGES, image_size, SEED)
    first, second = net(x), net(1 - x)
    yield from (first.detach(), second.detach())
    loss = first.logsumexp(1).sum() - 2 * second.logsumexp(1).sum()
    if loss.requires_grad:
        found = torch.autograd.grad(loss, [*net.parameters()], allow_unused=True)
        yield from (gradient for gradient in found if gradient is not None)
    yield from net.buffers()
    yield net(x).detach()
