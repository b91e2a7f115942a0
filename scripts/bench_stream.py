"""Memory over a long stream, and whether a stream that was killed goes on bit for bit.

Each method runs over digits-c, its fifteen corruptions again and again, on a tiny network that is trained
here. Three processes per method:

    whole      the stream from beginning to end; resident memory after 5 % and at the end
    killed     the same, killed by SIGKILL after --kill-at of the images
    resumed    the same again: it goes on from the saved state

flat      memory at the end over memory after 5 %
redone    images that were computed a second time, and the seconds that they took
same      whether `resumed` and `whole` are equal in every bit: which images are right, windows, calibration,
          label-free scores, counted passes

Usage: python scripts/bench_stream.py [--images 1000000] [--methods source,tent] [--batch 200]
           [--seconds 30] [--kill-at 0.7] [--folder DIR]

The full run takes about 20 minutes on one CPU core. Exit code 1 if memory grew by more than 5 % or a resumed
stream differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from bench_suite import arguments, as_in_a_worker
from torch import nn

from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.digits import Digits
from ttabench.measure import scoring
from ttabench.measure.source_access import SourceImages
from ttabench.measure.streams.checkpoint import Checkpoint
from ttabench.measure.streams.images import corrupted_parts
from ttabench.method.settings import make_config
from ttabench.nn.pixels import to_tensor
from ttabench.observe.accuracy_windows import windows
from ttabench.observe.cost import count_passes
from ttabench.observe.label_free_scores import Collected
from ttabench.registry import method as find_method
from ttabench.run.cell_images import giving_back

FLAT = 1.05


class Tiny(nn.Module):
    """Two convolutions with batch norm; 6,474 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.fc = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(self.body((x - 0.21) / 0.27))
        return out


def train(to: Path) -> None:
    """Train the network on clean digits for a few seconds."""
    torch.manual_seed(0)
    net, data = Tiny(), Digits().train()
    x, y = to_tensor(data.images), torch.from_numpy(data.labels)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(12):
        for chosen in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
            optimizer.step()
    torch.save(net.state_dict(), to)


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def follow(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Run one method over the stream; from a saved state if there is one. The process is set as a worker."""
    as_in_a_worker()
    net, data = Tiny(), Digits()
    net.load_state_dict(torch.load(options.folder / "tiny.pt", weights_only=True))
    classifier = Classifier(net.eval(), last="fc")
    cls = find_method(name)
    config = make_config(cls, {}, cls.for_architecture(classifier.architecture()))
    method = cls(classifier, config)
    method.prepare(SourceImages(lambda: data.train().images, cls.needs_of(config), "cpu", {}))
    method.reset()
    rounds = -(-options.images // (len(CORRUPTIONS) * len(data.test())))
    protocol = Protocol(batch_size=options.batch, reset="continual", stream=f"recurring({rounds})")
    stream = corrupted_parts(data, CORRUPTIONS, 5, protocol, seed=0)
    memory, began = dict[int, int](), time.monotonic()
    first = 0

    def report(seen: int, scored: int, right: int) -> None:
        nonlocal first
        first = first or seen
        share = 20 * seen // stream.total
        if share not in memory:
            memory[share] = resident()
            print(json.dumps({"seen": seen}), flush=True)

    checkpoint = Checkpoint(options.folder / f"{name}.npz", {"method": name}, options.seconds)
    collected = Collected()
    with count_passes() as passes:
        checkpoint.beside = {"collected": collected, "passes": passes}
        kept = giving_back(report, stream.scored)
        seen = scoring.evaluate(method, stream, protocol, 0, "cpu", kept, (), collected.add, checkpoint)
    checkpoint.remove()
    result = {
        "accuracy": seen.accuracy, "windows": windows(seen.correct), "calibration": seen.calibration,
        "correct": hashlib.sha256(seen.correct.tobytes()).hexdigest(), "alarm": seen.alarm,
        "scores": collected.scores(), "passes": dataclasses.astuple(passes)[:2],
    }  # fmt: skip
    start, end = memory.get(1, 0), memory[max(memory)]
    return {
        "result": result, "images": stream.total, "first": first, "start": start, "end": end,
        "seconds": time.monotonic() - began,
    }  # fmt: skip


def child(options: argparse.Namespace, name: str, kill_at: float = 0.0) -> dict[str, Any]:
    """What a separate process measured; {"seen": images} if it was killed."""
    command = [
        sys.executable, __file__, "--child", name, "--images", str(options.images),
        "--batch", str(options.batch), "--seconds", str(options.seconds), "--folder", str(options.folder),
    ]  # fmt: skip
    last: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            if kill_at and last.get("seen", 0) >= kill_at * options.images:
                process.send_signal(signal.SIGKILL)
                break
    if not kill_at and process.returncode:
        raise SystemExit(f"the process of {name} ended with exit code {process.returncode}")
    return last


def compare(options: argparse.Namespace, name: str) -> bool:
    """Print what was measured of one method; whether it is as it should be."""
    whole = child(options, name)
    killed = child(options, name, options.kill_at)
    resumed = child(options, name)
    same = whole["result"] == resumed["result"]
    growth = whole["end"] / whole["start"] if whole["start"] else float("nan")
    redone = killed["seen"] - (resumed["first"] - options.batch)
    rate = whole["images"] / whole["seconds"]
    print(
        f"{name}: {whole['images']:,} images in {whole['seconds']:.0f} s, "
        f"accuracy {whole['result']['accuracy']:.2f} %\n"
        f"  memory {whole['start'] / 1e6:.1f} MB after 5 %, {whole['end'] / 1e6:.1f} MB at the end: "
        f"flat={growth:.4f}\n"
        f"  killed after {killed['seen']:,} images or more, went on from image "
        f"{resumed['first'] - options.batch:,}: redone={max(0, redone):,} ({max(0, redone) / rate:.0f} s)\n"
        f"  same={same}"
    )
    return same and growth <= FLAT and resumed["first"] > options.batch


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--images", type=int, default=1_000_000, help="of the stream, rounded up (default 1000000)"
    )
    parser.add_argument("--methods", default="source,tent", help="names, separated by commas")
    parser.add_argument("--batch", type=int, default=200, help="images per batch (default 200)")
    parser.add_argument("--seconds", type=float, default=30.0, help="between two saved states (default 30)")
    parser.add_argument("--kill-at", type=float, default=0.7, help="share of the stream (default 0.7)")
    parser.add_argument("--folder", type=Path, help="for states and weights (default a temporary one)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(follow(options, options.child)), flush=True)
        return
    with tempfile.TemporaryDirectory() as temporary:
        options.folder = options.folder or Path(temporary)
        options.folder.mkdir(parents=True, exist_ok=True)
        train(options.folder / "tiny.pt")
        fine = []
        for name in options.methods.split(","):
            (options.folder / f"{name}.npz").unlink(missing_ok=True)
            fine.append(compare(options, name))
            (options.folder / f"{name}.npz").unlink(missing_ok=True)
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
