"""How long `ttabench report` takes on a large results folder, against the bare parsing of its records.

Makes a results folder of 36,000 cells (20 methods × 4 architectures × 2 datasets × 15 corruptions × 5
severities × 3 seeds) with drawn per-image correctness, and runs the command on it:

    python scripts/bench_report.py [--images 10000] [--formats csv,latex] [--formats ""] [--keep DIR]

Prints CPU seconds, their ratio to `json.loads` of the same lines in the same run, the peak of
memory, and seconds by the clock, which on a busy machine are more.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
from bench_suite import arguments, load, parsed, run_command

from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.observe.calibration import calibration_bins
from ttabench.store import Store

METHODS = ("source", "bn_stats", "tent", "eata", "eta", "sar", "cotta", "rotta", "sotta", "medbn", "lame",
           "t3a", "deyo", "memo", "roid", "shot", "foa", "quantile", "tent", "quantile")  # fmt: skip
ARCHS = ("resnet18", "cct_7", "cvt_7", "vit_lite_7")
DATASETS = ("cifar10-c", "cifar100-c")
OFFLINE = ("quantile", "shot")


def make(folder: Path, images: int, cells: int = 36_000) -> int:
    """A results folder; returns how many cells it has. The same images are hard for all methods.

    cells   how many; other numbers have more or fewer seeds, and not all severities of the last data set.
    """
    rng = np.random.default_rng(0)
    writer = Store.create(folder, {"made": "for a benchmark"}).writer()
    seeds = range(-(-cells // (len(METHODS) * len(ARCHS) * len(DATASETS) * len(CORRUPTIONS) * 5)))
    count = 0
    with mock.patch("os.fsync"):  # nobody needs this folder after a power cut
        for dataset, severity, corruption in itertools.product(DATASETS, range(1, 6), CORRUPTIONS):
            hard = rng.standard_normal(images, np.float32)
            for arch, (k, method), seed in itertools.product(ARCHS, enumerate(METHODS), seeds):
                if count == cells:
                    break
                right = (
                    hard + 0.3 * rng.standard_normal(images, np.float32) + 1.5 - 0.2 * severity + 0.02 * k > 0
                )
                confidence = (1 / (1 + np.exp(-np.abs(hard)))).astype(np.float32)
                offline = method in OFFLINE
                protocol = Protocol(
                    mode="offline" if offline else "online", batch_size=50 if offline else 200
                )
                again = METHODS.index(method) != k
                cell = Cell(
                    method=method, config=(("lr", 0.001 * (1 + again)),),
                    label=method + "[lr=0.002]" * again, arch=arch, checkpoint=f"{arch}-{dataset}",
                    dataset=dataset, fingerprint=dataset, corruption=corruption, severity=severity, seed=seed,
                    protocol=protocol,
                )  # fmt: skip
                writer.append(Result(
                    cell=cell, status="ok", accuracy=100 * float(right.mean()), clean_accuracy=95.0,
                    n_images=images, seconds=10.0, correct=np.packbits(right).tobytes(),
                    details={
                        "adapted": "20 BatchNorm2d", "source_data": "features" if offline else "",
                        "calibration": calibration_bins(confidence, right),
                        "cost": {"images": images, "ms_per_image": 1.0 + k, "compute_ratio": 1.0 + k / 2},
                    },
                ))  # fmt: skip
                count += 1
    writer.close()
    return count


def main() -> None:
    parser = arguments(__doc__, images=10_000)
    parser.add_argument("--formats", action="append", help="as `report --format`; '' is every format")
    parser.add_argument("--keep", type=Path, help="make the folder here, or take the one that is here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch) / "results"
        if not folder.exists():
            started = time.perf_counter()
            count = make(folder, options.images)
            print(f"made {count} cells of {options.images} images in {time.perf_counter() - started:.0f} s")
        bare = parsed(folder)
        print(f"{'json.loads of all records':34}{bare:8.2f} s")
        for formats in options.formats or ["csv", "csv,latex", "csv,latex,plots", ""]:
            with tempfile.TemporaryDirectory() as to:
                asked = ["--format", formats] if formats else []
                seconds, processor, peak = run_command("report", folder, "--out", to, *asked)
            name = f"report --format {formats}" if formats else "report, every format"
            ratio = f"ratio {processor / bare:6.1f}   peak {peak:6.0f} MB   {seconds:6.1f} s by the clock"
            print(f"{name:34}{processor:8.2f} s   {ratio}")
    print(load())


if __name__ == "__main__":
    main()
