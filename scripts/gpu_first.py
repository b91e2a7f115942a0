"""The first half hour of a GPU: the paper's networks on CIFAR-10, step by step, within a time limit.

Steps, in this order: `probe` (see gpu_probe.py), `data` (the corrupted test images), `train` (the source
classifiers), `sweep` (what is worth most first). Each goes on where it was stopped. After each, the results
are packed into --out. All other state is in --state, which has to outlive the call: not a folder that is
copied anew each time. Exit code 1 if a command failed; not if the time was over.

    python scripts/gpu_first.py --test cifar10-test.npz --train cifar10-train.npz --frost frost \
        --state /tmp/state --out out --seconds 580

The step `weights`, which runs where it is named, packs the classifiers too. On another machine, whose --state
is empty, `--before FOLDER` goes on from what has come back in --out. With the classifiers, only the images
are made again. Without them, they are trained again: on a GPU they come out different, and all cells are
measured again.

`--scale 0.01` rehearses all steps on any machine: a hundredth of the images, two corruptions, one epoch. With
`--archs resnet18_w8` it takes a minute or two of a core. `--datasets NAME` takes a dataset that is there, and
makes none. The npz files hold `images` (N, 32, 32, 3) uint8 and `labels` (N,).

`--shards FOLDER` takes the place of both npz files, where these are too large to be carried. `test.webp`,
`train-1.webp` … are lossless mosaics of tiles of 32 × 32 pixels, row by row. `labels.npz` has the labels
`test` and `train` of all tiles. `exact.npz`, if it is there, has tiles to replace (see real_cifar.py). All
that comes is kept in --state, so the files may come in several calls; `data` begins when none is missing.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from began import BEGAN  # before torch, which a fresh machine reads for long
from bench_suite import arguments
from gpu_probe import MINIBATCH, ONLINE
from PIL import Image
from real_cifar import read_split

from ttabench.data.catalog import dataset
from ttabench.data.dataset import Labelled
from ttabench.data.fetch.extract import unpack
from ttabench.data.files.array_files import open_npz, save_npz
from ttabench.errors import UserError
from ttabench.models.resolve import resolve_trainable
from ttabench.system.files import replace_file, replacing

TTABENCH = (sys.executable, "-c", "from ttabench.cli import main; main()")
PROBE = Path(__file__).with_name("gpu_probe.py")
STEPS = ("probe", "data", "train", "sweep")
PACKED = {"results": "results", "weights": "cache/models"}  # folders of the state
RETRAINED = (
    "classifiers that were trained are trained again, and where they come out different, all cells are "
    "measured again. The step weights packs them, on the machine that has them."
)
PAPER = f"quantile_paper[minibatch={MINIBATCH}]"
NAME = "cifar10-own"
PART = 15_000_000  # bytes: the parts of a packed folder
TILE = 32  # pixels
PROBES = 0.3  # of the time of a call: usually it needs less
GRACE = 20.0  # seconds in which a command that gets SIGTERM stores what it has


class Runner:
    """Runs commands until the time is over. What a command had then is stored, and the next call goes on."""

    def __init__(self, given: argparse.Namespace, began: float | None = None) -> None:
        self.given = given
        self.ends = (time.monotonic() if began is None else began) + given.seconds
        self.failed = False
        os.environ |= {"TTABENCH_CACHE": str(given.state / "cache"), "COLUMNS": "150"}

    @property
    def left(self) -> float:
        return self.ends - time.monotonic()

    def run(self, command: Sequence[str], share: float = 1.0) -> bool:
        """Whether the command ended by itself, without an error; `failed` remembers an error.

        share  of the time that is left, which the command may take.
        """
        if self.is_over():
            return False
        print("$", *command[-12:], flush=True)
        process = subprocess.Popen(command)
        try:
            code = process.wait(share * (self.left - GRACE))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(GRACE / 2)
            except subprocess.TimeoutExpired:  # a GPU that hangs; the results are still to be packed
                process.kill()
                process.wait()
            print("the time of this command is over; the next call goes on from there", flush=True)
            return False
        self.failed |= code != 0
        return code == 0

    def is_over(self) -> bool:
        """Whether too little time is left to start anything, which is said then."""
        if over := self.left <= GRACE:
            print("not enough time left", flush=True)
        return over

    def tried(self, work: Callable[[], None]) -> None:
        """Do a step, or a part of one; a mistake is one sentence, and what comes after it goes on."""
        try:
            work()
        except (UserError, OSError) as problem:
            self.failed = True
            print(problem, flush=True)
        except Exception:  # a GPU's time is short: what can be done without this part is done
            self.failed = True
            traceback.print_exc()

    def ttabench(self, *arguments: object) -> bool:
        return self.run([*TTABENCH, *map(str, arguments)])

    def unpack(self) -> None:
        """Keep the shards that came. Where those of a split are complete, its images are made of them."""
        given, kept = self.given, self.given.state / "shards"
        given.test, given.train = (given.state / f"{split}.npz" for split in ("test", "train"))
        kept.mkdir(exist_ok=True)
        for file in [*given.shards.glob("*.webp"), *given.shards.glob("*.npz")]:
            with replacing(kept / file.name) as part:
                shutil.copyfile(file, part)
        for made in (given.test, given.train):
            if made.exists():
                continue
            if (missing := missing_tiles(kept, made.stem)) > 0:
                print(f"{missing:,} {made.stem} images are in shards that have not come yet", flush=True)
                continue
            with replacing(made) as part:
                save_npz(part, read_split(kept, made.stem))

    def waits_for_shards(self) -> bool:
        given = self.given
        return bool(given.shards) and not (given.test.exists() and given.train.exists())

    def probe(self) -> None:
        small = ["--repeats", "1", "--images", "16", "--side", "64"] if self.given.scale < 1 else []
        what = ["--device", self.given.device, "--archs", self.given.archs, *small]
        files = [str(folder / "probe.json") for folder in (self.given.state, self.given.out)]
        # A probe that hangs would hang in each call, and nothing else would ever be done.
        self.run([sys.executable, str(PROBE), "--out", *files, *what], share=PROBES)

    def data(self) -> None:
        if not self.given.datasets:
            test, train = map(self._some_images, (self.given.test, self.given.train))
            self.ttabench(
                "data", "generate", test, "--train", train, "--frost", self.given.frost,
                "--name", NAME, "--root", self.given.state / "data", "--severities", 5, *self._corruptions(),
            )  # fmt: skip

    def _some_images(self, file: Path) -> Path:
        """The file, or one with as few of its images as --scale says: drawn, since they may go by class."""
        if self.given.scale == 1:
            return file
        whole, some = open_npz(file), self.given.state / f"some-{file.name}"
        count = max(1, round(self.given.scale * len(whole)))
        drawn = np.sort(np.random.default_rng(0).permutation(len(whole))[:count])
        with replacing(some) as part:
            save_npz(part, Labelled(whole.images[drawn], whole.labels[drawn]))
        return some

    def train(self) -> None:
        self.ttabench(
            "train", "--archs", self.given.archs, "--datasets", self._dataset(),
            "--device", self.given.device, "--recipe", self.given.recipe, "--epochs", self._epochs(),
        )  # fmt: skip

    def sweep(self) -> None:
        for arch, methods in worth(self.given.archs.split(",")):
            if self.is_over():  # then the data or the weights may not be made yet
                return
            self.tried(partial(self._sweep, arch, methods))

    def _sweep(self, arch: str, methods: str) -> None:
        images = dataset(self._dataset())
        model = resolve_trainable(arch, images, recipe=self.given.recipe, epochs=self._epochs())
        if (weights := model.weights()) is None:
            raise UserError(f"{arch} is not trained; the step train comes first")
        whole = self.given.datasets and self.given.scale < 1  # `data` has made one of few images
        limit = ["--limit", max(1, round(self.given.scale * 10_000))] if whole else []
        # Products of matrices dominate a transformer; true float32 takes much longer there.
        dense = self.given.device.startswith("cuda") and "resnet" not in arch
        precision = ["--precision", "tf32"] if dense else []
        self.ttabench(
            "sweep", "--archs", arch, "--methods", methods, "--datasets", self._dataset(),
            "--checkpoint", weights, "--device", self.given.device, "--per-gpu", self.given.per_gpu,
            "--out", self.given.state / "results", "--extend", *self._corruptions(), *limit, *precision,
        )  # fmt: skip

    def _epochs(self) -> int:
        return 1 if self.given.scale < 1 else 0  # 0: as the recipe says

    def _dataset(self) -> str:
        return self.given.datasets or str(self.given.state / "data" / f"{NAME}-c-local")

    def _corruptions(self) -> list[object]:
        return ["--corruptions", "gaussian_noise,frost"] if self.given.scale < 1 else []

    def weights(self) -> None:
        self._pack("weights")

    def pack(self) -> None:
        """Results and ``probe.json`` in --out."""
        out, state = self.given.out, self.given.state
        out.mkdir(parents=True, exist_ok=True)
        self._pack("results")
        if (state / "probe.json").exists():
            (out / "probe.json").write_bytes((state / "probe.json").read_bytes())

    def _pack(self, name: str) -> None:
        """A folder of the state as ``NAME.tgz`` in --out, in parts where it is large.

        What is there stays until the new files are written: the disk may be full.
        """
        state, packed = self.given.state, self.given.out / f"{name}.tgz"
        if not (state / PACKED[name]).exists():
            return
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            archive.add(state / PACKED[name], PACKED[name], filter=_finished)
        whole = content.getvalue()
        new = {packed.name: whole}
        if len(whole) > PART:
            starts = enumerate(range(0, len(whole), PART))
            new = {f"{packed.name}.{number:02}": whole[start : start + PART] for number, start in starts}
        for file, part in new.items():
            replace_file(packed.with_name(file), part)
        for old in packed.parent.glob(f"{packed.name}*"):
            if old.name not in new:
                old.unlink()

    def restore(self) -> None:
        """What another machine has packed, where the state has none of it."""
        before, state = self.given.before, self.given.state
        packed = {name: sorted(before.glob(f"{name}.tgz*")) for name in PACKED}
        if packed["results"] and not packed["weights"] and not (state / PACKED["weights"]).exists():
            print(f"{before} has results and no weights.tgz: {RETRAINED}", flush=True)
        if (before / "probe.json").exists() and not (state / "probe.json").exists():
            shutil.copyfile(before / "probe.json", state / "probe.json")
        for name, folder in PACKED.items():
            parts = packed[name]
            if parts and not (state / folder).exists():
                try:  # all of it first, for its checksum is at the end
                    content = gzip.decompress(b"".join(part.read_bytes() for part in parts))
                    with TemporaryDirectory(dir=state) as made:
                        archive, tree = Path(made) / f"{name}.tar", Path(made) / "tree"
                        archive.write_bytes(content)
                        unpack(archive, tree, lambda inside: inside)
                        (state / folder).parent.mkdir(exist_ok=True)
                        (tree / folder).rename(state / folder)
                except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
                    raise UserError(f"{name}.tgz in {before} is not whole ({problem}).") from None


def _finished(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without the state of a training that goes on, which has all weights three times."""
    return None if member.name.endswith(".training.pt") else member


