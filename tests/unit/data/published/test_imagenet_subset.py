"""Subsets of imagenet-c: which images, their identity, partial downloads, --limit and --subset."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.unit import data_fakes as fakes
from ttabench.data import catalog
from ttabench.data.published import imagenet_subset
from ttabench.data.published.imagenet import ImageNetC
from ttabench.data.published.imagenet_subset import balanced, read_list, remember_list
from ttabench.data.verify.audit_dataset import verify
from ttabench.errors import UserError
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.plan import find_sources, plan
from ttabench.sweep.resolve import resolve
from ttabench_reports.words import naming

NAMES = [f"n{c:02}/{i}.JPEG" for c in range(10) for i in range(c + 1)]


@pytest.fixture
def root(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    facts = replace(fakes.FAKE_IMAGENET, name="imagenet-c")
    monkeypatch.setitem(catalog.PUBLISHED, "imagenet-c", facts)
    made = fakes.make_imagenet(own_data)
    for file in list((made / "imagenet" / "val").rglob("*.JPEG")):  # as published: the same names everywhere
        file.rename(file.with_name(file.name.replace("val_", "test_")))
    return made


def fog(root: Path, severity: int = 5) -> Path:
    return root / "ImageNet-C" / "weather" / "fog" / str(severity)


def first_name(root: Path) -> str:
    folder = fog(root)
    file = min(folder.rglob("*.JPEG"))
    return str(file.relative_to(folder))


def test_a_balanced_draw() -> None:
    per_class = Counter(name.split("/")[0] for name in balanced(NAMES, 30, 0, "x"))
    # Classes have 1, 2, … 10 images: the small ones give all, the others as many as each other, or one more.
    for c in range(3):
        assert per_class[f"n{c:02}"] == c + 1
    assert {per_class[f"n{c:02}"] for c in range(4, 10)} <= {3, 4}
    assert sum(per_class.values()) == 30
    assert set(balanced(NAMES, 12, 0, "x")) < set(balanced(NAMES, 30, 0, "x"))
    assert balanced(NAMES, 12, 0, "x") != balanced(NAMES, 12, 1, "x")
    assert balanced(NAMES, 12, 0, "x") == balanced(NAMES, 12, 0, "x")
    for count in (0, 56):
        with pytest.raises(UserError, match="55 images are here; expected 1 to 55"):
            balanced(NAMES, count, 0, "x")


def test_a_draw_is_the_same_images_in_every_folder(root: Path) -> None:
    whole, drawn = catalog.dataset("imagenet-c", root), catalog.dataset("imagenet-c[3]", root)
    assert (whole.name, drawn.name) == ("imagenet-c", "imagenet-c[3]")
    assert type(whole) is ImageNetC
    assert drawn.test().labels.tolist() == [0, 1, 2]
    assert drawn.shifted_count() == 3
    images = drawn.corrupted("fog", 4)
    assert images.labels.tolist() == [0, 1, 2]
    rows = [2 * c + int("_1." in drawn.names[c]) for c in range(3)]
    assert np.array_equal(images.images, whole.corrupted("fog", 4).images[rows])


def test_a_draw_is_the_same_images_whatever_was_downloaded(root: Path) -> None:
    """Also with a corruption before the others that is partly there."""
    drawn = catalog.dataset("imagenet-c[5]", root).names
    assert len(drawn) == 5
    shutil.copytree(fog(root, 5), root / "ImageNet-C" / "noise" / "gaussian_noise" / "5")
    first = root / "ImageNet-C" / "noise" / "gaussian_noise" / "5"
    (first / first_name_of(first)).unlink()
    assert catalog.dataset("imagenet-c[5]", root).names == drawn
    clean = root / "imagenet" / "val" / first_name_of(root / "imagenet" / "val")
    clean.unlink()
    assert catalog.dataset("imagenet-c[5]", root).names == drawn
    name = first_name(root)
    for severity in range(1, 6):
        (fog(root, severity) / name).unlink()
    with pytest.raises(UserError, match=r"imagenet-c\[5\] is drawn from all 6 images, and no folder here"):
        catalog.dataset("imagenet-c[5]", root)
    assert catalog.dataset("imagenet-c", root).name == "imagenet-c[here-5]"


def test_the_subset_is_in_the_identity(root: Path) -> None:
    prints = {name: catalog.dataset(name, root).fingerprint() for name in ("imagenet-c", "imagenet-c[3]")}
    prints |= {s: catalog.dataset(f"imagenet-c[3@{s}]", root).fingerprint() for s in ("1", "2", "3")}
    assert len(set(prints.values())) >= 3  # two seeds may draw the same three of six images
    assert prints["imagenet-c"] != prints["imagenet-c[3]"]
    other = catalog.dataset("imagenet-c[3]", root)
    outside = next(f for f in fog(root).rglob("*.JPEG") if str(f.relative_to(fog(root))) not in other.names)
    outside.write_bytes(outside.read_bytes() + b"0")
    assert catalog.dataset("imagenet-c[3]", root).fingerprint() == prints["imagenet-c[3]"]
    (fog(root) / other.names[1]).write_bytes(outside.read_bytes())
    assert catalog.dataset("imagenet-c[3]", root).fingerprint() != prints["imagenet-c[3]"]


def test_a_draw_has_one_name(root: Path) -> None:
    names = [
        catalog.dataset(f"imagenet-c[{draw}]", root).name for draw in ("3", "03", "3@0", "3@10", "3@010")
    ]
    assert names == [*["imagenet-c[3]"] * 3, *["imagenet-c[3@10]"] * 2]


def test_a_folder_that_is_not_whole_has_another_name(root: Path) -> None:
    name = first_name(root)
    for severity in range(1, 6):
        (fog(root, severity) / name).unlink()
    data = catalog.dataset("imagenet-c", root)
    assert data.name == "imagenet-c[here-5]"
    assert len(data.corrupted("fog", 1)) == len(data.test()) == 5
    assert catalog.dataset(data.name, root).fingerprint() == data.fingerprint()
    (fog(root, 1) / name.replace("test_0", "test_9")).write_bytes((fog(root) / data.names[0]).read_bytes())
    with pytest.raises(UserError, match="holds 6 images now; open it as imagenet-c again"):
        catalog.dataset(data.name, root)


def test_an_image_of_the_subset_that_is_missing(root: Path) -> None:
    data = catalog.dataset("imagenet-c[6]", root)
    name = first_name(root)
    (fog(root) / name).unlink()
    with pytest.raises(UserError, match=rf"lacks 1 of the 6 images of imagenet-c\[6\], such as {name}"):
        data.corrupted("fog", 5)
    assert len(data.corrupted("fog", 4)) == 6


def test_a_list_of_names(root: Path, tmp_path: Path) -> None:
    name = first_name(root)
    file = tmp_path / "My list.txt"
    file.write_text(f"# mine\n\n{name}\n")
    subset = remember_list("imagenet-c", file)
    data = catalog.dataset(f"imagenet-c[{subset}]", root)
    assert subset.startswith("my-list-")
    assert data.names == (name,)
    assert len(data.corrupted("fog", 2)) == 1
    kept = imagenet_subset._kept("imagenet-c", subset)
    kept.write_text("n01/other.JPEG")
    with pytest.raises(UserError, match="was changed; delete it"):
        catalog.dataset(f"imagenet-c[{subset}]", root)
    kept.unlink()
    with pytest.raises(UserError, match=r"is not in the cache .*; give its file again with --subset FILE"):
        catalog.dataset(f"imagenet-c[{subset}]", root)
    with pytest.raises(
        UserError, match=r"imagenet-c\[5k\]: unknown subset; expected imagenet-c\[5000\] with"
    ):
        catalog.dataset("imagenet-c[5k]", root)


@each(
    ("text", "sentence"),
    [
        ("", "names no images"),
        ("n1/a.JPEG\nn1/a.JPEG\n", "names n1/a.JPEG twice"),
        ("a.JPEG\n", "'a.JPEG' is no name of an image; expected <wnid>/<file>"),
        ("../a.JPEG\n", "is no name of an image"),
        ("n1/../a.JPEG\n", "is no name of an image"),
    ],
)
def test_a_wrong_list(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "list.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_list(file)


def test_a_list_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    file = tmp_path / "list.txt"
    file.write_text("n01/a.JPEG\nn01/b.JPEG\n", encoding="utf-8-sig")
    assert read_list(file) == ["n01/a.JPEG", "n01/b.JPEG"]


def test_the_list_of_robustbench(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet_subset, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="comes with the package robustbench, which is not installed here"):
        catalog.dataset("imagenet-c[robustbench-5k]", root)
    spec = ModuleSpec("robustbench", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    (tmp_path / "helper_files").mkdir()
    (tmp_path / imagenet_subset.ROBUSTBENCH_FILE).write_text(first_name(root) + "\n")
    monkeypatch.setattr(imagenet_subset, "find_spec", lambda name: spec)
    assert catalog.dataset("imagenet-c[robustbench-5k]", root).shifted_count() == 1


def grid(**options: str) -> object:
    chosen = {"methods": "source", "archs": "timm/resnet18", "corruptions": "fog", "datasets": "imagenet-c"}
    return make_grid({**DEFAULTS, **chosen, **options})


def test_limit_and_subset_of_a_sweep(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttabench.sweep.resolve.resolve_model", FakeModel)
    both = resolve(grid(limit="4", datasets="imagenet-c,digits-c"))
    assert [model.dataset.name for model in both.models] == ["imagenet-c[4]", "digits-c"]
    assert [part.methods[0].grid.limit for part in both.parts] == [0, 4]
    assert grid(subset="4@7").datasets == ("imagenet-c[4@7]",)
    (tmp_path / "mine.txt").write_text(first_name(root))
    chosen = grid(subset=str(tmp_path / "mine.txt"))
    assert resolve(chosen).models[0].dataset.shifted_count() == 1
    with pytest.raises(UserError, match=r"--limit 2: imagenet-c\[4\] is a subset already"):
        resolve(grid(subset="4", limit="2"))
    with pytest.raises(
        UserError,
        match=r"--subset robustbench-5k is no number of images.*imagenet-c, and --datasets is digits-c",
    ):
        grid(subset="robustbench-5k", datasets="digits-c")
    assert grid(subset="4", datasets="imagenet-c,digits-c").datasets == ("imagenet-c[4]", "digits-c[4]")


def test_a_partial_download_says_what_is_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttabench.sweep.resolve.resolve_model", FakeModel)
    shutil.rmtree(fog(root, 5))
    with pytest.raises(UserError, match=r"no fog at severity 5 here; there: fog 1,2,3,4\. Name these with"):
        resolve(grid())
    with pytest.raises(UserError, match=r"imagenet-c has no snow here; there: fog 1,2,3,4\."):
        resolve(grid(corruptions="snow"))
    name = first_name_of(fog(root, 1))
    for severity in range(1, 5):
        (fog(root, severity) / name).unlink()
    with pytest.warns(UserWarning, match=r"incomplete; measured on the 5 images .* as imagenet-c\[here-5\]"):
        resolve(grid(severities="1"))


def test_corrupted_folders_with_different_images_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is the first in canonical order, and also where as many images have other names."""
    monkeypatch.setattr("ttabench.sweep.resolve.resolve_model", FakeModel)
    interrupted = root / "ImageNet-C" / "noise" / "gaussian_noise" / "1"
    first = first_name_of(fog(root))
    (interrupted / first).parent.mkdir(parents=True)
    shutil.copy(fog(root) / first, interrupted / first)
    with pytest.raises(UserError, match=rf"{interrupted} has 1 image and {fog(root, 1)} has 6, such as n0"):
        resolve(grid())
    shutil.rmtree(interrupted.parent)
    (fog(root) / first).unlink()
    with pytest.raises(
        UserError, match=rf"{fog(root)} has 5 images and {fog(root, 1)} has 6, such as {first}"
    ):
        resolve(grid())
    with pytest.raises(UserError, match=rf"{fog(root)} lacks 1 of the 6 images of imagenet-c\[6\]"):
        resolve(grid(limit="6"))
    assert resolve(grid(severities="1")).models[0].dataset.name == "imagenet-c"
    for severity in range(1, 5):
        (fog(root, severity) / max(fog(root, severity).rglob("*.JPEG"))).unlink()
    with pytest.raises(UserError, match=rf"{fog(root, 1)} has 5 images and {fog(root)} has 5, such as"):
        catalog.dataset("imagenet-c", root)


