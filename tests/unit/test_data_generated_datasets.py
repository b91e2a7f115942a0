"""Images that are corrupted on first use are those of the installed code."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from ttabench.data import generated_datasets as generated
from ttabench.data.catalog import dataset
from ttabench.data.digits import Digits


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


def test_clean_digits_are_the_same_from_the_cache_and_without_scikit_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    made = Digits()
    made.train()
    first = generated.CurrentDigits()
    first.train()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)  # an import would fail
    again = generated.CurrentDigits()
    assert again.fingerprint() == first.fingerprint() == made.fingerprint()
    for one, other in zip((made.train(), made.test()), (again.train(), again.test()), strict=True):
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)
        assert (one.images.dtype, one.labels.dtype) == (other.images.dtype, other.labels.dtype)


def test_a_changed_file_of_clean_digits_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    before = generated.CurrentDigits().test().labels
    (file,) = tmp_path.rglob("test-labels.npy")
    np.save(file, np.zeros_like(before))
    np.testing.assert_array_equal(generated.CurrentDigits().test().labels, before)


def test_clean_digits_are_made_again_after_a_change_of_the_code_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    generated.CurrentDigits().train()
    monkeypatch.setattr(generated, "module_hash", lambda module: "another")
    generated.CurrentDigits().train()
    assert len(list(tmp_path.rglob("train-images.npy"))) == 2
