"""All reference results, from a fresh clone: the sweeps of scripts/reference/*.toml into results/reference/.

`digits-c+slow.toml` adds to the results of `digits-c.toml`: the folder is the part before the plus. CIFAR-10
needs a folder ../shared with the images, see scripts/real_cifar10.py, and so does imagenet-1000, see
scripts/imagenet_1000.py. All its test images, which the sweeps
cifar10-test-… use, can be made from published files too, with --cifar10 and --frost. A sweep that was stopped
goes on where it was, and what was made with other code is made again. In the end the shards of each folder
are merged into one, and what each method cost is printed. What stands after -- goes to `ttabench sweep`,
instead of what this script would give for the same option.

    python scripts/reference_results.py --list
    python scripts/reference_results.py --only digits-c --workers 2
    python scripts/reference_results.py --only digits-c --out /tmp/rehearsal -- --limit 60 --corruptions fog
    python scripts/reference_results.py --only cifar10-test-resnet20 --cifar10 cifar-10-batches-py \\
        --frost frost -- --checkpoint resnet20-12fca82f.th
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ttabench.data.own.manifest import SUFFIX
from ttabench.errors import UserError, unknown
from ttabench.store import Store
from ttabench.sweep.options import DEFAULTS, make_grid
from ttabench.sweep.sweep_file import read_sweep_file
from ttabench.system.environment import machine, processor

if TYPE_CHECKING:
    from ttabench.data.dataset import Dataset

ROOT = Path(__file__).resolve().parents[1]
SWEEPS = ROOT / "scripts" / "reference"
RESULTS = ROOT / "results" / "reference"
SHARED = ROOT.parent / "shared"
RECIPE = "fast-portable"
"""Of the networks that are trained for CIFAR-10: the same weights on every x86-64 processor with AVX2."""
EPOCHS = {"cvt_2": 130}
"""Epochs of networks for which those of the recipe are too few, measured on clean images."""
PHOTOGRAPHS = "imagenet-1000-c-local"
"""One photograph of each class of ImageNet."""
WHOLE = "cifar10-test-c-local"
"""All 10,000 test images of CIFAR-10, corrupted by `ttabench data generate`."""
TTABENCH = (sys.executable, "-c", "from ttabench.cli import main; main()")


class Published(NamedTuple):
    """Folders of published files: the batches of CIFAR-10, and the pictures of frost of ImageNet-C."""

    cifar10: Path
    frost: Path


def sweeps(only: Sequence[str] = ()) -> list[Path]:
    """The sweep files, those of the folders or files in `only` if it names any. Raises UserError."""
    files = sorted(SWEEPS.glob("*.toml"), key=lambda file: file.stem)  # the slow ones of a folder last
    names = {name for file in files for name in (file.stem, folder(file))}
    for name in only:
        if name not in names:
            raise unknown("reference", name, names)
    return [file for file in files if not only or {file.stem, folder(file)} & {*only}]


def folder(file: Path) -> str:
    """The results folder that a sweep file fills."""
    return file.stem.partition("+")[0]


def title(file: Path) -> str:
    """What a sweep file says of itself, its first line."""
    return file.read_text().partition("\n")[0].lstrip("# ")


def prepare(
    file: Path, data: Path, published: Published | None = None, extra: Sequence[str] = ()
) -> dict[str, str | Path]:
    """Make the dataset of a sweep file in the folder `data`; returns further options of the sweep.

    Nothing is trained where the sweep file, or what the user gives (`extra`), names the weights.
    """
    grid = make_grid({**DEFAULTS, **read_sweep_file(file)})
    if not any(name.endswith(SUFFIX) for name in grid.datasets):
        return {}
    if PHOTOGRAPHS in grid.datasets:
        _photographs(file, data)
        return {}
    if published:
        trains = _from_published(published, file, data, grid.datasets)
    else:
        trains = _from_shared(file, data, grid.datasets)
    (arch,) = grid.archs
    # Both datasets have the same training images, and so the same classifiers.
    given = grid.checkpoint or "--checkpoint" in names_of(extra)
    return {} if given else {"--checkpoint": trained(arch, trains, data)}


def _from_shared(file: Path, data: Path, names: Sequence[str]) -> Dataset:
    """Make the datasets from the folder ../shared; returns the one that trains."""
    if not SHARED.is_dir():
        raise UserError(
            f"{file.name} needs the images in {SHARED}; see scripts/real_cifar10.py. "
            "The sweeps cifar10-test-… take --cifar10 and --frost instead."
        )
    real = data / "real-cifar10-local"
    if not ((data / "cifar10-test.npz").exists() and (real / "train.npz").exists()):
        from real_cifar10 import make

        make(SHARED, data)
    from ttabench.data.catalog import dataset

    trains = dataset(str(real))  # from now on by its name too
    if WHOLE in names:
        _corrupt(data / "cifar10-test.npz", real / "train.npz", SHARED / "data" / "frost", data)
    return trains


def _photographs(file: Path, data: Path) -> None:
    packed = SHARED / "imagenet" / "imagenet-1000.npz"
    if not packed.is_file():
        raise UserError(
            f"{file.name} needs the photographs in {packed}, which are not published. With your own: "
            "ttabench data generate, and ttabench sweep with the options of the sweep file."
        )
    from imagenet_1000 import make

    from ttabench.data.catalog import dataset

    dataset(str(make(packed, SHARED / "data" / "frost", data)))  # from now on by its name too


def _from_published(published: Published, file: Path, data: Path, names: Sequence[str]) -> Dataset:
    """Make the dataset from files that everybody can have."""
    if [*names] != [WHOLE]:
        raise UserError(
            f"{file.name} needs images of the official generator in {SHARED}, and they are not published. "
            "With --cifar10, choose --only cifar10-test-resnet20 or cifar10-test-cct_2."
        )
    from real_cifar10 import clean_from_batches

    test, train = clean_from_batches(published.cifar10, data)
    return _corrupt(test, train, published.frost, data)


def _corrupt(test: Path, train: Path, frost: Path, data: Path) -> Dataset:
    """All test images under the fifteen corruptions."""
    from ttabench.data.catalog import dataset

    run("data", "generate", test, "--train", train, "--root", data,
        "--corruptions", "all", "--severities", "5", "--frost", frost)  # fmt: skip
    return dataset(str(data / WHOLE))


def trained(arch: str, known: Dataset, data: Path) -> Path:
    """The weights of a network that `known` trains, as a file in `data`; trained now if it was not before."""
    from ttabench.models.trained_model import TrainedModel

    model = TrainedModel(arch, known, recipe=RECIPE, epochs=EPOCHS.get(arch, 0))
    if not model.ready:
        longer = ("--epochs", str(EPOCHS[arch])) if arch in EPOCHS else ()
        run("train", "--archs", arch, "--datasets", known.name, "--recipe", RECIPE, *longer)
    weights = model.weights()
    if weights is None:
        raise UserError(f"{arch} was not trained; see above.")
    copied = Path(shutil.copy(weights, data / f"{arch}.safetensors"))
    return copied.relative_to(ROOT) if copied.is_relative_to(ROOT) else copied


def run(*arguments: str | Path) -> int:
    """Run ttabench in the root of the repository; its exit code, 0 or 1. Raises UserError for any other.

    It gets SIGTERM too, and is waited for: no sweep goes on alone. A terminal sends Ctrl-C to both.
    """
    process = subprocess.Popen([*TTABENCH, *map(str, arguments)], cwd=ROOT)
    handlers = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
    }
    try:
        code = process.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if code not in (0, 1):
        raise UserError(
            f"ttabench {arguments[0]} ended with exit code {code}; the same command goes on from there."
        )
    return code


def costs(results: Path) -> str:
    """Minutes by method and network, the costliest first: adapting and scoring, by the clock, one thread."""
    frame = Store.at(results).frame()
    minutes = frame[frame["status"] == "ok"].groupby(["base", "arch"])["seconds"].agg(["sum", "count"])
    lines = [f"{base:<16} {arch:<10} {row['sum'] / 60:8.1f} min {row['count']:5.0f} cells"
             for (base, arch), row in minutes.sort_values("sum", ascending=False).iterrows()]  # fmt: skip
    return "\n".join([*lines, f"{'in all':<27} {minutes['sum'].sum() / 60:8.1f} min"])


def main() -> int:
    given, extra = split(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="of folders or sweep files, comma-separated"
    )
    parser.add_argument("--workers", default="auto", help="as of `ttabench sweep`")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: results/reference")
    parser.add_argument(
        "--data", type=Path, default=ROOT / "results" / "reference-data", help="where datasets are made"
    )
    parser.add_argument(
        "--cifar10", type=Path, metavar="DIR", help="the published batches, cifar-10-batches-py"
    )
    parser.add_argument(
        "--frost", type=Path, metavar="DIR", help="the pictures of frost published with ImageNet-C"
    )
    parser.add_argument("--list", action="store_true", help="list the sweeps, run nothing")
    args = parser.parse_args(given)
    refuse(extra, {"--out": "before the --", "--config": "with --only"})
    if (args.cifar10 is None) != (args.frost is None):
        parser.error("--cifar10 and --frost belong together; give both or none.")
    published = Published(args.cifar10.resolve(), args.frost.resolve()) if args.cifar10 else None
    chosen = sweeps([name for name in args.only.split(",") if name])
    if args.list:
        for file in chosen:
            print(f"{file.stem:<28} {title(file)}")
        return 0
    import torch  # noqa: F401 — `processor` asks it

    worst, out = 0, args.out.resolve()
    for file in chosen:
        started = time.monotonic()
        results = out / folder(file)
        print(f"\n{file.stem}: {title(file)}", flush=True)
        own = {"--workers": args.workers, **prepare(file, args.data.resolve(), published, extra)}
        options = ("--out", results, "--extend", *without(own, extra), *extra)
        worst |= run("sweep", "--config", file, *options)
        Store.at(results).merge()
        took = (time.monotonic() - started) / 60
        print(f"\n{results}: {took:.1f} minutes on {machine()}, {processor()}.")
        print(costs(results), flush=True)
    return worst


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before and after --."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def names_of(extra: Sequence[str]) -> set[str]:
    """The options that the arguments after -- name."""
    return {text.partition("=")[0] for text in extra if text.startswith("--")}


def without(own: Mapping[str, str | Path], extra: Sequence[str]) -> list[str | Path]:
    """The script's own options as arguments, but for those that the arguments after -- give."""
    kept = {name: value for name, value in own.items() if name not in names_of(extra)}
    return [text for option in kept.items() for text in option]


def refuse(extra: Sequence[str], instead: Mapping[str, str]) -> None:
    """Raises UserError for options after -- that only the script can set; `instead` says where."""
    for name in instead.keys() & names_of(extra):
        raise UserError(f"{name} after --: the script sets it; choose it {instead[name]}.")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as problem:
        sys.exit(f"{Path(__file__).name}: {problem}")
