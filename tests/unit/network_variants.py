"""One small network, written in many ways that compute the same function, for :mod:`test_any_network`."""

from __future__ import annotations

import copy
import functools
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from ttabench.classifier import Classifier

SIZE = 12


class Plain(nn.Module):
    """The reference: three blocks of convolution and batch norm, a mean over locations, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()) for i in (3, 6, 6)
        )
        self.fc = nn.Linear(6, 5)

    def body(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body(x).mean((2, 3)))
        return logits


def plain() -> Plain:
    """The reference with statistics as after training."""
    torch.manual_seed(3)
    net = Plain()
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
                layer.weight.uniform_(0.5, 2)
                layer.bias.normal_()
    return net.eval()


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = plain()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits


class TwoNames(Plain):
    """Keeps a Sequential of its layers beside the list of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.load_state_dict(plain().state_dict())
        self.flat = nn.Sequential(*(layer for block in self.blocks for layer in block))

    def body(self, x: Tensor) -> Tensor:
        return self.flat(x)  # type: ignore[no-any-return]


class OneNameEach(nn.Module):
    """Attributes for layers that a Sequential has too; each name is used somewhere."""

    def __init__(self) -> None:
        super().__init__()
        net = plain()
        (self.conv1, self.bn1, _), (self.conv2, self.bn2, _), (self.conv3, self.bn3, _) = net.blocks
        self.middle = nn.Sequential(self.conv2, self.bn2, nn.ReLU())
        self.norms = nn.ModuleDict({"first": self.bn1, "last": self.bn3})
        self.fc = net.fc

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(F.relu(self.norms["first"](self.conv1(x))))
        logits: Tensor = self.fc(F.relu(self.bn3(self.conv3(x))).mean((2, 3)))
        return logits


class InList(Plain):
    """Runs its batch norm from a list."""

    def __init__(self) -> None:
        super().__init__()
        self.load_state_dict(plain().state_dict())
        self.layers = [layer for block in self.blocks for layer in block]

    def body(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Hidden(nn.Module):
    """Its body is in a list, so that PyTorch does not know it."""

    def __init__(self) -> None:
        super().__init__()
        net = plain()
        self.fc, self.body = net.fc, [net]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body[0].body(x).mean((2, 3)))
        return logits


class Functional(Plain):
    """Calls torch's function with the tensors of its batch-norm layers."""

    def body(self, x: Tensor) -> Tensor:
        for conv, bn, _ in self.blocks:  # type: ignore[misc]
            x = F.batch_norm(
                conv(x), bn.running_mean, bn.running_var, bn.weight, bn.bias, bn.training, 0.1, bn.eps
            ).relu()
        return x


class Checkpointed(Plain):
    def __init__(self, count: int, reentrant: bool) -> None:
        super().__init__()
        self.load_state_dict(plain().state_dict())
        self.count, self.reentrant = count, reentrant

    def body(self, x: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=self.reentrant) if i < self.count else block(x)
        return x


class WithoutGradient(Plain):
    """A part of the network, or all of it, runs without gradients."""

    def __init__(self, off: Callable[[], Any], whole: bool) -> None:
        super().__init__()
        self.load_state_dict(plain().state_dict())
        self.off, self.whole = off, whole

    def forward(self, x: Tensor) -> Tensor:
        with self.off():
            x = self.body(x).mean((2, 3))
            if self.whole:
                return self.fc(x)  # type: ignore[no-any-return]
        return self.fc(x.clone())  # type: ignore[no-any-return]


class Auxiliary(Plain):
    """A head that only train mode runs."""

    def __init__(self) -> None:
        super().__init__()
        self.load_state_dict(plain().state_dict())
        self.auxiliary = nn.Sequential(
            nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)
        )

    def forward(self, x: Tensor) -> Any:
        x = self.body(x)
        logits = self.fc(x.mean((2, 3)))
        return (logits, self.auxiliary(x)) if self.training else logits


class OwnBatchNorm(nn.BatchNorm2d):
    pass


