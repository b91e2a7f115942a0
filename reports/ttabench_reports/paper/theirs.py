"""The paper's numbers, as it prints them."""

from __future__ import annotations

import math
from functools import cache

from ttabench_reports.paper.ours import PAPER
from ttabench_reports.published.catalog import accuracies, catalog, rows
from ttabench_reports.words import naming

DATASETS = ("cifar10-c", "cifar100-c", "tinyimagenet-c")
ARCHS = ("resnet18", "cct", "cvt", "vit_lite")


@cache
def _numbers() -> dict[tuple[str, str, str, str], float]:
    frame = accuracies(PAPER)
    keys = frame[["dataset", "arch", "method", "corruption"]].itertuples(index=False, name=None)
    return dict(zip(keys, frame["accuracy"].tolist(), strict=True))


def accuracy(dataset: str, arch: str, method: str, corruption: str = "mean") -> float:
    """Percent, at severity 5; NaN where the paper has none. `method` by its name here."""
    return _numbers().get((dataset, arch, method, corruption), math.nan)


def taken_from(method: str, arch: str) -> str:
    """Where the paper has a method's numbers from, if they are not its own; else ""."""
    other = catalog()[PAPER].taken_from(method)
    return f"the paper's number is from {other}, on another {naming.arch(arch)}" if other else ""


def increase(dataset: str, arch: str, corruption: str) -> float:
    """Points of its method above Source as the paper prints them, at severity 5; NaN where it has none."""
    return _increases().get((dataset, arch, corruption), math.nan)


@cache
def _increases() -> dict[tuple[str, str, str], float]:
    printed = rows(f"{PAPER}_increase")
    return {(row["dataset"], row["arch"], row["corruption"]): float(row["increase"]) for row in printed}


def ablation() -> list[dict[str, str]]:
    """Table 3: dataset, arch, batch_size, quantiles_per_class, accuracy."""
    return rows(f"{PAPER}_ablation")


def drops() -> list[dict[str, str]]:
    """Table 2: approach (``quantile-resnet18``), clean_dataset, clean, corrupted, printed_drop."""
    return rows(f"{PAPER}_drop")


def severities() -> list[dict[str, str]]:
    """Figure 1: dataset, arch, corruption, severity, source, quantile."""
    return rows(f"{PAPER}_severity")