def missing_tiles(shards: Path, split: str) -> int:
    """Images of the "test" or "train" split that have labels, and are in no shard."""
    if not (labels := shards / "labels.npz").exists():
        raise UserError("labels.npz has not come with the shards.")
    tiles = 0
    for file in shards.glob(f"{split}*.webp"):
        with Image.open(file) as mosaic:
            tiles += (mosaic.width // TILE) * (mosaic.height // TILE)
    with np.load(labels) as stored:
        return len(stored[split]) - tiles


def worth(archs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(network, methods) in the order of worth: the paper's rows of the first two networks come first."""
    first, others = archs[:2], archs[2:]
    for methods in (f"{ONLINE},{PAPER}", f"{ONLINE},{PAPER},quantile"):
        yield from ((arch, methods) for arch in first)
    yield from ((arch, f"{ONLINE},{PAPER},quantile") for arch in others)


def main(began: float | None = None) -> int:
    """began: when the time of --seconds began, by `time.monotonic`; None = now."""
    parser = arguments(
        __doc__, seconds=580.0, steps=",".join(STEPS), archs="resnet18,cct", recipe="cross-entropy",
        device="cuda", per_gpu=7, scale=1.0,
    )  # fmt: skip
    for name in ("--test", "--train", "--frost"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--shards", type=Path, help="a folder; in place of --test and --train")
    parser.add_argument("--datasets", default="", help="a dataset that is there")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--before", type=Path, help="what came back in --out from another machine")
    given = parser.parse_args()
    images = given.shards or (given.test and given.train)
    if not given.datasets and not (images and given.frost):
        parser.error("give --test, --train and --frost; or --shards and --frost; or --datasets")
    if unknown := set(given.steps.split(",")) - {*STEPS, "weights"}:
        parser.error(f"unknown step {sorted(unknown)[0]}; there are {', '.join(STEPS)} and weights")
    given.state.mkdir(parents=True, exist_ok=True)
    runner = Runner(given, began)
    if given.before:
        runner.tried(runner.restore)
    if given.shards:
        runner.tried(runner.unpack)
    for step in given.steps.split(","):
        if step not in ("probe", "weights") and runner.waits_for_shards():
            break
        print(f"== {step}, {runner.left:.0f} s left", flush=True)
        runner.tried(getattr(runner, step))
        runner.tried(runner.pack)
    return 1 if runner.failed else 0


if __name__ == "__main__":
    raise SystemExit(main(BEGAN))
