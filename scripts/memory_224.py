"""Peak memory of one cell of every method at 224 pixels, 1,000 classes.

The networks are ResNet50, ViT-B/16 and, where its package is installed (`pip install
efficientnet-lite-pytorch`), EfficientNet-Lite0.

Stand-in weights (random) and random images: memory depends on neither. Every method has its settings for
ImageNet-C. Each cell runs in a process of its own, through `ttabench.measure.scoring.evaluate`, as in a
sweep. A cell has one batch of `--batch` images, or as many images as a method collects before its first
update (RoTTA and SoTTA: 64); `--images` asks for more. The network is sure of its predictions, and filters of
images are
open, so that all images take part in the update; `backward` shows how many did. Offline methods make one
epoch: the next one needs the same memory.

Few images need less than many where memory grows with their number. That is measured in lines of its own,
with two of the batches of 40 images in which a sweep reads source images of this size:

source:features     features of source images
source:statistics   statistics of source images per location

In the cells, features of the source are random numbers, as many as the method asks for, and its other
statistics come from `--source` images. A method that asks for these needs the larger one of the two lines.
RMT and DPCore read source images in batches of a size of their own, and get one such batch at least.

Printed per cell: peak of the resident memory of the process (host), its peak before the method is made
(network), peak of torch on a GPU (device), images of backward passes, seconds, and the reason where it
failed. "above" marks a cell that needs more than the stated memory. The exit code is 1 where a cell failed or
is above. Last line: `cells=<n> failed=<n> above=<n> worst_gb=<x>`.

Usage: python scripts/memory_224.py [--archs resnet50,vit_b_16] [--methods all] [--batch 4] [--images 0]
           [--source 16] [--activations keep] [--device cpu] [--host-gb 16] [--device-gb 24] [--timeout 900]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from bench_suite import arguments
from torch import Tensor, nn
from torch.nn import functional as F

from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.errors import UserError, unknown
from ttabench.measure.any_network import PIXELS, SourceOfAnyNetwork
from ttabench.measure.image_stream import Part
from ttabench.measure.scoring import evaluate
from ttabench.method import Needs
from ttabench.method.settings import usual_settings
from ttabench.models.architectures.compact_transformers import vit_lite
from ttabench.models.recomputed_activations import recompute_activations
from ttabench.nn import estimate_batch_norm
from ttabench.observe.cost import Passes, count_passes
from ttabench.registry import method as find_method
from ttabench.registry import methods
from ttabench.sweep.option_table import ACTIVATIONS
from ttabench.system.malloc import keep_freed_memory

CLASSES, SIZE, TRAINING_IMAGES = 1000, 224, 1_281_167
LITE = "efficientnet_lite/lite0"
ARCHS = ("resnet50", "vit_b_16", LITE)
REQUESTS = ("source:features", "source:statistics")
COLUMNS = (
    ("host", 7, ".2f"), ("before", 9, ".2f"), ("device", 8, ".2f"), ("backward", 10, ""),
    ("seconds", 7, ".0f"),
)  # fmt: skip
OPEN: dict[str, dict[str, Any]] = {
    "deyo": {"plpd_limit": -1.0}, "poem": {"delayed_start": 0}, "rmt": {"warmup_images": 64},
}  # fmt: skip
"""Settings of methods that would leave random images out of their update. RMT makes one step of its warm-up,
which takes hours on all 50,000 images; a step needs the same memory as all of them."""


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
    """A network with random weights. Raises UserError for another name, or where a package is missing."""
    torch.manual_seed(0)
    if arch in ("resnet50", LITE):
        model = Classifier.wrap((ResNet50() if arch == "resnet50" else lite()).eval(), SIZE)
        # Without its own statistics of activations a random network grows them from block to block.
        estimate_batch_norm(model, [torch.rand(4, 3, SIZE, SIZE)])
        return make_sure(model.eval())
    if arch == "vit_b_16":
        net = vit_lite(
            CLASSES, SIZE, patch=16, dim=768, layers=12, heads=12, mlp_ratio=4, positions="learned"
        )
        return make_sure(Classifier.wrap(net.eval(), SIZE).eval())
    raise unknown("architecture", arch, ARCHS)


def lite() -> nn.Module:
    """EfficientNet-Lite0. Raises UserError without its package."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise UserError(f"{LITE} needs a package: pip install efficientnet-lite-pytorch") from None
    net: nn.Module = EfficientNet.from_name("efficientnet-lite0", num_classes=CLASSES)
    return net


@torch.no_grad()
def make_sure(model: Classifier) -> Classifier:
    """Scale the last layer so that predictions have a high probability, and differ from image to image."""
    z = model.features(torch.rand(4, 3, SIZE, SIZE))
    weight, centre = model.linear.weight, z.mean(0)
    weight *= 20 / ((z - centre) @ weight.T).std()
    model.linear.bias.copy_(-weight @ centre)
    return model


