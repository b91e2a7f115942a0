"""Residual networks for small images.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016. :func:`resnet18` is
the four-stage network with a stem for small images, its parameters named as in torchvision;
:func:`cifar_resnet` is the paper's own three-stage family for CIFAR (section 4.2, option-A shortcuts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

Shortcut = Callable[[int, int, int], nn.Module]


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Option B: a strided 1×1 convolution with batch norm."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class ZeroPadding(nn.Module):
    """Option A: every `stride`-th pixel, with zero channels added on both sides; no parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """x ↦ relu(shortcut(x) + bn(conv(relu(bn(conv(x))))))"""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        self.downsample = None if same else shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Stem, stages, global average pooling, linear layer. Each stage after the first halves the resolution.

    depths, widths   blocks and channels of each stage.
    head             the name of the linear layer (published weights differ).
    """

    def __init__(
        self, depths: Sequence[int], widths: Sequence[int], num_classes: int, shortcut: Shortcut, head: str
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(3, widths[0])
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.stages = [f"layer{i}" for i in range(1, len(depths) + 1)]
        inputs = widths[0]
        for i, (stage, depth, width) in enumerate(zip(self.stages, depths, widths, strict=True)):
            strides = [1 if i == 0 else 2] + [1] * (depth - 1)
            blocks = []
            for stride in strides:
                blocks.append(BasicBlock(inputs, width, stride, shortcut))
                inputs = width
            self.add_module(stage, nn.Sequential(*blocks))
        self.head = head
        self.add_module(head, nn.Linear(inputs, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        logits: Tensor = self.get_submodule(self.head)(x.mean(dim=(2, 3)))
        return logits


def resnet18(num_classes: int, width: int = 64) -> ResNet:
    """ResNet18 with a 3×3 stem of stride 1 and no max-pool; `width` channels in the first stage."""
    widths = [width << stage for stage in range(4)]
    return ResNet((2, 2, 2, 2), widths, num_classes, projection, head="fc")


def cifar_resnet(num_classes: int, depth: int) -> ResNet:
    """ResNet20, 32, 44, 56, 110: three stages of (depth − 2) / 6 blocks with 16, 32, 64 channels."""
    blocks, rest = divmod(depth - 2, 6)
    if blocks < 1 or rest:
        raise ValueError(f"depth is {depth}; expected 6n + 2 with n ≥ 1")
    return ResNet((blocks,) * 3, (16, 32, 64), num_classes, ZeroPadding, head="linear")
