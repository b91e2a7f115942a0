"""What a forward pass or two tell of a network that is not ours: where it ends and what it is made of."""

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

__all__ = ["Probed", "probe"]

PROMPTS = 3
ALIKE = 0.05  # relative difference of features that rounding may make, half precision included


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What was found.

    last         the name of the linear layer that makes the logits, None where there is none.
    norm_order   the names of the norm layers that ran, in the order in which they did.
    tags         "transformer": two or more blocks of one type, with layer norm inside, take tokens, a tensor
                 of three dimensions. "class_token": the first of the tokens (B, N, d) that enter them is the
                 same for all images. "no_room_for_prompts": no others can join them, or it matters where
                 these stand (windows, relative positions, a second token that is read).
    """

    last: str | None
    norm_order: tuple[str, ...]
    tags: tuple[str, ...]


@torch.no_grad()
def probe(net: nn.Module, image_size: int, *, tags: bool = True) -> Probed:
    """Run `net` in eval mode on two images of noise; for `tags`, a transformer once more with more tokens.

    The network stays as it is, and so does the global random generator. What the network raises on images
    of this size is raised here; where it raises with more tokens, it has no room for them.
    """
    noise = torch.rand(2, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    x = noise.to(next(net.parameters(), noise))
    made: dict[str, Any] = {}  # by linear layers; of the others, that they ran; the last to be done is last
    entered: list[Tensor] = []

    def done(name: str, module: nn.Module, _inputs: object, out: Any) -> None:
        made.pop(name, None)
        made[name] = out if isinstance(module, nn.Linear) else None

    def enter(_block: nn.Module, inputs: tuple[Any, ...]) -> None:
        entered.extend(first.clone() for first in inputs[:1] if isinstance(first, Tensor))

    blocks = transformer_blocks(net)
    with _evaluating(net) as hooks:
        for name, module in net.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):  # which takes no hooks
                hooks.append(module.register_forward_hook(partial(done, name)))
        hooks += [block.register_forward_pre_hook(enter) for block in blocks[:1]]
        logits = net(x)
    last = next((name for name, out in reversed(made.items()) if _same(out, logits)), None)
    found: tuple[str, ...] = ()
    if tags and last is not None and len(blocks) > 1 and entered and entered[0].dim() == 3:
        found = ("transformer", *_tags(net, x, blocks, entered[0], last))
    return Probed(last=last, norm_order=_norm_order(net, made), tags=found)


def _same(out: Any, logits: Any) -> bool:
    both = isinstance(out, Tensor) and isinstance(logits, Tensor)
    return both and out.shape == logits.shape and torch.equal(out, logits)


def _norm_order(net: nn.Module, ran: Iterable[str]) -> tuple[str, ...]:
    """A fused kernel may do a layer's work without calling it; it ran, then, when what it lies in did."""
    place = {name: i for i, name in enumerate(ran)}
    when = {name: place.get(name, place.get(name.rpartition(".")[0], -1)) for name, _ in norm_modules(net)}
    return tuple(sorted((name for name, i in when.items() if i >= 0), key=lambda name: when[name]))


def _tags(net: nn.Module, x: Tensor, blocks: list[nn.Module], tokens: Tensor, last: str) -> Iterator[str]:
    if len(tokens) != len(x):  # the batch is another dimension, or images are cut into windows
        yield "no_room_for_prompts"
        return
    differs = (tokens[0] != tokens[1]).any(dim=1)
    class_token = bool(differs.any() and not differs[0])
    if class_token:
        yield "class_token"
    if not _has_room(net, x[:1], blocks, int(class_token), last):
        yield "no_room_for_prompts"


def _has_room(net: nn.Module, x: Tensor, blocks: list[nn.Module], classes: int, last: str) -> bool:
    """Whether prompts may stand anywhere behind the class token, and the features (B, k) are the same.

    The image (1, 3, H, W) goes through twice: with prompts where a method puts them, and in the middle.
    """
    passed: list[nn.Module] = []
    features: list[Tensor] = []

    def join(_block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        tokens: Tensor = inputs[0]
        prompts = tokens[0, -PROMPTS:].flip(1)  # like tokens, but none of them
        ends = (classes, tokens.shape[1] // 2)
        rows = [torch.cat([row[:i], prompts, row[i:]]) for row, i in zip(tokens, ends, strict=True)]
        return torch.stack(rows), *inputs[1:]

    def leave(block: nn.Module, _inputs: object, out: Any) -> None:
        if isinstance(out, Tensor) and out.dim() == 3:
            passed.append(block)

    def read(_linear: nn.Module, inputs: tuple[Any, ...]) -> None:
        features.append(inputs[0])

    try:
        with _evaluating(net) as hooks:
            hooks.append(blocks[0].register_forward_pre_hook(join))
            hooks += [block.register_forward_hook(leave) for block in blocks]
            hooks.append(net.get_submodule(last).register_forward_pre_hook(read))
            net(x.repeat(2, 1, 1, 1))
    except Exception:  # whatever a stranger's network does with more tokens than it expects
        return False
    behind, amid = features[-1].float()
    return passed == blocks and bool((behind - amid).norm() <= ALIKE * amid.norm())


@contextmanager
def _evaluating(net: nn.Module) -> Iterator[list[RemovableHandle]]:
    """Eval mode, with a list for hooks; then they are removed, and each module is in the mode it was in."""
    modes = {module: module.training for module in net.modules()}
    hooks: list[RemovableHandle] = []
    net.eval()
    try:
        yield hooks
    finally:
        for hook in hooks:
            hook.remove()
        net.train(modes[net])  # for networks that do more than to note it
        for module, mode in modes.items():
            module.training = mode