class StandIn(SourceOfAnyNetwork):
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
    """The memory of one cell, or of a request of source data, in this process."""
    torch.set_num_threads(1)
    keep_freed_memory()
    classifier = network(arch).to(options.device)
    if options.activations == "recompute":
        recompute_activations(classifier)
    if name in REQUESTS:
        return request(name, classifier, options.device)
    cls = find_method(name)
    facts = classifier.architecture()
    settings = {**usual_settings(cls, "imagenet-c", CLASSES, facts), **OPEN.get(name, {})}
    if "epochs" in {field.name for field in fields(cls.Config)}:
        settings["epochs"] = 1
    config = cls.Config(**settings)
    needs = cls.needs_of(config)
    if reason := needs.unmet(facts):
        return {"n/a": reason}
    collected = max(getattr(config, name, 0) for name in ("capacity", "update_every"))
    before, started = host_peak(), time.perf_counter()
    problem = ""
    try:
        whole = max(options.source, getattr(config, "source_batch_size", 0))
        source = StandIn(lambda: images(whole, 1).images, needs, options.device)
        torch.manual_seed(0)
        method = cls(classifier, config)
        method.prepare(source)
        method.reset()
        protocol = Protocol(mode=cls.mode, batch_size=options.batch)
        count = max(options.images, options.batch, collected)
        with count_passes() as passes:
            evaluate(method, Part(images(count, 2), protocol, 0), protocol, 0, options.device)
        if needs.gradient and not passes.backward:
            problem = "no image took part in an update"
    except Exception as failure:  # the report of what fails is the purpose
        problem = f"{type(failure).__name__}: {failure}".splitlines()[0]
        passes = Passes()
    return {
        **peaks(options.device), "before": before, "seconds": time.perf_counter() - started,
        "backward": passes.backward, "problem": problem,
    }  # fmt: skip


def request(name: str, classifier: Classifier, device: str) -> dict[str, Any]:
    """The memory of a request of source data, for two batches of it."""
    before, started = host_peak(), time.perf_counter()
    kind = name.removeprefix("source:")
    source = SourceOfAnyNetwork(
        lambda: images(2 * (PIXELS // SIZE**2), 1).images, Needs(source_data=kind), device
    )
    if kind == "features":
        source.features(classifier)
    else:
        source.norm_statistics(classifier, per_location=True)
    seconds = time.perf_counter() - started
    return {**peaks(device), "before": before, "seconds": seconds, "backward": 0, "problem": ""}


def peaks(device: str) -> dict[str, float]:
    """Peaks of memory so far, in GB."""
    gigabytes = {"host": host_peak()}
    if device.startswith("cuda"):
        gigabytes["device"] = torch.cuda.max_memory_allocated() / 1e9
    return gigabytes


def free_gb() -> float:
    """Free memory of the host: a cell is to fail before the machine runs out of it. inf where unknown."""
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024 / 1e9
    except (OSError, StopIteration):
        return float("inf")


def measured(arch: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, which memory and time may end."""
    given = [
        f"--{key}={getattr(options, key)}" for key in ("batch", "images", "source", "activations", "device")
    ]
    command = [sys.executable, __file__, "--one", f"{arch}:{name}", *given]

    def confine() -> None:
        if options.device == "cpu":  # a GPU's driver reserves addresses without end
            most = int((min(options.host_gb, 0.8 * free_gb()) + 3) * 1e9)  # 3: addresses without memory
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
    parser = arguments(__doc__)
    add = parser.add_argument
    add("--archs", default="resnet50,vit_b_16", metavar="NAMES")
    add("--methods", default="all", metavar="NAMES")
    add("--batch", type=int, default=4)
    add("--images", type=int, default=0)
    add("--source", type=int, default=16)
    add("--activations", default="keep", choices=ACTIVATIONS)
    add("--device", default="cpu")
    add("--host-gb", type=float, default=16.0)
    add("--device-gb", type=float, default=24.0)
    add("--timeout", type=float, default=900.0, help="seconds per cell")
    add("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        arch, _, name = options.one.partition(":")
        print(json.dumps(one(arch, name, options)))
        return 0
    names = [*REQUESTS, *methods()] if options.methods == "all" else options.methods.split(",")
    cells = failures = above = 0
    worst = 0.0
    print(
        f"batches of {options.batch} images, {options.device}, {options.host_gb:g} GB of host memory stated, "
        f"--activations {options.activations}"
    )
    print(f"{'GB':<28}{'host':>7}{'network':>9}{'device':>8}{'backward':>10}{'s':>7}")
    for arch in options.archs.split(","):
        for name in names:
            result = measured(arch, name, options)
            if "n/a" in result:
                print(f"{arch + ' ' + name:<28}  n/a: {result['n/a']}", flush=True)
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
                f"{result[key]:{width}{form}}" if key in result else f"{'–':>{width}}"
                for key, width, form in COLUMNS
            )
            print(f"{arch + ' ' + name:<28}{numbers}  {remark}", flush=True)
    print(f"cells={cells} failed={failures} above={above} worst_gb={worst:.2f}")
    return int(failures + above > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as problem:
        sys.exit(f"error: {problem}")
