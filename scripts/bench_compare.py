"""How long ``ttabench compare`` takes on two results folders, beside reading their JSON and nothing else.

Both folders are made here, with per-image correctness of 10,000 images. In the second every cell has lost
0.9 points, so that every cell and every mean is tested: the slowest case.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_suite import Timer, arguments, parsed

from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.store import Store
from ttabench.store.writer import environment
from ttabench.system.checked_lines import encode

IMAGES = 10_000
CELL = Cell(
    method="tent", config=(("lr", 0.001), ("steps", 1)), label="tent", arch="", checkpoint="c" * 64,
    dataset="", fingerprint="f" * 64, corruption="fog", severity=5, seed=0, protocol=Protocol(),
)  # fmt: skip


def make(path: Path, rows: int, lost: float) -> Path:
    """A results folder of `rows` cells, one seed each of 15 corruptions × architectures × data sets."""
    store, rng = Store.create(path, {"methods": ["tent"]}), np.random.default_rng(0)
    hard = np.random.default_rng(1).random((50, IMAGES))
    with (store.cells / "made.jsonl").open("wb") as file:
        file.write(encode({"kind": "environment", "generation": 1, **environment("cpu")}))
        file.write(encode({"kind": "code", "source": "a" * 64, "definitions": []}))
        places = itertools.product(range(rows // 15), CORRUPTIONS)
        for number, (place, corruption) in enumerate(places):
            right = hard[number % 50] < 0.8
            right[rng.choice(IMAGES, int(lost * IMAGES), replace=False)] = False
            arch, seed = f"arch{place // 10}", place % 10
            cell = replace(CELL, arch=arch, dataset="made-c", corruption=corruption, seed=seed)
            result = Result(
                cell=cell, status="ok", accuracy=100 * float(right.mean()), clean_accuracy=95.0,
                n_images=IMAGES, seconds=1.0, correct=np.packbits(right).tobytes(),
            )  # fmt: skip
            record = {"kind": "result", "written": 1.7e9, "source": "a" * 64, **result.to_json()}
            file.write(encode(record))
    return path


def check(as_expected: bool) -> None:
    if not as_expected:
        raise SystemExit("error: compare did not find what was made.")


def main() -> None:
    rows = arguments(__doc__, rows=36_000).parse_args().rows
    from ttabench_reports.compare import compare

    with tempfile.TemporaryDirectory() as folder:
        before, after = make(Path(folder) / "a", rows, 0.0), make(Path(folder) / "b", rows, 0.009)
        read = parsed(before, after)
        print(f"JSON of both alone: {read:.2f} CPU-seconds")
        for name, other in (("the same", before), ("every cell moved", after)):
            took = Timer()(lambda other=other: check(compare(before, other).failed == (other == after)))  # type: ignore[misc]
            print(f"compare, {name}: {took:.2f} CPU-seconds, {took / read:.1f} × reading the JSON")


if __name__ == "__main__":
    main()
