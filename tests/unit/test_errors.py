"""The sentence about an unknown name."""

from __future__ import annotations

import pytest

from ttabench.errors import MAX_LISTED, unknown

MANY = [f"x{i:03}" for i in range(MAX_LISTED + 1)]


def test_a_few_valid_names_are_listed() -> None:
    assert str(unknown("method", "tnet", ["tent", "source"])) == (
        "unknown method 'tnet'; did you mean 'tent'? Valid: source, tent."
    )
    assert str(unknown("recipe", "a", [])) == "unknown recipe 'a'. Valid: none."
    assert str(unknown("x", "zzz", MANY[:MAX_LISTED])).endswith(f"{MANY[MAX_LISTED - 1]}.")


@pytest.mark.parametrize("see", ["", "`ttabench list archs`"])
def test_of_many_only_the_nearest_are_named(see: str) -> None:
    text = str(unknown("architecture", "resnet81", [*MANY, "resnet18"], see))
    end = f"See {see}." if see else f"There are {MAX_LISTED + 2} names."
    assert text == f"unknown architecture 'resnet81'; did you mean 'resnet18'? {end}"


def test_names_that_are_as_near_are_all_named() -> None:
    valid = ["cifar10-c", "cifar10.1", "digits-c"]
    assert "did you mean 'cifar10-c' or 'cifar10.1'?" in str(unknown("dataset", "cifar10", valid))
    assert "did you mean 'cifar10-c'?" in str(unknown("dataset", "cifar10c", valid))


def test_capitals_do_not_hide_the_nearest_name() -> None:
    assert "did you mean 'ResNet18'?" in str(unknown("network", "resnet18", ["ResNet18", "Standard"]))
