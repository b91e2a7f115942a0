"""Which branches of a function ran: each way of each condition has to, and nothing else is asked for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from ttabench.provenance.executed import NOT_AT_ALL, Executed

BRANCHES = {
    "if": "    if a:\n        b = 1\n    return b\n",
    "else": "    if a:\n        b = 1\n    else:\n        b = 2\n    return b\n",
    "not": "    if not a:\n        b = 1\n    return b\n",
    "none": "    if a is None:\n        b = 1\n    return b\n",
    "compared": "    if a > 0 and b > 0:\n        b = 1\n    return b\n",
    "or": "    b = a or b\n    return b\n",
    "ternary": "    return 1 if a else b\n",
    "elif": "    if a is None:\n        b = 1\n    elif a:\n        b = 2\n    return b\n",
    "for": "    for each in range(a or 0):\n        b += each\n    return b\n",
    "in a comprehension": "    return [each for each in range(3) if a]\n",
}
WAYS = {
    "if": [1, 0], "else": [1, 0], "not": [1, 0], "none": [None, 0], "compared": [1, 0], "or": [1, 0],
    "ternary": [1, 0], "elif": [None, 1, 0], "for": [1, 0], "in a comprehension": [1, 0],
}  # fmt: skip


def missing(file: Path, calls: list[tuple[object, int]]) -> list[str]:
    space: dict[str, Any] = {}
    # An import would take the bytecode of another text that was written in the same second.
    exec(compile(file.read_bytes(), str(file), "exec"), space)
    executed = Executed({"f": (file, "f")})
    with executed.watched():
        for call in calls:
            space["f"](*call)
    return [text for _, text in executed.missing().get("f", [])]


@pytest.mark.parametrize("kind", BRANCHES)
def test_a_way_that_was_not_taken_is_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "branches.py"
    file.write_text(f"def f(a, b):\n{BRANCHES[kind]}")
    assert missing(file, [])[0] == "it did not run"
    calls: list[tuple[object, int]] = [
        (a, b) for a in WAYS[kind] for b in ((1, 0) if kind == "compared" else (1,))
    ]
    assert missing(file, calls) == []
    for left_out in WAYS[kind]:
        some = [call for call in calls if call[0] != left_out]
        found = missing(file, some)
        assert found, (kind, left_out)
        assert all(text.startswith("a branch in line ") for text in found)


def test_a_branch_that_only_raises_need_not_run(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    file.write_text("def f(a, b):\n    if a:\n        raise ValueError(b)\n    return b\n")
    assert missing(file, [(0, 1)]) == []
    file.write_text(
        "def f(a, b):\n    if a:\n        b = 1 if b else 2\n        raise ValueError(b)\n    return b\n"
    )
    assert missing(file, [(0, 1)]) == []
    file.write_text("def f(a, b):\n    if a:\n        if b:\n            raise ValueError(b)\n    return b\n")
    assert missing(file, [(0, 1)]) == ["a branch in line 2 did not run"]


def test_an_error_that_leaves_a_with_block_is_no_branch(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    file.write_text(
        "import contextlib\n\n\ndef f(a, b):\n    with contextlib.nullcontext():\n        return b // a\n"
    )
    executed = Executed({"f": (file, "f")})
    space: dict[str, Any] = {}
    exec(compile(file.read_bytes(), str(file), "exec"), space)
    with executed.watched(), contextlib.suppress(ZeroDivisionError):
        space["f"](0, 1)
    assert executed.missing() == {}


def test_a_loop_that_turned_and_ended_has_both_outcomes(tmp_path: Path) -> None:
    """Python asks the condition of a while loop at two places."""
    file = tmp_path / "branches.py"
    file.write_text("def f(a, b):\n    while a:\n        a = 0\n    return b\n")
    assert missing(file, [(1, 1)]) == []
    assert missing(file, [(0, 1)]) == ["a branch in line 2 did not run"]
    file.write_text("def f(a, b):\n    while a is not None:\n        a = None if a else 1\n    return b\n")
    assert missing(file, [(0, 1)]) == []
    file.write_text("def f(a, b):\n    while a is not None:\n        a = None\n    return b\n")
    assert missing(file, [(0, 1)]) == []
    assert missing(file, [(None, 1)]) == ["a branch in line 2 did not run"]
    file.write_text("def f(a, b):\n    for each in a:\n        b += each\n    return b\n")
    assert missing(file, [((2,), 1)]) == []
    assert missing(file, [((), 1)]) == ["a branch in line 2 did not run"]
    file.write_text("def f(a, b):\n    for each in a:\n        return each\n    return b\n")
    assert missing(file, [((2,), 1)]) == ["a branch in line 2 did not run"]
    assert missing(file, [((2,), 1), ((), 1)]) == []


def test_a_loop_before_an_error_need_not_run_and_one_that_may_be_left_has_to(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    text = (
        "def f(a, b):\n    if a:\n        for each in b:\n            LEFT\n        raise ValueError(a)\n"
        "    return b\n"
    )
    file.write_text(text.replace("LEFT", "print(each)"))
    assert missing(file, [(0, 1)]) == []
    file.write_text(text.replace("LEFT", "return each"))
    assert missing(file, [(0, 1)]) == ["a branch in line 2 did not run"]


def test_what_stands_after_a_with_block_counts(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    file.write_text(
        "import contextlib\n\n\ndef f(a, b):\n    with contextlib.nullcontext():\n        b = b + a\n"
        "    if b:\n        return 1\n    return 0\n"
    )
    assert missing(file, [(0, 0)]) == missing(file, [(0, 1)]) == ["a branch in line 7 did not run"]
    assert missing(file, [(0, 0), (0, 1)]) == []


def test_each_branch_that_was_not_taken_is_named_in_the_order_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    file.write_text(
        "def f(a, b):\n    if a:\n        if b:\n            return 1\n        return 2\n"
        "    return 3 if b else 4\n"
    )
    assert missing(file, [(0, 1)]) == [f"a branch in line {line} did not run" for line in (2, 6)]


def test_a_function_inside_that_was_not_called_is_named_and_one_without_a_body_is_not(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    file.write_text("def f(a, b):\n    def inner():\n        return b\n    return inner() if a else 3\n")
    assert missing(file, [(0, 1)]) == ["a branch in line 4 did not run", "inner did not run"]
    assert missing(file, [(0, 1), (1, 1)]) == []
    file.write_text('def f(a, b):\n    """For subclasses."""\n')
    assert missing(file, []) == []
    file.write_text("def f(a, b):\n    print(a)\n")
    assert missing(file, []) == [NOT_AT_ALL]


def test_what_ran_can_be_forgotten_from_a_moment_on(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    file.write_text("def f(a):\n    return 1 if a else 2\n")
    space: dict[str, Any] = {}
    exec(compile(file.read_bytes(), str(file), "exec"), space)
    executed = Executed({"f": (file, "f")})

    def ran(a: int) -> None:
        with executed.watched():
            space["f"](a)

    nothing = executed.noted()
    ran(1)
    once = executed.noted()
    ran(0)
    assert executed.missing() == {}
    executed.go_back(once)
    assert executed.missing() == {"f": [(2, "a branch in line 2 did not run")]}
    ran(0)
    assert executed.missing() == {}
    executed.go_back(nothing)
    assert executed.missing() == {"f": [(1, NOT_AT_ALL)]}


@pytest.mark.parametrize("error", ["ZeroDivisionError", "(ZeroDivisionError, KeyError) as error", ""])
def test_an_error_that_was_not_handled_is_a_branch_unless_it_becomes_another_one(
    tmp_path: Path, error: str
) -> None:
    """What handles it may give a number, and another one since the change."""
    file = tmp_path / "branches.py"
    text = f"def f(a, b):\n    try:\n        b = b // a\n    except {error}:\n        HANDLED\n    return b\n"
    file.write_text(text.replace("HANDLED", "b = 7"))
    assert missing(file, [(1, 1)]) == ["a branch in line 4 did not run"]
    assert missing(file, [(1, 1), (0, 1)]) == []
    file.write_text(text.replace("HANDLED", "raise ValueError(a) from None"))
    assert missing(file, [(1, 1)]) == []
    file.write_text(text.replace(f"except {error}", "finally").replace("HANDLED", "b = 7"))
    assert missing(file, [(1, 1)]) == []


def test_each_error_that_is_handled_is_a_branch(tmp_path: Path) -> None:
    file = tmp_path / "branches.py"
    file.write_text(
        "def f(a, b):\n    try:\n        return b // a\n    except ZeroDivisionError:\n        return 7\n"
        "    except TypeError:\n        return 8\n"
    )
    assert missing(file, [(1, 1), (0, 1)]) == ["a branch in line 4 did not run"]
    assert missing(file, [(1, 1), ("", 1)]) == ["a branch in line 4 did not run"]
    assert missing(file, [(1, 1), (0, 1), ("", 1)]) == []
