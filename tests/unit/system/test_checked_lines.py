"""Lines with a checksum are read as the JSON of Python reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttabench.cell import canonical
from ttabench.system.checked_lines import MARK, Damaged, _digest, decode, encode

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(codec="ascii", categories=("L", "N", "Zs"))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
)


@given(VALUES)
def test_a_record_is_read_as_it_was_written(value: Any) -> None:
    found = decode(encode({"value": value}).rstrip(b"\n"))
    assert repr(found["value"]) == repr(json.loads(canonical(value)))  # 1, 1.0 and True are equal


@pytest.mark.parametrize(
    ("text", "value"),
    [("NaN", "nan"), ("-Infinity", "-inf"), ("1e999", "inf"), ('"\\ud800"', r"'\\ud800'")],
)
def test_what_only_the_json_of_python_has_is_read_too(text: str, value: str) -> None:
    assert repr(decode(line(text))["value"]) == value


def test_a_line_of_windows_is_the_same_record() -> None:
    assert decode(line("1") + b"\r") == decode(line("1"))
    for wrong in (line("1") + b"\r\r", line("1") + b" ", b"\r" + line("1")):
        with pytest.raises(Damaged):
            decode(wrong)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(Damaged, match="nested too deeply"):
        decode(line("[" * 100_000 + "]" * 100_000))


def line(text: str) -> bytes:
    """A record whose checksum is right."""
    head = f'{{"value":{text}'.encode()
    return head + MARK + _digest(head) + b'"}'
