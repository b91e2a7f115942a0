"""Settings that a paper, or its official code, has for a dataset or a number of classes."""

from __future__ import annotations

from typing import Any

from tests.cases import each
from ttabench import registry

IMAGENET, CIFAR = 1000, 10
DIGITS = {"epochs": 3, "minibatch": 20, "per_class": 0.0, "information": 0.0, "views": False}


@each(
    ("name", "dataset", "classes", "expected"),
    [
        ("tent", "any", IMAGENET, {"optimizer": "sgd", "lr": 2.5e-4}),
        ("eata", "any", 200, {"d_margin": 0.1}),
        ("eata", "any", IMAGENET, {"lr": 2.5e-4, "d_margin": 0.05, "fisher_alpha": 2000}),
        ("deyo", "any", CIFAR, {"lr": 5e-3}),
        ("deyo", "any", IMAGENET, {}),
        ("memo", "any", IMAGENET, {"views": 64, "lr": 2.5e-4}),
        ("poem", "any", IMAGENET, {"lr": 2.5e-4, "source_images": 12_500}),
        ("ttac", "any", CIFAR, {}),
        ("ttac", "any", 100, {"lr": 1e-3, "scale": 0.5, "class_length": 64}),
        ("ttac", "any", IMAGENET, {"lr": 1e-3, "class_length": 64}),
        ("sotta", "any", 200, {"threshold": 0.5}),
        ("actmad", "any", CIFAR, {"lr": 1e-2}),
        ("actmad", "any", 100, {}),
        ("actmad", "any", IMAGENET, {"lr": 2.5e-4}),
        ("actmad", "digits-c", CIFAR, {"lr": 1e-4}),
        ("quantile", "any", CIFAR, {"quantiles_per_class": 100}),
        ("quantile", "digits-c", CIFAR, {"quantiles_per_class": 100, **DIGITS}),
    ],
)
def test_settings_of_a_dataset(name: str, dataset: str, classes: int, expected: dict[str, Any]) -> None:
    assert dict(registry.method(name).for_dataset(dataset, classes)) == expected


@each("classes", [2, 10, 100, 200, 1000])
@each("name", registry.method_names())
def test_settings_follow_the_classes_and_not_the_name_of_a_dataset(name: str, classes: int) -> None:
    """Images of the user may have any name. digits-c, whose images come with ttabench, is the exception."""
    names = ("cifar10-c", "cifar10-mine-local", "cifar100-c", "mine-local", "imagenet-c", "tinyimagenet-c")
    method = registry.method(name)
    assert len({str(dict(method.for_dataset(dataset, classes))) for dataset in names}) == 1
