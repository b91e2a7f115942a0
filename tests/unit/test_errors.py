"""The sentence about an unknown name, and code that exits."""

from __future__ import annotations

import re

import pytest

from ttabench.errors import MAX_LISTED, TERMINATED, exit_is_an_error, unknown

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


@pytest.mark.parametrize(("code", "called"), [(0, "exit(0)"), (None, "exit()"), ("no GPU", "exit('no GPU')")])
def test_code_that_exits_is_an_error_with_its_place(code: object, called: str) -> None:
    def leaves() -> None:
        raise SystemExit(code)

    with pytest.raises(RuntimeError, match=re.escape(f"its code calls {called}, which")) as raised:  # noqa: SIM117
        with exit_is_an_error():
            leaves()
    assert raised.traceback[-1].name == "leaves"


def test_sigterm_is_no_error_of_the_code() -> None:
    with pytest.raises(SystemExit), exit_is_an_error():
        raise SystemExit(TERMINATED)
