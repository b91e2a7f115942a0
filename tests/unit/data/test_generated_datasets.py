"""Images that are corrupted on first use are those of the installed code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit import other_code
from ttabench.data import generated_datasets as generated
from ttabench.data.catalog import dataset


def test_images_are_made_again_after_a_change_of_the_code_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    seen = []
    for code, value in (("old", 1), ("old", 2), ("new", 3)):
        monkeypatch.setattr(generated, "code_from", lambda *_, code=code: code)
        monkeypatch.setattr(generated, "corrupt", lambda x, *_, value=value, **__: np.full_like(x, value))
        generated.made_with.cache_clear()
        seen.append(int(dataset("digits-c").corrupted("fog", 5).images.max()))
    generated.made_with.cache_clear()
    assert seen == [1, 1, 3]


def test_every_corruption_and_the_libraries_that_it_calls_count(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(other_code.forget)
    edits = other_code.Edits(monkeypatch)

    def value() -> str:
        generated.made_with.cache_clear()
        return generated.made_with()

    before = value()
    for module, *change in (
        ("noise", "def gaussian_noise(", "def gaussian_noise(_more=0, *, "),
        ("elastic", "def _smooth(", "def _smooth(_more=0, *, "),
        ("constants", "(0.75, 0.5, 0.4", "(0.75, 0.5, 0.3"),
        ("bar.warps", "SQUARES = ", "SQUARES = 1 and "),
    ):
        edits.edit(f"ttabench.corruptions.{module}", (change[0], change[1]))
        assert value() != before, module
        edits.undo()
    assert value() == before
    installed = generated.versions()
    monkeypatch.setattr(generated, "versions", lambda: installed | {"scipy": "0"})
    assert value() != before
    generated.made_with.cache_clear()
