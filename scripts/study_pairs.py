"""Matching beside training on pairs, and what the trained decorruptor does to clean images.

For each corruption and seed, the decorruptor is trained twice with the same settings and updates: by
matching, which sees no pairs, and by the mean squared error of the features of each image from those of its
clean counterpart (the bound of Theorem 4), which no method may see. Both are scored by one forward pass,
without views.

Usage:  python scripts/study_pairs.py OUT --dataset D --arch A [--checkpoint FILE --normalize imagenet]
        python scripts/study_pairs.py OUT … --method quantile --set epochs=5 --corruptions fog --seeds 0,1,2

Writes OUT/pairs.csv, a row for each training, and goes on where it stopped:
    accuracy   % of corrupted images      clean   % of clean images through the decorruptor
    harm       points that clean images lose to it, also to its start
    loss       the quantile loss          mse     of pairs, over the variance of clean features
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from bench_suite import arguments
from torch import Tensor

from ttabench.data.catalog import dataset as open_dataset
from ttabench.figure.classifier_and_data import ClassifierAndData
from ttabench.method import Batches
from ttabench.models.resolve import resolve_model
from ttabench.registry import method as find_method
from ttabench.sweep.options_to_grid import corruption_names
from ttabench.system.environment import pick_device
from ttabench.system.progress import silent
from ttabench_methods.quantile import Quantile

TRAININGS = ("none", "matching", "pairs")
KEY = ["dataset", "arch", "method", "settings", "corruption", "severity", "seed"]


@torch.enable_grad()
def train_on_pairs(method: Quantile, images: Batches, clean: Tensor) -> None:
    """As `Quantile.fit`, with the squared error from the clean features (n, k) in place of the loss."""
    variance, epochs = spread(clean), method.config.epochs
    for epoch in range(epochs):
        seen = 0
        for positions, x in method._minibatches(images):
            method._anneal((epoch + seen / images.count) / epochs)
            decorrupted = method.decorruptor(x)
            error = method.matching.features(decorrupted) - clean[positions.to(clean.device)]
            loss = error.square().sum(1).mean() / variance + method._penalty(x, decorrupted)
            method.optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(method.decorruptor.parameters(), method.config.clip or torch.inf)
            method.optimizer.step()
            seen += len(x)


def spread(clean: Tensor) -> Tensor:
    """The mean squared distance of features (n, k) from their mean."""
    return (clean - clean.mean(0)).square().sum(1).mean()


@torch.no_grad()
def accuracy(method: Quantile, images: Batches, labels: Tensor) -> float:
    logits = torch.cat([method.model(method.decorruptor(x)) for x in images])
    return 100 * (logits.argmax(1).cpu() == labels).float().mean().item()


def study(bench: ClassifierAndData, cls: type[Quantile], severity: int) -> list[dict[str, Any]]:
    """A row for each of :data:`TRAININGS`."""
    corrupted, whole = bench.images(severity, cls.batch_size), bench.images(0, cls.batch_size)
    labels, rows = torch.from_numpy(bench.labels), list[dict[str, Any]]()
    source = source_clean(bench, labels)
    for training in TRAININGS:
        method = bench.method(cls)
        clean = method._all_features(whole)  # before training T is the identity
        method._start(corrupted)
        torch.manual_seed(bench.seed)
        if training == "matching":
            method.fit(corrupted)
        elif training == "pairs":
            train_on_pairs(method, corrupted, clean)
        features = method._all_features(corrupted)
        kept = accuracy(method, whole, labels)
        rows.append({
            "training": training, "accuracy": accuracy(method, corrupted, labels), "clean": kept,
            "harm": source - kept, "loss": float(method.matching.loss_of(features)),
            "mse": float((features - clean).square().sum(1).mean() / spread(clean)),
        })  # fmt: skip
    return rows


@torch.no_grad()
def source_clean(bench: ClassifierAndData, labels: Tensor) -> float:
    """Accuracy of the classifier alone on clean images."""
    right = torch.cat([bench.classifier(x).argmax(1) for x in bench.images(0, 512)]).cpu() == labels
    return 100 * right.float().mean().item()


def main() -> None:
    parser = arguments(__doc__, normalize="", corruptions="extra", severity=5, seeds="0", device="auto")
    parser.add_argument("out", type=Path)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--method", default="quantile_paper", help="a form of quantile matching")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the method")
    args = parser.parse_args()
    settings = dict(text.split("=", 1) for text in args.set)
    data, device = open_dataset(args.dataset), pick_device(args.device)
    model = resolve_model(args.arch, data, checkpoint=args.checkpoint, normalize=args.normalize)
    if not model.ready:
        parser.error(f"there is no trained {args.arch} for {data.name}; run ttabench train first")
    classifier = model.load(device).classifier.to(device).eval()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "pairs.csv"
    for seed in map(int, args.seeds.split(",")):
        for corruption in corruption_names(args.corruptions):
            chosen = ",".join(sorted(args.set))
            values = (data.name, args.arch, args.method, chosen, corruption, args.severity, seed)
            key = dict(zip(KEY, values, strict=True))
            if is_there(file, key):
                continue
            bench = ClassifierAndData(
                args.arch, data, corruption, classifier, silent, seed, device, {args.method: settings}
            )
            rows = [{**key, **row} for row in study(bench, find_method(args.method), args.severity)]
            table = pd.concat([read(file), pd.DataFrame(rows)])
            table.round(6).to_csv(file, index=False)
            print(pd.DataFrame(rows).round(3).to_string(index=False), flush=True)


def read(file: Path) -> pd.DataFrame:
    return pd.read_csv(file, keep_default_na=False) if file.exists() else pd.DataFrame()


def is_there(file: Path, key: Mapping[str, Any]) -> bool:
    rows = read(file)
    return not rows.empty and bool(
        (rows[KEY].astype(str) == pd.Series(key)[KEY].astype(str)).all(axis=1).any()
    )


if __name__ == "__main__":
    main()
