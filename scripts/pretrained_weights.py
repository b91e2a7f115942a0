"""The classifiers that come with the package, trained anew: ttabench/models/pretrained/digits-c/.

    python scripts/pretrained_weights.py [--out DIR] [--archs resnet18,cct]

Trains them by the default recipe in a fresh cache, a minute or two on one CPU core, and writes their weights
(.safetensors), what was trained and how (.json) and model cards (.md). Another kind of processor sums in
another order and trains other weights; then the results of digits-c have to be measured again
(scripts/reference_results.py).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_suite import arguments

from ttabench.data.catalog import dataset
from ttabench.models.checkpoints import cache
from ttabench.models.trained_model import TrainedModel
from ttabench.models.training.train import train

DATASET = "digits-c"


def main() -> None:
    parser = arguments(__doc__, archs="resnet18,cct")
    parser.add_argument("--out", type=Path, default=cache.PRETRAINED / DATASET)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="ttabench-pretrained-") as folder:
        os.environ["TTABENCH_CACHE"] = folder
        for name in options.archs.split(","):
            write(name, options.out)


def write(name: str, out: Path) -> None:
    """Train one classifier, and replace its files in `out`."""
    data = dataset(DATASET)
    plan = TrainedModel(name, data).plan
    train(plan, data)
    described = cache.read(plan.path)
    assert described is not None
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{plan.member.name}-*"):
        old.unlink()
    for file in (described.weights, described.path, described.path.with_suffix(".md")):
        shutil.copy(file, out)
    print(f"{name}: {described.note['clean_accuracy']:.2f} % clean, {described.weights.name}", flush=True)


if __name__ == "__main__":
    main()
