"""All reference results, from a fresh clone: the sweeps of scripts/reference/*.toml into results/reference/.

`digits-c+slow.toml` adds to the results of `digits-c.toml`: the folder is the part before the plus. CIFAR and
ImageNet need a folder ../shared with the images, see scripts/real_cifar.py and scripts/imagenet_1000.py. All
test images of CIFAR-10, which the sweeps cifar10-test-… use, can be made from published files too, with
--cifar10 and --frost. A sweep that was stopped goes on where it was, and what was made with other code is
made again. In the end the shards of each folder are merged into one, and what each method cost is printed.
What stands after -- goes to `ttabench sweep`, instead of what this script would give for the same option.

    python scripts/reference_results.py --list
    python scripts/reference_results.py --only digits-c --workers 2
    python scripts/reference_results.py --only digits-c --out /tmp/rehearsal -- --limit 60 --corruptions fog
    python scripts/reference_results.py --only cifar10-test-resnet20 --cifar10 cifar-10-batches-py \\
        --frost frost -- --checkpoint resnet20-12fca82f.th
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench_suite import arguments
from reference_data import ROOT, Published, make

from ttabench.cell.protocol import parse_contamination
from ttabench.data.own.manifest import SUFFIX
from ttabench.errors import UserError, unknown
from ttabench.store import Store
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.sweep_file import read_sweep_file
from ttabench.system.environment import machine, processor
from ttabench_reports.cells.typical_seconds import typical_seconds

if TYPE_CHECKING:
    from ttabench.data.dataset import Dataset

SWEEPS = ROOT / "scripts" / "reference"
RESULTS = ROOT / "results" / "reference"
WEIGHTS = SWEEPS / "weights"
"""Weights that the recipe trained before, as it stores them: each with a JSON file that has its name."""
RECIPE = "fast-portable"
"""Of the networks that are trained for CIFAR: the same weights on every x86-64 processor with AVX2."""
EPOCHS = {
    ("real-cifar10-cvt_2", "cvt_2"): 130,
    **{(f"wild-{kind}-real-cifar10", "cct_2"): 8 for kind in ("mixed", "batch1", "labelshift")},
}
"""Epochs of the network of a results folder that was not trained for those of the recipe."""
TTABENCH = (sys.executable, "-c", "from ttabench.cli import main; main()")


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
    """Make the datasets of a sweep file in the folder `data`; returns further options of the sweep.

    These are its own dataset and the one that contaminates its streams. Nothing is trained where the sweep
    file, or what the user gives (`extra`), names the weights, or where they come with a package.
    """
    grid = make_grid({**DEFAULTS, **read_sweep_file(file)})
    foreign, _ = parse_contamination(grid.contamination) or ("", 0.0)
    if foreign.endswith(SUFFIX):
        make(foreign, data, published)
    trains = [make(name, data, published) for name in grid.datasets if name.endswith(SUFFIX)]
    given = grid.checkpoint or "--checkpoint" in names_of(extra) or any("/" in arch for arch in grid.archs)
    if not trains or given:
        return {}
    (arch,), (known,) = grid.archs, trains
    return {"--checkpoint": trained(arch, known, data, EPOCHS.get((folder(file), arch), 0))}


def trained(arch: str, known: Dataset, data: Path, epochs: int = 0) -> Path:
    """The weights of a network that `known` trains: those of :data:`WEIGHTS`, else trained now, into `data`.

    `epochs` of 0 are those of the recipe.
    """
    from ttabench.models.checkpoints import cache
    from ttabench.models.resolve import resolve_trainable

    model = resolve_trainable(arch, known, recipe=RECIPE, epochs=epochs)
    if stored := cache.read(WEIGHTS / model.plan.path.name):
        return stored.weights.relative_to(ROOT)
    if not model.ready:
        other = ("--epochs", str(epochs)) if epochs else ()
        run("train", "--archs", arch, "--datasets", known.name, "--recipe", RECIPE, *other)
    weights = model.weights()
    if weights is None:
        raise UserError(f"{arch} was not trained; see above.")
    copied = Path(shutil.copy(weights, data / weights.name))
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
    """Minutes by method and network, the costliest first: adapting and scoring, by the clock, one thread.

    They are the medians of rows times their cells, so that a busy time of the machine counts little.
    """
    frame = Store.at(results).frame()
    frame = frame[frame["status"] == "ok"].assign(seconds=typical_seconds)
    minutes = frame.groupby(["base", "arch"])["seconds"].agg(["sum", "count"])
    lines = [f"{base:<16} {arch:<10} {row['sum'] / 60:8.1f} min {row['count']:5.0f} cells"
             for (base, arch), row in minutes.sort_values("sum", ascending=False).iterrows()]  # fmt: skip
    return "\n".join([*lines, f"{'in all':<27} {minutes['sum'].sum() / 60:8.1f} min"])


def main() -> int:
    given, extra = split(sys.argv[1:])
    parser = arguments(__doc__)
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
