"""Images per second of the adapters, and how far each is from its floor, measured in the same run.

A floor is the bare forward and backward passes that an algorithm cannot do without, through a plain copy
of the network: no loss, no optimiser, no thresholds, no views drawn. Floors, per batch:

    source, bn_stats   1 forward
    tent, eata, eta    1 forward + backward, gradients of the norm layers' affine parameters only
    rdumb, poem        the same; come (one row per host) the passes of its host
    roid, cmf          the same, and once more of the images of which they take a view
    asr                the same as tent; 1 forward of the source network
    spa                2 of them; 1 forward. Above its floor are two Fourier transforms of the images, and
                       random numbers for every frequency: they weigh more, the smaller the network
    tea                2 of them, 20 more for the images that it imagines, and 1 forward
    adacontrast        1 forward + backward, gradients of all parameters; 4 forward, 1 in eval mode
    sar                2 of them
    sotta              2 of them for every 64 images that arrived, on as many from the memory; 1 forward of
                       every image on arrival: its prediction, and whether the memory takes it, come from
                       there and from no pass of the update, which sees other images in another mode. A
                       second row, which is not in worst_floor_ratio, has the 2 of the update alone as floor
    cotta              1 forward + backward of the student, gradients of all parameters; 1 forward of the
                       anchor; 1 forward of the teacher, or where the anchor is unsure (a second row) 32
    neo, aqr, t3a      1 forward, with the stored statistics; lame the same
    medbn              1 forward. Medians and look-ups are no passes, so they are above these floors. Second
                       rows of medbn and aqr, which are not in worst_floor_ratio, add to the floor what the
                       method is defined by, once for each norm layer. medbn: `torch.median` of each channel.
                       That is torch's time, and no bound: numpy's partition takes about half of it. aqr: one
                       look-up of each value, with the places in the table given. That is a bound: the map is
                       a table, so each value is looked up, by whatever code
    shot               1 forward + backward, gradients of all parameters but the last layer's
    deyo               1 forward of the cut images; 1 forward + backward, gradients of the norm layers' affine
                       parameters but the top ones
    tca                offline, as in its paper: 1 forward of every image, with the stored statistics. The map
                       is found once, after 1,000 images, so it weighs ten times as much as on the 10,000 of
                       CIFAR-10-C. A second row, which is not in worst_floor_ratio, has the online form, which
                       is an addition to the paper: it finds the map after each batch
    actmad             1 forward + backward, gradients of all parameters; 1 forward; stored statistics
    ttac, coral        1 forward + backward, gradients of all parameters; 1 forward with stored statistics
    actmad_vit         1 forward + backward, gradients of the norm layers' affine parameters
    rem                3 forward + backward, gradients of the norm layers' affine parameters but the top
                       ones: with all tokens, and without 10 and 20 % of them
    dpcore             1 forward; 1 forward + backward with 8 prompts, gradients of these only: a batch of a
                       shift that is known. A batch of a new shift, a second row, which is not in
                       worst_floor_ratio, has 2 forward, and as many forward + backward as `steps`
    quantile           offline: 1 forward + backward of every image in every epoch, through the decorruptor,
                       all of whose gradients are taken, and the frozen classifier, on 200 images at most. An
                       epoch is the difference between six and three of them. A second row, which is not in
                       worst_floor_ratio, has ten epochs with all that is done once, such as the choice of
                       the start: less in proportion where images are more

Other methods get images per second alone. Untrained weights and random images, 32 pixels and 10 classes:
thresholds of the methods above are set so that every image counts and every pass is made. Preparing is not
timed. efficientnet_lite/lite0, resnet50 and vit_b_16 have 224 pixels and 1,000 classes, the settings of
methods for ImageNet, and 64 source images.

Adapter and floor take turns and swap places each time; the ratio is the median over the pairs, images per
second are the best of each. One thread is timed in CPU seconds, so that other work on the machine counts
less; several threads and a GPU, which is waited for, in wall-clock seconds. The process keeps
the memory it frees, as a worker does: pages fetched anew would cost now the one and now the other.

Usage: python scripts/bench_methods.py [--archs resnet18,cct_7_3x1] [--methods tent,cotta | all] [--width 64]
           [--batch 200] [--repeats 5] [--seconds 3] [--threads 1] [--device cpu]
           [--activations keep]

The full run takes an estimated hour and a quarter on one CPU core, most of it for CoTTA's 32 views on
cct_7_3x1; two thirds of that with --repeats 3. A minute and a half:
python scripts/bench_methods.py --batch 32 --width 16 --archs resnet18,cct_2_3x2_32
At 224 pixels:
python scripts/bench_methods.py --archs efficientnet_lite/lite0 --batch 16 --repeats 3 --methods source,tent
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from bench_suite import (
    ROWS,
    Timer,
    Work,
    arguments,
    as_in_a_worker,
    last_line,
    median_ratio,
    take_turns,
    worst,
)
from memory_224 import ARCHS as LARGE
from memory_224 import SIZE as LARGE_SIZE
from memory_224 import network as large
from torch import Tensor, nn

from ttabench import nn as tta
from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.measure.any_network import SourceOfAnyNetwork
from ttabench.measure.order_and_batches import Stream
from ttabench.measure.source_access import SourceImages
from ttabench.method import Method
from ttabench.method.settings import usual_settings
from ttabench.models.architectures.build import build
from ttabench.models.recomputed_activations import recompute_activations
from ttabench.nn.pixels import to_tensor
from ttabench.registry import method as find_method
from ttabench.registry import methods
from ttabench.sweep.option_table import ACTIVATIONS
from ttabench_methods.prompts import blocks_of
from ttabench_methods.quantile.decorruptor import Decorruptor

CLASSES, SIZE = 10, 32
SOURCE_IMAGES, LARGE_SOURCE_IMAGES = 256, 64
PROMPTS = 8  # DPCore's
FITTED = 200


@dataclass(frozen=True, kw_only=True)
class Floor:
    """Passes per batch.

    forwards, backwards  without gradients; with them, there and back.
    learns               the parameters whose gradients are taken; "lower norms" leaves `nn.top_norms` out,
                         and "features" the last layer.
    stored               normalise with the stored statistics, in place of the batch's.
    every                the passes are made once per so many images, on as many; 0 = once per batch.
    scored               forward passes of the batch itself, with the stored statistics, besides.
    decorruptor          the size of the one that the images go through first, and that is what learns.
    viewed               one more pass there and back, of as many images as the adapter takes a view of.
    masked               more passes there and back, each without such a share of a transformer's tokens.
    each_value           in every norm layer: medians of its inputs' channels, or a look-up of its outputs.
    """

    forwards: int = 0
    backwards: int = 0
    learns: Literal["norms", "lower norms", "features", "all", "decorruptor", "prompts"] = "norms"
    stored: bool = False
    every: int = 0
    scored: int = 0
    decorruptor: str = ""
    viewed: bool = False
    masked: tuple[float, ...] = ()
    each_value: Literal["", "median", "look-up"] = ""


@dataclass(frozen=True)
class Case:
    """A row: a method, its floor, and settings with which it makes every pass.

    epochs  above 0: offline, so many passes over the images.
    images  offline: so many, in batches; 0 = `FITTED` at most, in one batch.
    once    with what is done once; else the time is the difference to twice as many epochs.
    source  images that the method may see of the source.
    """

    method: str
    floor: Floor | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    counts: bool = True  # for the worst ratio
    epochs: int = 0
    images: int = 0
    once: bool = True
    source: int = SOURCE_IMAGES

    @property
    def label(self) -> str:
        return f"{self.method}, {self.note}" if self.note else self.method


KEEP_ALL = {"e0_factor": 2.0, "d_margin": 2.0}  # E₀ above ln C, ε above any cosine
PLAIN = Floor(forwards=1, stored=True)
NORMALISED = Floor(forwards=1)
STEP = Floor(backwards=1)
FEATURES = Floor(backwards=1, learns="all", scored=1)
SHARP = Floor(backwards=2, learns="lower norms")
UPDATE = Floor(backwards=2, learns="lower norms", every=64)
THROUGH = Floor(backwards=1, learns="decorruptor", stored=True, decorruptor="small")
# Random images may all look like one class; and the loss is to fall in every epoch, as it does on real ones.
POINTS = {"quantiles_per_class": 1000, "confident": 1.0, "lr": 1e-5}

CASES = (
    Case("source", PLAIN),
    Case("bn_stats", NORMALISED),
    Case("tent", STEP),
    Case("eata", STEP, {**KEEP_ALL, "fisher_images": 64}),
    Case("eta", STEP, KEEP_ALL),
    Case("sar", SHARP, {"e0_factor": 2.0, "reset_constant": 0.0}),
    Case("sotta", replace(UPDATE, scored=1), {"threshold": 0.0}),
    Case("sotta", UPDATE, {"threshold": 0.0}, "floor without scoring", counts=False),
    Case("cotta", Floor(forwards=2, backwards=1, learns="all"), {"threshold": 0.0}, "no views"),
    Case("cotta", Floor(forwards=33, backwards=1, learns="all"), {"threshold": 2.0}, "32 views"),
    Case("quantile", THROUGH, POINTS, "an epoch", epochs=3, once=False, source=1000),
    Case("quantile", THROUGH, POINTS, "10 epochs", counts=False, epochs=10, source=1000),
    Case("note", replace(UPDATE, backwards=1, learns="norms", scored=1)),
    Case("rmt", Floor(forwards=1, backwards=3, learns="all"), {"warmup_images": 0}),
    Case("adacontrast", Floor(forwards=3, backwards=1, learns="all", scored=1)),
    Case("tea", Floor(forwards=1, backwards=22)),
    Case("asr", replace(STEP, forwards=1), {**KEEP_ALL, "start": 1e-6}),
    Case("rem", Floor(backwards=1, learns="lower norms", masked=(0.1, 0.2))),
    Case(
        "dpcore",
        Floor(forwards=1, backwards=1, learns="prompts"),
        {"steps": 2, "threshold": 1e9},
        "known shift",
    ),
    Case(
        "dpcore",
        Floor(forwards=2, backwards=5, learns="prompts"),
        {"steps": 5, "threshold": 0.0},
        "new shift, 5 steps",
        counts=False,
    ),
    Case("spa", Floor(forwards=1, backwards=2)),
    Case("come", STEP),
    Case("come", STEP, {"host": "eata", **KEEP_ALL, "fisher_images": 64}, "host eata"),
    Case("come", SHARP, {"host": "sar", "e0_factor": 2.0, "reset_constant": 0.0}, "host sar"),
    Case("rdumb", STEP, KEEP_ALL),
    Case("poem", STEP, {"e0_factor": 2.0, "delayed_start": 0}),
    Case("roid", STEP, {"consistency": False}, "no view"),
    Case("roid", replace(STEP, viewed=True), {"lr": 0.0}, "one view"),
    Case("cmf", STEP, {"consistency": False}, "no view"),
    Case("cmf", replace(STEP, viewed=True), {"lr": 0.0}, "one view"),
    Case("neo", PLAIN),
    Case("aqr", PLAIN),
    Case("aqr", replace(PLAIN, each_value="look-up"), note="floor with look-ups", counts=False),
    Case("lame", PLAIN),
    Case("medbn", NORMALISED),
    Case("medbn", replace(NORMALISED, each_value="median"), note="floor with medians", counts=False),
    Case("shot", replace(STEP, learns="features")),
    Case("tca", PLAIN, note="offline, 1,000 images", epochs=1, images=1000),
    Case("tca", PLAIN, note="map fitted in each batch", counts=False),
    Case("t3a", PLAIN),
    Case("actmad", replace(FEATURES, stored=True)),
    Case("ttac", FEATURES, {"threshold": 0.0, "class_min": 1}),
    Case("coral", FEATURES),
    Case("actmad_vit", STEP, {"source_images": 64}),
    Case(
        "deyo",
        Floor(forwards=1, backwards=1, learns="lower norms"),
        {"entropy_factor": 2.0, "plpd_limit": -1.0},
    ),
)


class Bare:
    """The passes of a floor, through a copy of the classifier with torch's own layers."""

    def __init__(self, classifier: Classifier, floor: Floor, memory: Tensor) -> None:
        self.floor, self.memory, self.arrived = floor, memory, 0
        self.viewed = 0
        self.left = 1.0  # share of the tokens
        self.prompts: Tensor | None = None
        self.still = copy.deepcopy(classifier).eval().requires_grad_(False)
        self.net = copy.deepcopy(self.still)
        if not floor.stored:
            layer: Any
            for _, layer in tta.norm_modules(self.net, "batch"):
                layer.running_mean = layer.running_var = None  # so batch norm takes the batch's
        self.before = Decorruptor(floor.decorruptor) if floor.decorruptor else None
        if self.before is not None:
            self.before.to(memory.device)
        elif floor.learns in ("all", "features"):
            self.net.requires_grad_(True).linear.requires_grad_(floor.learns == "all")
        elif floor.learns == "prompts":
            self.learn_prompts()
        elif floor.backwards:
            tta.norm_affine(self.net, skip=tta.top_norms(self.net) if floor.learns == "lower norms" else ())

        if floor.masked:
            blocks_of(self.net)[0].register_forward_pre_hook(self.leave_out)
        for _, layer in tta.norm_modules(self.net):
            if floor.each_value == "median":
                layer.register_forward_pre_hook(medians)
            elif floor.each_value == "look-up":
                layer.register_forward_hook(look_up())

    def leave_out(self, _block: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The first tokens, as many as are left of those that are no class token."""
        tokens = inputs[0]
        return tokens[:, : 1 + int((tokens.shape[1] - 1) * self.left)], *inputs[1:]

    def learn_prompts(self) -> None:
        def add(_block: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            tokens = inputs[0]
            if not torch.is_grad_enabled():
                return inputs
            if self.prompts is None:
                shape = (PROMPTS, tokens.shape[2])
                self.prompts = torch.zeros(shape, device=tokens.device, requires_grad=True)
            return torch.cat([tokens, self.prompts.expand(len(tokens), -1, -1)], dim=1), *inputs[1:]

        blocks_of(self.net)[0].register_forward_pre_hook(add)

    def __call__(self, x: Tensor) -> None:
        with torch.no_grad():
            for _ in range(self.floor.scored):
                self.still(x)
        before, self.arrived = self.arrived, self.arrived + len(x)
        if every := self.floor.every:
            for _ in range(self.arrived // every - before // every):
                self.passes(self.memory)
        else:
            self.passes(x)

    def passes(self, x: Tensor) -> None:
        with torch.no_grad():
            for _ in range(self.floor.forwards):
                self.net(x)
        for _ in range(self.floor.backwards):
            (self.before or self.net).zero_grad()
            self.there_and_back(x if self.before is None else self.before(x))
        for share in self.floor.masked:
            self.left = 1 - share
            self.there_and_back(x)
        self.left = 1.0
        if self.viewed:
            self.there_and_back(x[: self.viewed])

    def there_and_back(self, x: Tensor) -> None:
        logits = self.net(x)
        torch.autograd.backward(logits, torch.ones_like(logits))


def medians(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    inputs[0].transpose(0, 1).flatten(1).median(dim=1)


def look_up() -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    """A hook that writes an entry of a table over every value.

    AQR's table has 1,024 entries for each channel. Where a value is in it is found the first time only.
    """
    entries = places = torch.empty(0)

    def hook(_layer: nn.Module, _inputs: tuple[Tensor, ...], out: Tensor) -> None:
        nonlocal entries, places
        if places.numel() != out.numel():
            dim = 1 if out.ndim == 4 else -1  # tokens have their channels last
            channels = torch.arange(out.shape[dim], device=out.device, dtype=torch.int)
            entries = torch.linspace(-3, 3, 1024, device=out.device).repeat(len(channels))
            first = 1024 * (channels[:, None, None] if dim == 1 else channels)
            places = in_memory((out * (1024 / 6) + 512).clamp(0, 1023).int() + first)
        torch.index_select(entries, 0, places, out=in_memory(out))

    return hook


def in_memory(x: Tensor) -> Tensor:
    """The values of a tensor without gaps, in the order of memory: channels may be last."""
    return x.as_strided((x.numel(),), (1,))


def images(count: int, device: str = "cpu", size: int = SIZE) -> Tensor:
    """Random pixels: (count, 3, size, size) in [0, 1]."""
    return to_tensor(pixels(count, size), device)


def pixels(count: int, size: int = SIZE) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)


def size_of(arch: str) -> int:
    return LARGE_SIZE if arch in LARGE else SIZE


def classifier(arch: str, width: int = 64) -> Classifier:
    """An untrained network; `width` is the ResNet18's."""
    if arch in LARGE:
        return large(arch)
    torch.manual_seed(0)
    name = f"resnet18_w{width}" if arch == "resnet18" else arch
    half = (0.5, 0.5, 0.5)
    return build(name, dataset="random", num_classes=CLASSES, image_size=SIZE, mean=half, std=half)


def prepared(case: Case, network: Classifier, device: str = "cpu", size: int = SIZE) -> Method[Any] | str:
    """The adapter, ready for batches, or the reason why it does not apply to this network."""
    cls, arch = find_method(case.method), network.architecture()
    settings = {**usual_settings(cls, "random", network.num_classes, arch), **case.settings}
    config = cls.Config(**settings)
    needs = cls.needs_of(config)
    if reason := needs.unmet(arch):
        return reason
    adapter = cls(network, config)
    if size == SIZE:
        adapter.prepare(SourceImages(lambda: pixels(case.source, size), needs, device))
    else:  # as in a sweep with a network from elsewhere
        adapter.prepare(SourceOfAnyNetwork(lambda: pixels(LARGE_SOURCE_IMAGES, size), needs, device))
    return adapter


@dataclass(frozen=True)
class Speed:
    """Images per second, and how many times its floor's seconds the adapter takes (nan: no floor)."""

    adapter: float
    floor: float = math.nan
    ratio: float = math.nan


Measure = Callable[[Sequence[Work]], ROWS]


def images_viewed(adapter: Any, x: Tensor) -> int:
    """Of how many images of a batch `adapter` takes a view, once it has seen a few such batches."""
    sizes, view = [0], adapter.view
    adapter.view = lambda chosen: (sizes.append(len(chosen)), view(chosen))[1]
    for _ in range(4):
        adapter.adapt(x)
    adapter.view = view
    return sizes[-1]


def speed(case: Case, adapter: Method[Any], network: Classifier, x: Tensor, measure: Measure) -> Speed:
    """How fast `adapter` is on batches like `x`, and on `network` the bare passes of its floor."""
    floor = case.floor
    if case.epochs:
        return fitting_speed(case, adapter, network, x, measure)
    calls = math.ceil(floor.every / len(x)) if floor and floor.every else 1  # enough for one update
    seen = calls * len(x)

    def several(step: Callable[[Tensor], object]) -> Work:
        return lambda: [step(x) for _ in range(calls)]

    if floor is None:
        return Speed(seen / min(measure([several(adapter.adapt)]))[0])
    bare = Bare(network, floor, images(floor.every, str(x.device), x.shape[-1]))
    if floor.viewed:
        bare.viewed = images_viewed(adapter, x)
    rows = measure([several(adapter.adapt), several(bare)])
    ours, least = (min(column) for column in zip(*rows, strict=True))
    return Speed(seen / ours, seen / least, median_ratio(rows))


def fitting_speed(
    case: Case, adapter: Method[Any], network: Classifier, x: Tensor, measure: Measure
) -> Speed:
    """The same of an offline method, `epochs` times over its images; images count each time."""
    assert case.floor is not None
    shown = images(case.images, str(x.device), x.shape[-1]) if case.images else x[:FITTED]
    pictures = shown.mul(255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    stream = Stream(pictures, np.arange(len(shown)), min(len(x), len(shown)), str(x.device))
    bare = Bare(network, case.floor, x[:FITTED])

    def fit(epochs: int) -> None:
        adapter.reset()
        adapter.fit(stream, epochs)

    works: list[Work] = [
        partial(fit, case.epochs),
        lambda: [bare(part) for part in shown.split(len(x)) * case.epochs],
    ]
    if not case.once:
        works.append(partial(fit, 2 * case.epochs))
    rows = [((row[2] - row[0]) if row[2:] else row[0], row[1]) for row in measure(works)]
    ours, least = (min(column) for column in zip(*rows, strict=True))
    seen = case.epochs * len(shown)
    return Speed(seen / ours, seen / least, median_ratio(rows))


def cases(names: str) -> Iterator[Case]:
    """The rows of some methods: comma-separated names, "all", or "" for those with a floor."""
    usual = list(dict.fromkeys(case.method for case in CASES if case.floor))
    wanted = {"": usual, "all": usual + [n for n in methods() if n not in usual]}
    for name in wanted[names] if names in wanted else names.split(","):
        yield from [case for case in CASES if case.method == name] or [Case(name)]


def run(options: argparse.Namespace) -> None:
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"no GPU for --device {options.device}; leave it out to measure on the CPU.")
    as_in_a_worker(options.threads)
    timer = Timer(options.device, options.threads)
    measure = partial(take_turns, timer=timer, repeats=options.repeats, least=options.seconds)
    wanted = list(cases(options.methods))
    networks = {arch: classifier(arch, options.width).to(options.device) for arch in options.archs.split(",")}
    for case in wanted:
        find_method(case.method)  # a wrong name is an error before anything is measured
    ratios = []
    for arch, network in networks.items():
        x = images(options.batch, options.device, size_of(arch))
        millions = network.architecture().parameters / 1e6
        print(f"{arch} ({millions:.2f} M parameters), {x.shape[-1]} px, batch {len(x)}, {options.device}")
        print(f"  {'images/s':<36}{'adapter':>9}{'floor':>9}{'ratio':>8}")
        adapted = copy.deepcopy(network)
        if options.activations == "recompute":
            recompute_activations(adapted)
        for case in wanted:
            adapter = prepared(case, adapted, options.device, size_of(arch))
            if isinstance(adapter, str):
                print(f"  {case.label:<36}      n/a: {adapter}")
                continue
            measured = speed(case, adapter, network, x, measure)
            numbers = f"{measured.adapter:9.1f}"
            if case.floor:
                numbers += f"{measured.floor:9.1f}{measured.ratio:8.3f}"
                ratios += [measured.ratio] if case.counts else []
            print(f"  {case.label:<36}{numbers}", flush=True)
    last_line(worst_floor_ratio=worst(ratios))


def main() -> int:
    parser = arguments(__doc__)
    add = parser.add_argument
    add(
        "--archs", default="resnet18,cct_7_3x1", metavar="NAMES", help="comma-separated (default %(default)s)"
    )
    add(
        "--methods",
        default="",
        metavar="NAMES",
        help='comma-separated, or "all" (default: those with a floor)',
    )
    add("--width", type=int, choices=(8, 16, 32, 64, 128), default=64, help="of resnet18 (default 64)")
    add("--batch", type=int, default=200, help="images per batch (default 200)")
    add("--repeats", type=int, default=5, help="pairs of measurements, at least (default 5)")
    add("--seconds", type=float, default=3.0, help="of measurements per row, at least (default 3)")
    add("--threads", type=int, default=1, help="of the CPU (default 1)")
    add("--device", default="cpu", help="e.g. cuda (default cpu)")
    add("--activations", default="keep", choices=ACTIVATIONS, help="of the adapters; floors always keep them")
    options = parser.parse_args()
    if min(options.batch, options.repeats, options.threads) < 1:
        parser.error("--batch, --repeats and --threads must be at least 1")
    try:
        run(options)
    except UserError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
