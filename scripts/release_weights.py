"""The trained weights of the reference results, as files of a release.

    python scripts/release_weights.py OUT [--results DIR]

Copies from the cache each classifier that was trained for a results folder in DIR (results/reference):
OUT/<weights>.safetensors, its recipe (.json) and its model card (.md). Writes OUT/SHA256SUMS. Cells name
weights by their hash, and only weights with that hash are copied. Weights that were brought with --checkpoint
are left out. Exit code 1 where weights are not in the cache.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from bench_suite import arguments

from ttabench.data.catalog import dataset
from ttabench.errors import UserError
from ttabench.models.checkpoints import cache
from ttabench.models.resolve import resolve_model
from ttabench.store import load_frame
from ttabench.system.files import replace_file

RESULTS = Path(__file__).resolve().parents[1] / "results" / "reference"
Weights = tuple[str, str, str]
"""Dataset, architecture, hash."""


def used(folders: Iterable[Path]) -> list[Weights]:
    """The weights of all cells with a number, each once."""
    names = ["dataset", "arch", "checkpoint"]
    measured = (cells[cells["status"] == "ok"] for cells in map(load_frame, folders))
    return sorted({row for cells in measured for row in cells[names].itertuples(index=False, name=None)})


def copy(weights: Weights, out: Path) -> tuple[str, list[Path]]:
    """Copy the files of one classifier; what to print, and the copies. Raises UserError if it is not here."""
    name, arch, sha256 = weights
    model = resolve_model(arch, dataset(name))
    described = cache.with_hash(name, model.aliases, sha256)
    if described is None:
        raise UserError(f"{arch} on {name}: the weights {sha256[:12]} are not in the cache.")
    if described.note["recipe"]["name"] == "brought":
        return f"{arch} on {name}: brought from {described.note['origin']}, left out", []
    cache.open_described(described, model.build)  # its hash is that of the weights
    files = [described.weights, described.path, described.path.with_suffix(".md")]
    return f"{arch} on {name}: {described.weights.name}", [Path(shutil.copy(file, out)) for file in files]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder of results folders")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    missing, copies = 0, []
    for weights in used(path.parent for path in options.results.glob("*/sweep.json")):
        try:
            text, files = copy(weights, out)
        except UserError as problem:
            text, files = str(problem), []
            missing += 1
        copies += files
        print(text)
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(copies))
    replace_file(out / "SHA256SUMS", "".join(sums).encode())
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
