"""Peak memory of one cell of every method on ResNet50 and ViT-B/16 at 224 pixels, 1,000 classes.

Stand-in weights (random) and random images: memory depends on neither. Every method has its settings for
ImageNet-C; each cell runs in a process of its own, through `ttabench.scoring.evaluate`, as in a sweep. Images
are few, so what grows with their number is made in full size instead: source features are random numbers, as
many as the method asks for. Statistics of layers and images of the source come from `--source` images.

Printed per cell: peak of the process (host), its peak before the method is made (network), peak of torch on a
GPU (device), seconds, and the reason where it failed. "above" marks a cell that needs more than the stated
memory. The exit code is 1 where a cell failed or is above.
Last line: `cells=<n> failed=<n> above=<n> worst_gb=<x>`.

Usage: python scripts/memory_224.py [--archs resnet50,vit_b_16] [--methods all] [--batch 4] [--images 8]
           [--source 64] [--device cpu] [--host-gb 8] [--device-gb 24] [--timeout 600]

A run of everything with --batch 2 --images 4 takes an estimated hour on one CPU core.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.malloc import keep_freed_memory
from ttabench.models.architectures.compact_transformers import vit_lite
from ttabench.nn import estimate_batch_norm
from ttabench.protocol import Protocol
from ttabench.registry import method as find_method
from ttabench.registry import methods
from ttabench.scoring import evaluate
from ttabench.source import SourceImages

CLASSES, SIZE, TRAINING_IMAGES = 1000, 224, 1_281_167


class Bottleneck(nn.Module):
    """x ↦ relu(shortcut(x) + three convolutions with batch norm): 1×1, 3×3, 1×1."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        shapes = ((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in shapes)
        self.shortcut = nn.Identity()
        if inputs != 4 * width or stride > 1:
            project = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(project, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(out))
            if number < 2:
                out = F.relu(out)
        return F.relu(out + self.shortcut(x))


class ResNet50(nn.Module):
    """He et al., CVPR 2016, table 1; the stride is in the 3×3 convolution, as in torchvision."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        stages, inputs = [], 64
        for depth, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
            blocks = []
            for number in range(depth):
                blocks.append(Bottleneck(inputs, width, stride if number == 0 else 1))
                inputs = 4 * width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean(dim=(2, 3)))


def network(arch: str) -> Classifier:
    torch.manual_seed(0)
    if arch == "resnet50":
        model = Classifier.wrap(ResNet50().eval(), SIZE)
        # Without its own statistics of activations a random network grows them from block to block.
        estimate_batch_norm(model, [torch.rand(4, 3, SIZE, SIZE)])
        return model.eval()
    if arch == "vit_b_16":
        net = vit_lite(
            CLASSES, SIZE, patch=16, dim=768, layers=12, heads=12, mlp_ratio=4, positions="learned"
        )
        return Classifier.wrap(net.eval(), SIZE).eval()
    raise SystemExit(f"error: no architecture '{arch}'; expected resnet50 or vit_b_16")


class StandIn(SourceImages):
    """Few images; features are random numbers, as many as of ImageNet's training set."""

    def features(self, classifier: Classifier, limit: int = 0) -> Tensor:
        self._serve("features", "features", limit)
        return torch.randn(limit or TRAINING_IMAGES, classifier.num_features, device=self._device)


def images(count: int, seed: int) -> Labelled:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, SIZE, SIZE, 3), np.uint8)
    return Labelled(pixels, rng.integers(0, CLASSES, count))


def host_peak() -> float:
    """GB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


def one(arch: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The memory of one cell, in this process."""
    torch.set_num_threads(1)
    keep_freed_memory()
    classifier = network(arch).to(options.device)
    cls = find_method(name)
    facts = classifier.architecture()
    settings = {**cls.for_dataset("imagenet-c", CLASSES), **cls.for_architecture(facts)}
    config = cls.Config(**settings)
    needs = cls.needs_of(config)
    if reason := needs.unmet(facts):
        return {"n/a": reason}
    before = host_peak()
    started = time.perf_counter()
    source = StandIn(lambda: images(options.source, 1).images, needs, options.device)
    torch.manual_seed(0)
    method = cls(classifier, config)
    method.prepare(source)
    method.reset()
    protocol = Protocol(mode=cls.mode, batch_size=options.batch)
    try:
        evaluate(method, images(options.images, 2), protocol, 0, options.device)
        problem = ""
    except Exception as failure:  # the report of what fails is the purpose
        problem = f"{type(failure).__name__}: {failure}".splitlines()[0]
    result = {"host": host_peak(), "before": before, "seconds": time.perf_counter() - started}
    if options.device.startswith("cuda"):
        result["device"] = torch.cuda.max_memory_allocated() / 1e9
    return {**result, "problem": problem}


def measured(arch: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, which memory and time may end."""
    given = [f"--{key}={getattr(options, key)}" for key in ("batch", "images", "source", "device")]
    command = [sys.executable, __file__, "--one", f"{arch}:{name}", *given]

    def confine() -> None:
        if options.device == "cpu":  # a GPU's driver reserves addresses without end
            most = int((2 * options.host_gb + 4) * 1e9)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.timeout, check=False, preexec_fn=confine
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"not done after {options.timeout} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"problem": f"exit code {done.returncode}: {last[:160]}"}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--archs", default="resnet50,vit_b_16", metavar="NAMES")
    add("--methods", default="all", metavar="NAMES")
    add("--batch", type=int, default=4)
    add("--images", type=int, default=8)
    add("--source", type=int, default=64)
    add("--device", default="cpu")
    add("--host-gb", type=float, default=8.0)
    add("--device-gb", type=float, default=24.0)
    add("--timeout", type=float, default=600.0, help="seconds per cell")
    add("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one.split(":"), options)))
        return 0
    names = list(methods()) if options.methods == "all" else options.methods.split(",")
    cells = failures = above = 0
    worst = 0.0
    print(f"batch {options.batch}, {options.images} images, {options.device}")
    print(f"{'GB':<26}{'host':>8}{'network':>9}{'device':>8}{'s':>8}")
    for arch in options.archs.split(","):
        for name in names:
            result = measured(arch, name, options)
            if "n/a" in result:
                print(f"{arch + ' ' + name:<26}     n/a: {result['n/a']}", flush=True)
                continue
            cells += 1
            remark = result["problem"]
            failures += bool(remark)
            if "host" in result:
                worst = max(worst, result["host"])
                too_much = result["host"] > options.host_gb or result.get("device", 0) > options.device_gb
                above += too_much
                remark = remark or ("above" if too_much else "")
            numbers = "".join(
                f"{result[key]:{width}.2f}" if key in result else f"{'–':>{width}}"
                for key, width in (("host", 8), ("before", 9), ("device", 8), ("seconds", 8))
            )
            print(f"{arch + ' ' + name:<26}{numbers}  {remark}", flush=True)
    print(f"cells={cells} failed={failures} above={above} worst_gb={worst:.2f}")
    return int(failures + above > 0)


if __name__ == "__main__":
    sys.exit(main())
