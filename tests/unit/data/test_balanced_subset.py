"""A balanced draw of some images of any dataset: which images, its identity, and sweeps on it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import Run
from ttabench.api.sweeping import run_sweep
from ttabench.cell.subset_names import drawn_from, split_subset
from ttabench.data import catalog
from ttabench.data.balanced_subset import Drawn, balanced_rows
from ttabench.data.catalog import dataset, foreign_set
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.foreign import checked_foreign
from ttabench.data.published.imagenet_subset import balanced
from ttabench.data.verify.audit_dataset import verify
from ttabench.errors import UserError
from ttabench.models.clean_accuracy import clean_accuracy
from ttabench.models.resolve import resolve_model, resolve_trainable
from ttabench.provenance import current_code
from ttabench.run.unchanged_data import file_states
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.resolve import resolve
from ttabench_reports.evidence.given import _is_tuned
from ttabench_reports.words import naming

LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=80)


class Made(Dataset):
    """Image i of a set is filled with i. One corrupted set has other images than the clean one, and more."""

    name, num_classes, image_size = "made-local", 3, 8
    mean = std = (0.5, 0.5, 0.5)
    corruptions = ("fog", "art")

    def fingerprint(self) -> str:
        return "f"

    def train(self) -> Labelled:
        return self._set([0, 1, 2] * 10)

    def test(self) -> Labelled:
        return self._set([0] * 4 + [1] * 4 + [2] * 4)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        return self.test() if corruption == "fog" else self._set([2, 2, 1, 1, 0, 0] * 4)

    def _set(self, labels: list[int]) -> Labelled:
        images = np.arange(len(labels), dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2)
        return Labelled(images.repeat(3, 3), np.array(labels, np.int64))


@given(LABELS, st.integers(0, 2**32), st.data())
def test_a_draw_has_as_many_of_each_class_or_one_more(
    labels: list[int], seed: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(labels)))
    rows = balanced_rows(labels, count, seed, "x")
    assert len(set(rows)) == count
    assert (np.diff(rows) > 0).all()
    drawn, there = (np.bincount(np.array(each), minlength=7) for each in (np.array(labels)[rows], labels))
    left = drawn < there  # of the others, all images are drawn
    if left.any():
        assert drawn[left].max() - drawn[left].min() <= 1
        assert drawn.max() <= drawn[left].min() + 1
    smaller = balanced_rows(labels, data.draw(st.integers(1, count)), seed, "x")
    assert set(smaller) <= set(rows)


def test_draws_of_imagenet_c_are_those_of_stored_results() -> None:
    names = [f"n{c:02}/{i:02}.JPEG" for c in range(10) for i in range(c + 1)]
    drawn = "\n".join(balanced(names, 30, 3, "x"))
    assert hashlib.sha256(drawn.encode()).hexdigest()[:16] == "5098b44c608fec7d"
    unsorted = ["b-c/1", "b/2", "b/1"]  # class folders come in the order of their names
    assert balanced(unsorted, 3, 0, "x") == tuple(sorted(unsorted))


def test_each_set_is_drawn_and_the_training_images_are_whole() -> None:
    data = Drawn(Made(), 6)
    clean, fog, art = data.test(), data.corrupted("fog", 5), data.corrupted("art", 0)
    for each in (clean, fog, art):
        assert np.bincount(each.labels).tolist() == [2, 2, 2]
    assert np.array_equal(clean.images, fog.images)  # image i is the same in all sets with the same labels
    assert (Made().corrupted("art", 0).labels[art.images[:, 0, 0, 0]] == art.labels).all()
    assert len(data.train()) == 30
    assert (data.name, data.shifted_count()) == ("made-local[6]", 6)
    seeds = {Drawn(Made(), 6, seed).corrupted("fog", 5).images.tobytes() for seed in range(5)}
    assert len(seeds) > 1


def test_the_draw_is_in_the_identity() -> None:
    draws = [Drawn(Made(), 6), Drawn(Made(), 7), Drawn(Made(), 6, 3)]
    assert len({"f", *(each.fingerprint() for each in draws)}) == 4
    assert draws[2].name == "made-local[6@3]"
    assert dataset("digits-c[100@0]").name == dataset("digits-c[100]").name == "digits-c[100]"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("digits-c[601]", r"digits-c\[601\]: digits-c has 600 test images; expected 1 to 600"),
        ("digits-c[0]", "expected 1 to 600"),
        ("digits-c[9][3]", r"digits-c\[9\] is a subset already"),
        ("digits-c[x]", r"unknown dataset 'digits-c\[x\]'"),
    ],
)
def test_a_wrong_draw(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        dataset(name)


def test_a_folder_that_is_called_like_a_draw_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "mine[3]").mkdir()
    with pytest.raises(UserError, match=r"mine\[3\] has no clean test set"):
        dataset(str(tmp_path / "mine[3]"))


NAMES = (
    ("digits-c[100]", "digits-c"), ("a-local[5@3]", "a-local"), ("imagenet-c[5000]", "imagenet-c[5000]"),
    ("imagenet-c[here-4]", "imagenet-c[here-4]"), ("imagenet-r[200-way]", "imagenet-r[200-way]"),
    ("imagenet-r[200-way][50]", "imagenet-r[200-way]"), ("imagenet-r[50]", "imagenet-r"),
    ("cifar10-c", "cifar10-c"), ("cifar10-c[x]", "cifar10-c[x]"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "whole"), NAMES)
def test_names(name: str, whole: str) -> None:
    assert drawn_from(name) == whole
    code = current_code("tent", name).definitions
    assert any("Drawn.corrupted" in definition for definition in code) == (name != whole)
    assert split_subset(name)[0] == name.rpartition("[")[0] or name in ("cifar10-c", "cifar10-c[x]")


def test_a_number_depends_on_the_code_that_draws() -> None:
    whole, draw = (current_code("tent", name) for name in ("digits-c", "digits-c[100]"))
    assert any("balanced_rows" in name for name in draw.definitions)
    assert not any("drawn" in name for name in whole.definitions)
    assert set(whole.definitions) < set(draw.definitions)
    own = current_code("tent", "x-domains-local[9]").definitions
    assert any("DomainFolders" in name for name in own)
    foreign = current_code("tent", "cifar10-c", contamination="cifar100-c[50](0.2)").definitions
    assert any("balanced_rows" in name for name in foreign)


def test_networks_are_those_of_the_whole_dataset() -> None:
    whole, draw = dataset("digits-c"), dataset("digits-c[100]")
    model = resolve_model("resnet18", draw)
    assert model.dataset.name == whole.name
    assert model.measured is draw
    assert model.ready
    assert model.load().sha256 == resolve_model("resnet18", whole).load().sha256
    assert resolve_trainable("resnet18", draw).plan == resolve_trainable("resnet18", whole).plan


def test_settings_tuned_on_a_dataset_are_tuned_on_its_draws() -> None:
    plan = {name: resolve(make_grid({**DEFAULTS, "methods": "actmad", "archs": "resnet18", "datasets": name}))
            for name in ("digits-c", "digits-c[100]")}  # fmt: skip
    assert plan["digits-c[100]"].models[0].measured.name == "digits-c[100]"
    assert _is_tuned("On digits-c chosen on the extra corruptions", "digits-c[100]")
    assert not _is_tuned("On digits-c chosen on the extra corruptions", "cifar10-c[100]")


def test_a_draw_as_foreign_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "dataset", lambda name, root=None: Drawn(Made(), 6))
    assert len(foreign_set("made-local[6]").test()) == 6
    with pytest.raises(UserError, match="not foreign for a network"):
        checked_foreign("made-local[6](0.2)", Made())


def test_the_files_of_a_draw_are_watched(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", images=np.zeros((4, 8, 8, 3), np.uint8), labels=[0, 1, 0, 1])
    np.save(tmp_path / "fog-5.npy", np.zeros((4, 8, 8, 3), np.uint8))
    data = dataset(f"{tmp_path}[2]")
    assert file_states(data, "fog", 5) == file_states(dataset(str(tmp_path)), "fog", 5) != {}
    assert dataset(data.name).fingerprint() == data.fingerprint()  # workers open it by its name


def of(**options: object) -> list[str]:
    grid = make_grid({**DEFAULTS, "methods": "source", "archs": "resnet18", "corruptions": "fog", **options})
    return [model.measured.name for model in resolve(grid).models]


def test_options() -> None:
    assert of(limit=60) == ["digits-c"]
    assert of(limit=60, classes="balanced") == of(subset="60") == ["digits-c[60]"]
    assert of(subset="60@3") == ["digits-c[60@3]"]
    grid = make_grid(
        {**DEFAULTS, "methods": "source,tent", "archs": "cct", "subset": "60",
         "per_dataset": {"digits-c": {"seeds": "1"}}, "include": [{"datasets": "digits-c", "seeds": "2"}]}
    )  # fmt: skip
    assert {d for part in resolve(grid).models for d in [part.measured.name]} == {"digits-c[60]"}
    assert "digits-c[60]" in grid.per_dataset
    plain = make_grid({**DEFAULTS})  # folders of earlier sweeps still hold theirs
    assert "classes" not in {*plain.to_options(), *plain.to_json()}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"classes": "balanced"}, "--classes balanced draws the images that --limit counts; add --limit"),
        ({"datasets": "digits-c[60]", "limit": 5}, r"digits-c\[60\] is a subset already"),
        ({"datasets": "digits-c[60]", "limit": 5, "classes": "balanced"}, "is a subset already"),
        ({"subset": "mine.txt"}, "are only for imagenet-c, and --datasets is digits-c"),
        ({"subset": "700"}, "digits-c has 600 test images"),
        ({"classes": "balance", "limit": 5}, "did you mean 'balanced'"),
    ],
)
def test_wrong_options(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        of(**options)


def test_words() -> None:
    assert naming.dataset("cifar100-c[1000@3]") == "CIFAR100-C [1000 images, balanced, seed 3]"
    assert naming.dataset("birds-c-local[50]") == "birds-C (own) [50 images, balanced]"
    assert naming.dataset("imagenet-r[200-way][50]") == "ImageNet-R [200-way head] [50 images, balanced]"
    assert naming.has_own_head("imagenet-r[200-way][50]")
    assert naming.clean("cifar100-c[1000]") == "CIFAR100"


def test_verify_says_how_many_of_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ttabench.data.verify.audit_dataset._read_everything", lambda data, progress: iter(())
    )
    (finding,) = verify("digits-c[105]")
    assert finding.text == "digits-c[105]: 105 images, 10 to 11 of each class."


def test_a_sweep_on_a_draw(tmp_path: Path, ttabench: Run) -> None:
    frame = run_sweep(
        "tent", "resnet18", corruptions="fog", limit=100, classes="balanced", batch_size=20,
        out=tmp_path / "out", workers=0,
    )  # fmt: skip
    assert set(frame["dataset"]) == {"digits-c[100]"}
    assert set(frame["n_images"]) == {100}
    assert set(frame["limit"]) == {0}
    source = frame[frame["method"] == "source"].iloc[0]
    data = dataset("digits-c[100]").corrupted("fog", 5)
    classifier = resolve_model("resnet18", dataset("digits-c")).load().classifier
    assert source["accuracy"] == pytest.approx(clean_accuracy(classifier, data))
    assert "2: 2 done, 0 failed, 0 stale" in ttabench("status", tmp_path / "out").out
    assert "1 the same bit for bit" in ttabench("verify", tmp_path / "out", "--sample", "1").out
    ttabench("report", tmp_path / "out", "--format", "markdown")
    pages = [page.read_text() for page in (tmp_path / "out" / "report").rglob("*.md")]
    assert any(r"Digits-C \[100 images, balanced\]" in page for page in pages)