def test_verify_takes_the_images_that_a_sweep_takes(root: Path) -> None:
    name = first_name(root)

    def found() -> dict[str, str]:
        return {each.level: each.text for each in reversed(verify("imagenet-c", root))}

    for severity in range(1, 6):
        (fog(root, severity) / name).unlink()
    assert "error" not in found()
    assert found()["warning"].endswith("measures the 5 images of each corruption that are in it, as "
                                       "imagenet-c[here-5].")  # fmt: skip
    (fog(root, 3) / first_name_of(fog(root, 3))).unlink()
    assert f"{fog(root, 3)} has 4 images and {fog(root, 1)} has 5" in found()["error"]
    shutil.rmtree(fog(root, 3))
    assert "error" not in found()
    shutil.rmtree(root / "imagenet" / "val" / fakes.WNIDS[0])
    assert "error" in found()


def first_name_of(folder: Path) -> Path:
    return min(folder.rglob("*.JPEG")).relative_to(folder)


class FakeModel:
    ready = True

    def __init__(self, arch: str, data: object, **_: object) -> None:
        self.name, self.aliases = arch, (f"{arch} on {data.name}",)  # type: ignore[attr-defined]
        self.dataset = self.measured = data


def test_clean_images_of_224_pixels_are_not_cropped_once_more(root: Path) -> None:
    pixels = np.arange(224, dtype=np.uint8)[:, None, None].repeat(224, 1).repeat(3, 2)
    for file in (root / "imagenet").rglob("*.JPEG"):
        file.unlink()
        fakes.write_png(file.with_suffix(".png"), pixels)
    data = catalog.dataset("imagenet-c", root)
    assert np.array_equal(data.test().images[0], pixels)
    assert np.array_equal(data.train().images[0], pixels)


def test_names_in_tables() -> None:
    assert naming.dataset("imagenet-c[5000]") == "ImageNet-C [5000 images, balanced]"
    assert naming.dataset("imagenet-c[50@3]") == "ImageNet-C [50 images, balanced, seed 3]"
    assert naming.dataset("imagenet-c[here-9]") == "ImageNet-C [9 images, incomplete]"
    assert naming.dataset("imagenet-c[robustbench-5k]") == "ImageNet-C [robustbench-5k]"
    assert naming.clean("imagenet-c[robustbench-5k]") == "ImageNet [robustbench-5k]"


def test_the_cell_names_the_subset(root: Path) -> None:
    sweep = resolve(make_grid({**DEFAULTS, "methods": "source", "archs": "resnet18_w8", "corruptions": "fog",
                               "datasets": "imagenet-c", "limit": "3"}))  # fmt: skip
    (planned,) = plan(sweep, find_sources(sweep.models, "cpu"))
    assert planned.cell.dataset == "imagenet-c[3]"
    assert planned.cell.protocol.limit == 0
    assert planned.cell.fingerprint == catalog.dataset("imagenet-c[3]", root).fingerprint()
