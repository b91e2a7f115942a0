"""Paths of ccc streams of others: followed only where ttabench wrote them."""

from __future__ import annotations

import os
from pathlib import Path as File
from typing import Any

import pytest

from tests.cases import each
from ttabench.errors import UserError
from ttabench.measure.streams.ccc_path import LAST, Path
from ttabench.measure.streams.images import Point
from ttabench.store import stream_paths
from ttabench.store.stream_paths import check_path
from ttabench.system.checked_lines import encode

NAME = f"ccc-{'0a' * 8}.json"


def test_what_a_stream_writes_is_taken(tmp_path: File) -> None:
    def accuracy(point: Point) -> float:
        return max(0.0, 90 - 12 * (point.first_severity + point.second_severity))

    path = Path(accuracy, 40.0, ("fog", "snow", "frost"), seed=0)
    for step in range(100):
        path(step)
    (tmp_path / NAME).write_bytes(encode(path.to_json()))
    check_path(tmp_path / NAME)
    assert stream_paths.STEPS == LAST


@each(
    ("known", "says"),
    [
        ({"alone": {}}, "it has no path"),
        ({"alone": [], "legs": {}}, "it has no path"),
        ({"alone": {"fog": [8]}, "legs": {}}, "a corruption without severity or accuracy"),
        ({"alone": {"fog": [21, 40.0]}, "legs": {}}, "a corruption without"),
        ({"alone": {"fog": [8, "40"]}, "legs": {}}, "a corruption without"),
        ({"alone": {}, "legs": {"fog+snow": []}}, "a step without"),  # which would never end
        ({"alone": {}, "legs": {"fog+snow": [[8, 0]]}}, "a step without"),
        ({"alone": {}, "legs": {"fog+snow": [[8, -1, 40.0]]}}, "a step without"),
        ({"alone": {}, "legs": {"fog+snow": [[8, 0.5, 40.0]]}}, "a step without"),
        ({"alone": {}, "legs": {"fog+snow": [[8, 0, 100.5]]}}, "a step without"),
    ],
)
def test_another_path_is_refused(tmp_path: File, known: dict[str, Any], says: str) -> None:
    (tmp_path / NAME).write_bytes(encode(known))
    with pytest.raises(
        UserError, match=f"{NAME} is not what ttabench wrote: .*{says}.*; delete the file, and"
    ):
        check_path(tmp_path / NAME)


def test_a_changed_a_large_and_an_endless_file_are_refused(
    tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / NAME
    whole = encode({"alone": {"fog": [8, 40.0]}, "legs": {}})
    file.write_bytes(whole.replace(b"40", b"41"))
    with pytest.raises(UserError, match="its checksum is not that of its content"):
        check_path(file)
    monkeypatch.setattr(stream_paths, "LARGEST", len(whole) - 1)
    with pytest.raises(UserError, match="it has more than 0 MB"):
        check_path(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UserError, match="a pipe or a device"):
        check_path(file)
