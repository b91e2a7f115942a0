"""The environment of a result."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from ttabench.system import environment
from ttabench.system.environment import ALSO_OPENCV, versions


def test_every_distribution_of_opencv_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have the module cv2: a record of only one of them may name a version that was not imported."""
    monkeypatch.setattr(environment, "metadata", metadata)  # what is installed changes
    alone = versions()
    for number, name in enumerate(ALSO_OPENCV):
        about = tmp_path / f"{name.replace('-', '_')}-4.{number}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.{number}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert versions() == alone | {name: f"4.{number}" for number, name in enumerate(ALSO_OPENCV)}
