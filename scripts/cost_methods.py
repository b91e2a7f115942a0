"""What methods cost: seconds per epoch, peak memory and parameters, quantile matching beside a mean teacher.

A row per method, each measured in processes of its own, on a trained classifier (the sweep's; trained first
where there is none) and the first --limit images of one corruption:

    s/epoch      a pass over the images. Online: all of them adapted on and scored. Offline: an epoch of
                 fitting, from the difference between one epoch and several: what is done once is not in it.
    s/corruption one corrupted test set from beginning to end: what is done once, all epochs, scoring.
    peak MB      while adapting: classifier, method and activations, without images on file and libraries;
                 without the copy that `reset` goes back to. Resident on the CPU (Linux), allocated on a GPU.
    trained      parameters that an optimiser holds.
    held         parameters of all networks that the method keeps.

Quantile matching has a further row without its decorruptor, three offsets of the channels in its place: what
training anything through the classifier costs. Its loss with the memory bank is measured alone too, by
bench_quantile.py, for this case and for the paper's. What the paper reports stands below.

Batches are of --batch images for every method, mini-batches of an offline method too, unless it is asked for
as in quantile[minibatch=50]. One CPU thread is timed in CPU seconds; several, and a GPU, in seconds.

Usage: python scripts/cost_methods.py [--arch cct] [--dataset digits-c] [--device cuda] [--limit 0]
           [--methods 'source,tent,cotta,quantile,quantile[size=paper]'] [--csv cost_methods.csv]

As it stands it took four and a half minutes on one busy CPU core, mostly the paper's size of decorruptor.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import bench_quantile
import numpy as np
import torch
from bench_methods import Timer
from bench_quantile import RETURN_MEMORY, peak_resident, reset_peak
from torch import Tensor, nn

from ttabench.cell import Cell
from ttabench.cli._training import train_all
from ttabench.data.catalog import dataset as open_dataset
from ttabench.env import pick_device
from ttabench.errors import UserError
from ttabench.executors import inline
from ttabench.method import Method
from ttabench.method_texts import parse_method, split_list
from ttabench.models.resolve import resolve_model
from ttabench.registry import method as find_method
from ttabench.source import SourceImages
from ttabench.stream import Stream, arrange
from ttabench.sweep.grid import Grid
from ttabench.sweep.plan import Planned, Source, find_sources, plan
from ttabench.sweep.resolve import Sweep, resolve
from ttabench.sweep.train_sources import TrainJob

TEACHERS = ("cotta", "rotta")
ON_LINUX = Path("/proc/self/clear_refs").exists()
PAPER: tuple[dict[str, Any], ...] = (
    {"row": "quantile loss and bank", "ms_per_batch": 2, "peak_mb": 570, "batch": 128},
    {"row": "quantile, no decorruptor", "s_per_epoch": 1.44, "peak_mb": 765, "batch": 128},
    {"row": "quantile", "s_per_epoch": 2.03, "peak_mb": 1429, "trained": 6_200_000, "batch": 128},
)
"""Section "Runtime and memory cost analysis": CIFAR-100-C, ResNet18, 10,000 images, one H100."""
COLUMNS = ("row", "by", "mode", "images", "batch", "s_per_epoch", "ms_per_batch", "epochs",
           "s_per_corruption", "peak_mb", "trained", "held", "arch", "dataset", "device", "note")  # fmt: skip


class Offsets(nn.Module):
    """In a decorruptor's place: T(x) = x + b, one shift b per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(3, 1, 1))
        self.register_buffer("scale", torch.ones(3, 1, 1))
        self.register_buffer("offset", torch.zeros(3, 1, 1))

    def standardise(self, have: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor]) -> None:
        """Nothing is put before it."""

    def before(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


@dataclass(frozen=True)
class Work:
    """What one process measures: a cell's method, perhaps without its decorruptor."""

    cell: Cell
    device: str
    threads: int
    epochs: int
    bare: bool = False

    @property
    def label(self) -> str:
        return f"{self.cell.method}, no decorruptor" if self.bare else self.cell.label

    def to_json(self) -> str:
        return json.dumps({**vars(self), "cell": self.cell.to_json()})

    @classmethod
    def from_json(cls, text: str) -> Work:
        data = json.loads(text)
        return cls(**{**data, "cell": Cell.from_json(data["cell"])})


# ---- in a process of its own


@dataclass(frozen=True)
class Images:
    """What is read before anything is measured: the stream, and clean images where the method needs any."""

    stream: Stream
    source: SourceImages

    @classmethod
    def of(cls, work: Work) -> Images:
        cell, data = work.cell, open_dataset(work.cell.dataset)
        corrupted = data.corrupted(cell.corruption, cell.severity)
        n = min(cell.protocol.limit or len(corrupted), len(corrupted))
        order = arrange(cell.protocol.order, corrupted.labels[:n], cell.seed)
        batch, images = cell.protocol.batch_size, np.array(corrupted.images[:n])
        method = find_method(cell.method)
        needs = method.needs_of(method.Config(**dict(cell.config)))
        clean = np.array(data.train().images) if needs.source_data else np.empty(0, np.uint8)
        source = SourceImages(lambda: clean, needs, work.device)
        return cls(Stream(images, order, batch, work.device), source)


def prepared(work: Work, source: SourceImages, *, resettable: bool) -> Method[Any]:
    """The method, ready to adapt; with or without the copy of its state that `reset` goes back to."""
    cell = work.cell
    loaded = resolve_model(cell.arch, open_dataset(cell.dataset)).recall(cell.checkpoint)
    assert loaded is not None, f"{cell.arch} was found a moment ago"
    cls = find_method(cell.method)
    torch.manual_seed(cell.seed)
    method = cls(loaded.classifier.to(work.device).eval(), cls.Config(**dict(cell.config)))
    (method.prepare if resettable else method.setup)(source)
    if work.bare:
        without_decorruptor(method)
    return method


def without_decorruptor(method: Any) -> None:
    offsets = Offsets().to(next(method.decorruptor.parameters()).device)
    method.decorruptor = offsets
    method.optimizer = torch.optim.Adam(offsets.parameters(), method.config.lr)


def measure_time(work: Work) -> dict[str, float]:
    """Seconds of an epoch and of a whole corruption, and what the method keeps."""
    images = Images.of(work)
    stream, method = images.stream, prepared(work, images.source, resettable=True)
    timer = Timer(work.device, work.threads)
    counted = {"trained": trained(method), "held": held(method)}

    def timed(step: Callable[[], object]) -> float:
        method.reset()
        if work.bare:
            without_decorruptor(method)
        return timer(step)

    def online() -> None:
        for x in stream:
            method.adapt(x)

    def score() -> None:
        for x in stream:
            method.predict(x)

    timed(lambda: method.adapt(next(iter(stream))))  # the first time costs more
    if work.cell.protocol.mode == "online":
        epoch = statistics.median(timed(online) for _ in range(work.epochs))
        return {**counted, "s_per_epoch": epoch, "epochs": 1, "s_per_corruption": epoch}
    once = timed(lambda: method.fit(stream, 1))
    epoch = (timed(lambda: method.fit(stream, 1 + work.epochs)) - once) / work.epochs
    epochs = work.cell.protocol.epochs or getattr(method.config, "epochs", 1)
    whole = once + (epochs - 1) * epoch + timed(score)
    return {**counted, "s_per_epoch": epoch, "epochs": epochs, "s_per_corruption": whole}


def measure_memory(work: Work) -> dict[str, float]:
    """The peak while adapting, in MB."""
    images, cuda = Images.of(work), work.device.startswith("cuda")
    stream = images.stream
    warm_up(work.device)
    before = 0 if cuda else reset_peak()
    method = prepared(work, images.source, resettable=False)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    else:
        reset_peak()
    if work.cell.protocol.mode == "online":
        for x in stream:
            method.adapt(x)
    else:
        method.fit(stream, 1)
        for x in stream:
            method.predict(x)
    peak = torch.cuda.max_memory_allocated() if cuda else peak_resident()
    return {"peak_mb": (peak - before) / 1e6}


def warm_up(device: str) -> None:
    """Code and buffers of the libraries are loaded on first use; they belong to no method."""
    layer = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    layer.to(device)
    loss = layer(torch.rand(4, 3, 8, 8, device=device)).softmax(-1).square().sum()
    optimizer = torch.optim.Adam(layer.parameters())
    torch.autograd.backward(loss)
    optimizer.step()


def optimizers(method: Method[Any]) -> Iterator[torch.optim.Optimizer]:
    """Its own, and those of its parts."""
    for part in vars(method).values():
        for found in (part, getattr(part, "optimizer", None)):
            if isinstance(found, torch.optim.Optimizer):
                yield found


def trained(method: Method[Any]) -> int:
    parameters = (p for o in optimizers(method) for group in o.param_groups for p in group["params"])
    return sum({id(p): p.numel() for p in parameters}.values())


def held(method: Method[Any]) -> int:
    networks = (part for part in vars(method).values() if isinstance(part, nn.Module))
    return sum({id(p): p.numel() for network in networks for p in network.parameters()}.values())


# ---- in the process that asks


def child(arguments: Sequence[str | Path], settings: Mapping[str, str]) -> dict[str, float]:
    """What a process of its own measured. Raises UserError where it ended otherwise."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        check=False, capture_output=True, text=True, env={**os.environ, **settings},
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(f"a measurement failed: {last}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(work: Work) -> dict[str, Any]:
    """A row of the table: time and memory, apart, since giving memory back at once takes time."""
    found: dict[str, Any] = child([__file__, "--time", work.to_json()], {})
    if ON_LINUX or work.device.startswith("cuda"):
        found |= child([__file__, "--memory", work.to_json()], RETURN_MEMORY)
    return found | {"ms_per_batch": 1e3 * found["s_per_epoch"] / updates(work)}


def updates(work: Work) -> int:
    """Updates per epoch: the batches, or what an offline method cuts them into."""
    protocol, data = work.cell.protocol, open_dataset(work.cell.dataset).test()
    n = min(protocol.limit or len(data), len(data))
    part = dict(work.cell.config).get("minibatch") if protocol.mode == "offline" else None
    sizes = [min(protocol.batch_size, n - start) for start in range(0, n, protocol.batch_size)]
    return sum(math.ceil(size / part) for size in sizes) if isinstance(part, int) else len(sizes)


def measure_module(settings: Mapping[str, int], device: str, threads: int) -> dict[str, float]:
    """ms per batch and MB of the loss with its bank, by bench_quantile.py, whose defaults are the paper's."""
    given = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    command = [
        bench_quantile.__file__,
        "--only",
        "ours",
        "--device",
        device,
        "--threads",
        str(threads),
        *given,
    ]
    found = {"ms_per_batch": child(command, {})["ms"]}
    if ON_LINUX or device.startswith("cuda"):
        found["peak_mb"] = child(command, RETURN_MEMORY)["mb"]
    return found


def grid_of(options: argparse.Namespace) -> Grid:
    """One classifier on one corruption; mini-batches as large as batches where a method has them."""
    methods = tuple(_with_minibatch(text, options.batch) for text in split_list(options.methods))
    return Grid(
        methods=methods, archs=(options.arch,), datasets=(options.dataset,),
        corruptions=(options.corruption,), severities=(options.severity,), mode=options.mode,
        batch_size=options.batch, limit=options.limit,
        checkpoint=options.checkpoint, normalize=options.normalize,
    )  # fmt: skip


def _with_minibatch(text: str, batch: int) -> str:
    """A method's text with mini-batches as large as batches, where it has them and names none."""
    name, settings = parse_method(text)
    if "minibatch" in {f.name for f in dataclasses.fields(find_method(name).Config)}:
        settings.setdefault("minibatch", str(batch))
    inside = ",".join(f"{key}={value}" for key, value in settings.items())
    return f"{name}[{inside}]" if inside else name


def classifier_of(sweep: Sweep, device: str) -> Source:
    """The sweep's classifier, trained if need be."""
    if missing := [model for model in sweep.models if not model.ready]:
        say("no source classifier yet: training")
        train_all([TrainJob(model.name, model.dataset.name, device) for model in missing], inline.run, 0)
    (source,) = find_sources(sweep.models, device)
    return source


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rows_of(planned: Sequence[Planned], options: argparse.Namespace, device: str) -> Iterator[dict[str, Any]]:
    """Every method, then the first quantile matching without its decorruptor."""
    works = [(Work(p.cell, device, options.threads, options.epochs), p.unmet) for p in planned]
    bare = [dataclasses.replace(work, bare=True) for work, _ in works if work.cell.method == "quantile"][:1]
    works += [(work, "") for work in bare]
    for number, (work, unmet) in enumerate(works, start=1):
        protocol = work.cell.protocol
        row = {"row": work.label, "mode": protocol.mode, "batch": protocol.batch_size}
        if unmet:
            yield {**row, "note": f"n/a: {unmet}"}
            continue
        say(f"{number}/{len(works)} {work.label} …")
        yield {**row, **measure(work)}


def modules_of(
    planned: Sequence[Planned], target: Source, images: int, options: argparse.Namespace, device: str
) -> Iterator[dict[str, Any]]:
    """The quantile loss with its bank, as the first quantile matching here has it, and as the paper."""
    for config in [dict(p.cell.config) for p in planned if p.cell.method == "quantile"][:1]:
        points = int(str(config["quantiles_per_class"])) * target.num_classes
        case = {"features": target.architecture.num_features, "batch": options.batch, "points": points,
                "source": max(images, points)}  # fmt: skip
        for where, settings in (("here", case), ("paper's case", {})):
            say(f"quantile loss and bank, {where} …")
            of = {"source": 10_000, "features": 512, "batch": 128, "points": 1000, **settings}
            note = f"{of['source']} images, k = {of['features']}, Q = {of['points']}"
            found = measure_module(settings, device, options.threads)
            row = {"row": f"quantile loss and bank, {where}", "batch": of["batch"], **found}
            yield {**row, "images": of["source"], "note": note}


def run(options: argparse.Namespace) -> None:
    device, file = pick_device(options.device), Path(options.csv)
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UserError(f"{file} cannot be written; choose another --csv.")
    grid = grid_of(options)
    sweep = resolve(grid)
    target = classifier_of(sweep, device)
    planned = plan(sweep, [target])
    data = open_dataset(options.dataset).test()
    images = min(options.limit or len(data), len(data))
    common = {"by": "measured", "images": images, "arch": options.arch, "dataset": options.dataset,
              "device": torch.cuda.get_device_name() if device.startswith("cuda") else device}  # fmt: skip
    reported = {
        "by": "paper",
        "images": 10_000,
        "arch": "resnet18",
        "dataset": "cifar100-c",
        "device": "H100",
    }
    size = target.architecture.parameters / 1e6
    print(
        f"{options.arch} ({size:.2f} M parameters) on {options.dataset}, {images} images, {common['device']}"
    )
    print(heading(), flush=True)
    rows: list[dict[str, Any]] = []
    ours = chain(rows_of(planned, options, device), modules_of(planned, target, images, options, device))
    for row in chain(({**common, **row} for row in ours), ({**reported, **row} for row in PAPER)):
        print(line(row), flush=True)
        rows.append(row)
    print("paper: what it reports of ResNet18 on CIFAR-100-C with an H100")
    write(file, rows)
    print(conclusion(rows))


def heading() -> str:
    return (
        f"{'':<46}{'batch':>6}{'s/epoch':>9}{'ms/batch':>9}{'epochs':>7}{'s/corruption':>13}"
        f"{'peak MB':>9}{'trained':>11}{'held':>12}"
    )


def line(row: Mapping[str, Any]) -> str:
    def number(key: str, width: int, form: str) -> str:
        return f"{row[key]:{width}{form}}" if row.get(key) is not None else "–".rjust(width)

    label = f"paper: {row['row']}" if row["by"] == "paper" else row["row"]
    if str(row.get("note", "")).startswith("n/a"):
        return f"{label:<46}  {row['note']}"
    return (
        f"{label:<46}{number('batch', 6, 'd')}{number('s_per_epoch', 9, '.3f')}"
        f"{number('ms_per_batch', 9, '.2f')}{number('epochs', 7, '.0f')}"
        f"{number('s_per_corruption', 13, '.2f')}{number('peak_mb', 9, '.1f')}"
        f"{number('trained', 11, ',.0f')}{number('held', 12, ',.0f')}"
    )


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows as CSV, numbers to four digits. Raises UserError where they cannot be written."""
    short = [{k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    try:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(short)
    except OSError as problem:
        raise UserError(f"{path} cannot be written ({problem.strerror}); choose another --csv.") from None


def conclusion(rows: Sequence[Mapping[str, Any]]) -> str:
    """Ratios, as key=value: with a decorruptor to without, and to the mean teacher."""
    measured = {str(row["row"]): row for row in rows if row["by"] == "measured"}

    def first(names: Sequence[str]) -> Mapping[str, Any]:
        return next((r for label, r in measured.items() if label.partition("[")[0] in names), {})

    def ratio(key: str, over: Mapping[str, Any], under: Mapping[str, Any]) -> str:
        return f"{over[key] / under[key]:.2f}" if over.get(key) and under.get(key) else "nan"

    ours, bare, teacher = first(["quantile"]), first(["quantile, no decorruptor"]), first(TEACHERS)
    module = first(["quantile loss and bank, here"])
    return " ".join([
        f"decorruptor_time_ratio={ratio('s_per_epoch', ours, bare)}",
        f"decorruptor_memory_ratio={ratio('peak_mb', ours, bare)}",
        f"epoch_to_teacher={ratio('s_per_epoch', ours, teacher)}",
        f"memory_to_teacher={ratio('peak_mb', ours, teacher)}",
        f"module_ms={module.get('ms_per_batch', math.nan):.2f}",
        f"module_mb={module.get('peak_mb', math.nan):.1f}",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default, text in (
        ("arch", "resnet18", "as for ttabench sweep"),
        ("dataset", "digits-c", "as for ttabench sweep"),
        ("checkpoint", "", "a weights file for the architecture"),
        ("normalize", "", "what it normalises with"),
        ("corruption", "gaussian_noise", "of the images"),
        ("mode", "native", "native, online or offline"),
        ("methods", "source,tent,cotta,quantile,quantile[size=paper]", "as for ttabench sweep"),
        ("device", "auto", "auto, cpu, cuda …"),
        ("csv", "cost_methods.csv", "where the table goes"),
    ):
        parser.add_argument(f"--{name}", default=default, help=f"{text} (default {default or 'none'})")
    for name, number, text in (
        ("severity", 5, "of the corruption"),
        ("batch", 128, "images per batch"),
        ("limit", 256, "only the first images of the test set, 0 = all"),
        ("epochs", 1, "timed"),
        ("threads", 1, "of the CPU"),
    ):
        parser.add_argument(f"--{name}", type=int, default=number, help=f"{text} (default {number})")
    for what in ("time", "memory"):
        parser.add_argument(f"--{what}", metavar="WORK", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.batch, options.epochs, options.threads) < 1 or options.limit < 0:
        parser.error("--batch, --epochs and --threads must be at least 1, --limit at least 0")
    try:
        if text := options.time or options.memory:
            work = Work.from_json(text)
            torch.set_num_threads(work.threads)
            print(json.dumps((measure_time if options.time else measure_memory)(work)))
        else:
            run(options)
    except UserError as problem:
        parser.exit(2, f"error: {problem}\n")


if __name__ == "__main__":
    main()