class NormAct(nn.BatchNorm2d):
    """Like timm's: normalises, then drops and activates."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))  # type: ignore[no-any-return]


class BoundForward(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.load_state_dict(plain().state_dict())
        self.forward = self.other  # type: ignore[method-assign]

    def other(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x).mean((2, 3)))  # type: ignore[no-any-return]


class Called(Plain):
    def __call__(self, x: Tensor) -> Any:
        return super().__call__(x * 1)


class NotCopied(Plain):
    def __deepcopy__(self, memo: dict[int, Any]) -> NotCopied:
        return self


class KeepsItself(Plain):
    """Reaches its layers through a weak reference, which a copy shares."""

    def __init__(self) -> None:
        super().__init__()
        self.itself = weakref.ref(self)

    def body(self, x: Tensor) -> Tensor:
        return Plain.body(self.itself(), x)  # type: ignore[arg-type]


class ChoosesByClass(Plain):
    """Runs the layers whose classes it knows."""

    def body(self, x: Tensor) -> Tensor:
        for layer in (layer for block in self.blocks for layer in block):  # type: ignore[attr-defined]
            if type(layer) in (nn.Conv2d, nn.BatchNorm2d, nn.ReLU):
                x = layer(x)
        return x


class NamesOfNames(nn.Module):
    """Names of names: the same layers in a network, a dict of its parts, and as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = plain()
        self.parts = nn.ModuleDict({"net": self.net, "blocks": self.net.blocks})
        self.norm = self.net.blocks[1][1]  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.parts["blocks"][1][0](self.net.blocks[0](x))).relu()  # type: ignore[index]
        logits: Tensor = self.net.fc(self.parts["net"].blocks[2](x).mean((2, 3)))  # type: ignore[index, union-attr]
        return logits


