"""Find the last linear layer, the order of the norm layers and the kind of a network, by running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ttabench.classifier.norm_layers import norm_modules
from ttabench.classifier.transformer_blocks import transformer_blocks

PROMPTS = 3  # tokens that are added to see whether a transformer accepts more
TOLERANCE = 0.05  # relative difference of features that rounding can cause, also in half precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The result of :func:`probe`.

    last         the name of the linear layer that makes the logits; None if there is none.
    norm_order   the names of the norm layers that ran, in the order in which they ran.
    tags         "transformer": two or more blocks of one type, with layer norm inside, take tokens, a tensor
                 of three dimensions. "class_token": the first of the tokens (B, N, d) that enter the blocks
                 is the same for all images. "no_room_for_prompts": the blocks accept no additional tokens,
                 or their position matters (windows, relative positions, a second special token).
    """

    last: str | None
    norm_order: tuple[str, ...]
    tags: tuple[str, ...]


@torch.no_grad()
def probe(net: nn.Module, image_size: int, *, tags: bool = True) -> Probed:
    """Run `net` in eval mode on two images of noise; for `tags`, run a transformer again with more tokens.

    The network and the global random generator do not change. An exception that the network raises on
    images of this size is passed on. A network that raises with more tokens has no room for prompts.
    """
    noise = torch.rand(2, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    x = noise.to(next(net.parameters(), noise))
    outputs: dict[str, Any] = {}  # name → output of a linear layer, None for others; in order of completion
    block_inputs: list[Tensor] = []

    def record_output(name: str, module: nn.Module, _inputs: object, out: Any) -> None:
        outputs.pop(name, None)
        outputs[name] = out if isinstance(module, nn.Linear) else None

    def record_input(_block: nn.Module, inputs: tuple[Any, ...]) -> None:
        block_inputs.extend(first.clone() for first in inputs[:1] if isinstance(first, Tensor))

    blocks = transformer_blocks(net)
    with _evaluating(net) as hooks:
        for name, module in net.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):  # these accept no hooks
                hooks.append(module.register_forward_hook(partial(record_output, name)))
        hooks += [block.register_forward_pre_hook(record_input) for block in blocks[:1]]
        logits = net(x)
    last = next((name for name, out in reversed(outputs.items()) if _same(out, logits)), None)
    kind: tuple[str, ...] = ()
    if tags and last is not None and len(blocks) > 1 and block_inputs and block_inputs[0].dim() == 3:
        kind = ("transformer", *_tags(net, x, blocks, block_inputs[0], last))
    return Probed(last=last, norm_order=_norm_order(net, outputs), tags=kind)


def _same(out: Any, logits: Any) -> bool:
    are_tensors = isinstance(out, Tensor) and isinstance(logits, Tensor)
    return are_tensors and out.shape == logits.shape and torch.equal(out, logits)


def _norm_order(net: nn.Module, ran: Iterable[str]) -> tuple[str, ...]:
    """The norm layers in the order in which they ran, from the modules that `ran`.

    A fused kernel may do the work of a layer without calling it. Such a layer gets the place of its parent.
    """
    position = {name: i for i, name in enumerate(ran)}
    run_position = {
        name: position.get(name, position.get(name.rpartition(".")[0], -1)) for name, _ in norm_modules(net)
    }
    return tuple(
        sorted((name for name, i in run_position.items() if i >= 0), key=lambda name: run_position[name])
    )


def _tags(net: nn.Module, x: Tensor, blocks: list[nn.Module], tokens: Tensor, last: str) -> Iterator[str]:
    if len(tokens) != len(x):  # the batch is not the first dimension, or images are cut into windows
        yield "no_room_for_prompts"
        return
    differs = (tokens[0] != tokens[1]).any(dim=1)
    class_token = bool(differs.any() and not differs[0])
    if class_token:
        yield "class_token"
    if not _has_room(net, x[:1], blocks, int(class_token), last):
        yield "no_room_for_prompts"


def _has_room(net: nn.Module, x: Tensor, blocks: list[nn.Module], classes: int, last: str) -> bool:
    """Whether the features (B, k) are the same wherever prompts stand after the class token.

    The image (1, 3, H, W) is run twice: with prompts directly after the class token, where methods put them,
    and with prompts in the middle of the tokens.
    """
    blocks_run: list[nn.Module] = []
    features: list[Tensor] = []

    def add_prompts(_block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        tokens: Tensor = inputs[0]
        prompts = tokens[0, -PROMPTS:].flip(1)  # typical values of tokens, but no token of this image
        places = (classes, tokens.shape[1] // 2)
        rows = [torch.cat([row[:i], prompts, row[i:]]) for row, i in zip(tokens, places, strict=True)]
        return torch.stack(rows), *inputs[1:]

    def record_block(block: nn.Module, _inputs: object, out: Any) -> None:
        if isinstance(out, Tensor) and out.dim() == 3:
            blocks_run.append(block)

    def record_features(_linear: nn.Module, inputs: tuple[Any, ...]) -> None:
        features.append(inputs[0])

    try:
        with _evaluating(net) as hooks:
            hooks.append(blocks[0].register_forward_pre_hook(add_prompts))
            hooks += [block.register_forward_hook(record_block) for block in blocks]
            hooks.append(net.get_submodule(last).register_forward_pre_hook(record_features))
            net(x.repeat(2, 1, 1, 1))
    except Exception:  # a network may raise anything on more tokens than it expects
        return False
    at_start, in_middle = features[-1].float()
    same = bool((at_start - in_middle).norm() <= TOLERANCE * in_middle.norm())
    return blocks_run == blocks and same


@contextmanager
def _evaluating(net: nn.Module) -> Iterator[list[RemovableHandle]]:
    """Eval mode inside the block, with a list for hooks. Afterwards hooks and modes are as before."""
    modes = {module: module.training for module in net.modules()}
    hooks: list[RemovableHandle] = []
    net.eval()
    try:
        yield hooks
    finally:
        for hook in hooks:
            hook.remove()
        net.train(modes[net])  # for networks whose train() does more than set a flag
        for module, mode in modes.items():
            module.training = mode
