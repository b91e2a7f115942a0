"""Images that are corrupted on first use are those of the installed code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ttabench.data import generated_datasets as generated
from ttabench.data.catalog import dataset


def test_images_are_made_again_after_a_change_of_the_code_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    seen = []
    for code, value in (("old", 1), ("old", 2), ("new", 3)):
        monkeypatch.setattr(generated, "code_from", lambda module, code=code: code)
        monkeypatch.setattr(generated, "corrupt", lambda x, *_, value=value, **__: np.full_like(x, value))
        generated.made_with.cache_clear()
        seen.append(int(dataset("digits-c").corrupted("fog", 5).images.max()))
    generated.made_with.cache_clear()
    assert seen == [1, 1, 3]


def test_every_corruption_and_the_libraries_that_it_calls_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from ttabench import provenance

    def value() -> str:
        generated.made_with.cache_clear()
        provenance.code_from.cache_clear()
        return generated.made_with()

    before, hashed = value(), provenance.module_hash
    for changed in ("noise", "elastic", "constants", "bar.warps"):
        monkeypatch.setattr(
            provenance,
            "module_hash",
            lambda name, changed=changed: "0" if name == f"ttabench.corruptions.{changed}" else hashed(name),
        )
        assert value() != before, changed
    monkeypatch.setattr(provenance, "module_hash", hashed)
    assert value() == before
    installed = generated.versions()
    monkeypatch.setattr(generated, "versions", lambda: installed | {"scipy": "0"})
    assert value() != before
    monkeypatch.setattr(generated, "versions", lambda: installed | {"opencv-python": "4.9.0"})
    assert value() != before
    monkeypatch.undo()
    value()