class Noisy(Plain):
    """A little noise: logits change by 0.001."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x))


class AlwaysTraining(nn.BatchNorm2d):
    def train(self, mode: bool = True) -> AlwaysTraining:
        return super().train(True)  # type: ignore[return-value]


def changed(change: Callable[[Plain], object]) -> nn.Module:
    net = plain()
    result = change(net)
    return result if isinstance(result, nn.Module) else net


def of(cls: type[Plain], *arguments: Any) -> nn.Module:
    net = cls(*arguments)
    net.load_state_dict(plain().state_dict(), strict=False)
    return net.eval()


def closure(net: Plain) -> None:
    inner = net.forward
    net.forward = lambda x: inner(x)  # type: ignore[method-assign]


def inner_closure(net: Plain) -> None:
    inner = net.blocks[1].forward
    net.blocks[1].forward = lambda x: inner(x)


def autocast_closure(net: Plain) -> None:
    inner = net.forward

    @functools.wraps(inner)
    def forward(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return inner(x)

    net.forward = forward  # type: ignore[method-assign]


def partial_forward(net: Plain) -> None:
    net.forward = functools.partial(Plain.forward, net)  # type: ignore[method-assign]


def keeping_hook(net: Plain) -> None:
    """A hook that does the work of a layer of the network that it was made for."""
    net.blocks[2].register_forward_hook(lambda _module, inputs, _out: net.blocks[2][:](*inputs))


def plain_hook(net: Plain) -> None:
    net.blocks[0].register_forward_hook(lambda _module, _inputs, out: out + 0)
    net.register_forward_pre_hook(lambda _module, inputs: (inputs[0] * 1,))


def own_batch_norm(net: Plain) -> None:
    for block in net.blocks:
        new = OwnBatchNorm(6)
        new.load_state_dict(block[1].state_dict())  # type: ignore[index]
        block[1] = new  # type: ignore[index]


def always_training(net: Plain) -> None:
    for block in net.blocks:
        new = AlwaysTraining(6)
        new.load_state_dict(block[1].state_dict())  # type: ignore[index]
        block[1] = new  # type: ignore[index]


def in_place(net: Plain) -> None:
    for block in net.blocks:
        block[2] = nn.ReLU(inplace=True)  # type: ignore[index]


def backward_hooks(net: Plain) -> None:
    for block in net.blocks[1:]:
        block.register_full_backward_hook(lambda _module, _grad_in, _grad_out: None)


def forward_of_another(net: Plain) -> None:
    net.forward = plain().forward  # type: ignore[method-assign]


def shared_affine(net: Plain) -> None:
    """Two layers with one weight; not the same function under a method, so it must be refused there."""
    net.blocks[1][1].weight = net.blocks[2][1].weight  # type: ignore[index]


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 1


def parametrised_norm(net: Plain) -> None:
    parametrize.register_parametrization(net.blocks[0][1], "weight", Same())  # type: ignore[index]


def parametrised_convolution(net: Plain) -> None:
    """With the same gradients; weight_norm has the same logits, and other parameters that learn."""
    parametrize.register_parametrization(net.blocks[0][0], "weight", Same())  # type: ignore[index]


def compiled(called: bool) -> nn.Module:
    net = torch.compile(plain(), backend="eager")
    if called:
        net(torch.rand(2, 3, SIZE, SIZE))
    return net  # type: ignore[return-value]


def compiled_in_place(called: bool) -> nn.Module:
    net = plain()
    net.compile(backend="eager")
    if called:
        net(torch.rand(2, 3, SIZE, SIZE))
    return net


def compiled_forward(net: Plain) -> None:
    net.forward = torch.compile(net.forward, backend="eager")  # type: ignore[method-assign]


VARIANTS: dict[str, Callable[[], nn.Module]] = {
    "wrapped": Wrapped,
    "wrapped in Sequential": lambda: nn.Sequential(plain()),
    "a Classifier": lambda: Classifier(plain(), last="fc"),
    "two names": TwoNames,
    "one name each": OneNameEach,
    "in train mode": lambda: plain().train(),
    "frozen": lambda: plain().requires_grad_(False),
    "copied": lambda: copy.deepcopy(plain()),
    "pickled": lambda: pickle.loads(pickle.dumps(plain())),
    "channels last": lambda: plain().to(memory_format=torch.channels_last),  # type: ignore[call-overload]
    "double": lambda: plain().double(),
    "bfloat16": lambda: plain().bfloat16(),
    "half": lambda: plain().half(),
    "in place": lambda: changed(in_place),
    "backward hooks": lambda: changed(backward_hooks),
    "shallow copy": lambda: copy.copy(plain()),
    "own __call__": lambda: of(Called),
    "names of names": NamesOfNames,
    "not copied": lambda: of(NotCopied),
    "weak reference": lambda: of(KeepsItself),
    "forward of another": lambda: changed(forward_of_another),
    "layers by class": lambda: of(ChoosesByClass),
    "a little noise": lambda: of(Noisy),
    "always training": lambda: changed(always_training),
    "auxiliary head": Auxiliary,
    "own batch norm": lambda: changed(own_batch_norm),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm.convert_sync_batchnorm(plain()),
    "functional batch norm": lambda: of(Functional),
    "layers in a list": InList,
    "body in a list": Hidden,
    "bound forward": BoundForward,
    "partial forward": lambda: changed(partial_forward),
    "forward is a function": lambda: changed(closure),
    "forward of a block is a function": lambda: changed(inner_closure),
    "autocast around forward": lambda: changed(autocast_closure),
    "hook that keeps the network": lambda: changed(keeping_hook),
    "hooks": lambda: changed(plain_hook),
    "checkpointing": lambda: Checkpointed(3, False).eval(),
    "re-entrant checkpointing of two": lambda: Checkpointed(2, True).eval(),
    "re-entrant checkpointing": lambda: Checkpointed(3, True).eval(),
    "no_grad": lambda: WithoutGradient(torch.no_grad, True).eval(),
    "no_grad body": lambda: WithoutGradient(torch.no_grad, False).eval(),
    "inference_mode": lambda: WithoutGradient(torch.inference_mode, True).eval(),
    "inference_mode body": lambda: WithoutGradient(torch.inference_mode, False).eval(),
    "parametrised convolution": lambda: changed(parametrised_convolution),
    "parametrised norm": lambda: changed(parametrised_norm),
    "compiled": lambda: compiled(False),
    "compiled and called": lambda: compiled(True),
    "compiled in place": lambda: compiled_in_place(False),
    "compiled in place and called": lambda: compiled_in_place(True),
    "compiled forward": lambda: changed(compiled_forward),
    "scripted": lambda: torch.jit.script(plain()),
    "traced": lambda: torch.jit.trace(plain(), torch.rand(2, 3, SIZE, SIZE)),
    "fx": lambda: torch.fx.symbolic_trace(plain()),
    "DataParallel": lambda: nn.DataParallel(plain()),
}
"""Name → a function that makes the network."""
