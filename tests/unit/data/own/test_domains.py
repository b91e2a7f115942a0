"""Domain folders, root/domain/class/*: the source is trained on, the domains beside it are the columns."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.conftest import Run
from ttabench.data.catalog import dataset
from ttabench.data.files.image_folders import image_files
from ttabench.data.own import domain_folders
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.doubts import not_read
from ttabench.errors import UserError
from ttabench.store import load_frame
from ttabench.sweep import compute_ratio
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.shifts import find_shifts
from ttabench.sweep.sweep_file import read_sweep_file, with_flags

DOMAINS = ("art", "photo", "sketch")
CLASSES = ("cat", "dog")
EACH = 12  # images per class and domain


@pytest.fixture
def root(tmp_path: Path, own_cache: Path) -> Path:
    for d, domain in enumerate(DOMAINS):
        for c, name in enumerate(CLASSES):
            folder = tmp_path / "Pets" / domain / name
            folder.mkdir(parents=True)
            for k in range(EACH):
                image = fakes.clean_images(1, seed=100 * d + 20 * c + k)[0]
                fakes.write_png(folder / f"{k:02}.png", image)
    return tmp_path / "Pets"


def test_the_folder_is_the_source_and_its_neighbours_the_targets(root: Path) -> None:
    data = dataset(str(root / "photo"))
    assert isinstance(data, DomainFolders)
    assert (data.name, data.corruptions) == ("pets-photo-domains-local", ("art", "sketch"))
    assert (data.num_classes, data.image_size) == (2, 32)
    assert len(data.corrupted("art", 0)) == 2 * EACH
    assert (data.corrupted("art", 0).images != data.corrupted("sketch", 0).images).any()
    assert np.bincount(data.corrupted("art", 0).labels).tolist() == [EACH, EACH]


def test_every_tenth_source_image_of_a_class_is_tested_on_and_no_other(root: Path) -> None:
    data = dataset(str(root / "photo"))
    train, test = data.train(), data.test()
    assert (len(train), len(test)) == (2 * (EACH - 1), 2)
    assert test.labels.tolist() == [0, 1]
    seen = {image.tobytes() for image in np.asarray(train.images)}
    assert len(seen) == len(train)
    assert not seen & {image.tobytes() for image in np.asarray(test.images)}


def test_images_of_several_sizes_or_that_are_not_square_get_224_pixels(root: Path) -> None:
    large = np.zeros((300, 400, 3), np.uint8)
    fakes.write_png(root / "art" / "cat" / "00.png", large)
    data = dataset(str(root / "photo"))
    assert data.image_size == 224
    assert data.corrupted("art", 0).images.shape == (2 * EACH, 224, 224, 3)
    for file in root.rglob("*.png"):
        fakes.write_png(file, large[:32, :48])
    assert dataset(str(root / "photo")).image_size == 224


def test_another_image_is_another_fingerprint(root: Path) -> None:
    before = dataset(str(root / "photo")).fingerprint()
    fakes.write_png(root / "art" / "cat" / "99.png", fakes.clean_images(1, seed=999)[0])
    assert dataset(str(root / "photo")).fingerprint() != before


def test_a_domain_with_other_classes_is_left_out(root: Path) -> None:
    shutil.rmtree(root / "sketch" / "dog")
    assert dataset(str(root / "photo")).corruptions == ("art",)


def test_what_stands_beside_a_dataset_need_not_be_readable(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(folder: Path) -> list[Path]:
        if folder.parent.name in ("sketch", "Pets"):
            raise UserError(f"{folder} cannot be read.")
        return image_files(folder)

    monkeypatch.setattr(domain_folders, "image_files", read)
    data = dataset(str(root / "photo"))
    assert isinstance(data, DomainFolders)
    assert data.corruptions == ("art",)
    assert [text for text in not_read(data) if text.startswith(f"{root}/sketch is no domain here")]
    arrays = root.parent / "arrays"
    arrays.mkdir()
    np.savez(arrays / "test.npz", images=np.zeros((4, 8, 8, 3), np.uint8), labels=[0, 1, 0, 1])
    np.save(arrays / "fog-5.npy", np.zeros((4, 8, 8, 3), np.uint8))
    assert dataset(str(arrays)).corruptions == ("fog",)


def test_the_folder_of_all_domains_names_them(root: Path) -> None:
    with pytest.raises(UserError, match=r"holds the domains art, photo, sketch: give the folder of the one"):
        dataset(str(root))


def test_the_splits_of_one_dataset_are_no_domains(root: Path) -> None:
    (root / "photo").rename(root / "train")
    (root / "art").rename(root / "test")
    with pytest.raises(UserError, match=r"/test has clean images and no corrupted ones\. Run `ttabench"):
        dataset(str(root / "test"))


def test_a_domain_called_like_a_corruption_is_refused(root: Path) -> None:
    (root / "art").rename(root / "fog")
    with pytest.raises(UserError, match="is called like a corruption; rename its folder"):
        dataset(str(root / "photo"))


def test_a_request_for_a_severity_is_refused(root: Path) -> None:
    data = dataset(str(root / "photo"))
    with pytest.raises(UserError, match="art is a domain and has no severities"):
        data.corrupted("art", 5)
    with pytest.raises(UserError, match="did you mean 'sketch'"):
        data.corrupted("sketsh", 0)


def test_the_compute_ratio_of_a_pace_is_measured_on_a_domain(root: Path) -> None:
    """They have no severity at which it could be."""
    data = dataset(str(root / "photo"))
    assert np.array_equal(compute_ratio._corrupted(data).images, data.corrupted("art", 0).images)


def test_a_long_stream_of_domains_is_refused_as_such(root: Path) -> None:
    for stream in ("recurring(2)", "gradual", "ccc(40)"):
        grid = make_grid(with_flags({"methods": "tent", "archs": "resnet18", "stream": stream}, {}))
        with pytest.raises(UserError, match="has art, which is no corruption; leave --stream out"):
            find_shifts(dataset(str(root / "photo")), grid)


def test_a_corruption_of_domains_has_an_advice_that_can_be_followed(root: Path) -> None:
    """It was to name the domains with --corruptions, which takes none."""
    for other in ("fog", "natural"):
        grid = make_grid(with_flags({"corruptions": other}, {}))
        with pytest.raises(UserError, match=r"It has art, sketch: leave --corruptions out for all of these"):
            find_shifts(dataset(str(root / "photo")), grid)


@each("names", ["art", "all,art", "art,fog"])
def test_a_domain_in_place_of_a_corruption_is_told_from_an_unknown_name(root: Path, names: str) -> None:
    given = {"corruptions": names, "datasets": f"digits-c,{root}/photo"}
    with pytest.raises(UserError, match=r"art is a domain beside .*/photo, and domains are measured all tog"):
        make_grid(with_flags(given, {}))
    with pytest.raises(UserError, match="unknown corruption 'art'"):
        make_grid(with_flags({**given, "datasets": "digits-c"}, {}))


def test_a_sweep_file_tells_a_domain_from_an_unknown_name(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(f'datasets = ["digits-c", "{root}/photo"]\ncorruptions = ["fog", "art"]\n')
    with pytest.raises(
        UserError, match=r"art is a domain beside .*/photo, .* together; leave corruptions out"
    ):
        read_sweep_file(file)
    file.write_text('datasets = "digits-c"\ncorruptions = "art"\n')
    with pytest.raises(UserError, match="unknown value of corruptions 'art'"):
        read_sweep_file(file)


def test_a_table_has_the_domains_as_columns(
    ttabench: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_training: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "domain_net.py").write_text(
        "from torch import nn\n\n\ndef build(num_classes=2):\n    return nn.Sequential(nn.Conv2d(3, 4, 3), "
        "nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))\n"
    )
    out = tmp_path / "results"
    what = ("--methods", "tent", "--archs", "domain_net:build", "--datasets", root / "photo")
    done = ttabench("sweep", *what, "--workers", "0", "--out", out)
    assert done.code == 0, done.err
    rows = load_frame(out)
    assert set(rows["corruption"]) == {"art", "sketch"}
    assert set(rows["severity"]) == {0}
    assert set(rows["status"]) == {"ok"}
    again = ttabench("verify", out, "--workers", "0")
    assert again.code == 0, again.out + again.err
    report = ttabench("report", out)
    assert report.code == 0, report.err
    table = (
        (out / "report" / "tables.md").read_text() if (out / "report" / "tables.md").is_file() else done.out
    )
    assert "art" in table.lower()
    assert "sketch" in table.lower()
    assert "severity" not in done.out


@pytest.mark.parametrize("name", ["mixed", "natural", "gradual", "cdc", "mean", "notes"])
def test_names_that_mean_something_else_are_refused(root: Path, name: str) -> None:
    (root / "art").rename(root / name)
    with pytest.raises(UserError, match=f"Pets/{name} cannot be a domain, as {name} has a meaning in"):
        dataset(str(root / "photo"))


@pytest.mark.parametrize("name", ["ar\u200bt", "ar\tt", "\u202etra", "a\x1b[31mrt"])
def test_a_domain_whose_results_could_not_be_read_again_is_refused(
    ttabench: Run, root: Path, tmp_path: Path, name: str
) -> None:
    """Where results are read, such characters are shown as codes, and then the id is that of another cell."""
    (root / "art").rename(root / name)
    what = ("--methods", "tent", "--archs", "resnet20", "--datasets", root / "photo")
    output = ttabench("sweep", *what, "--dry-run", "--out", tmp_path / "results")
    assert output.code == 2, output
    assert "its corruption has characters that are not printed; rename it" in output.err.replace("\n", " ")
    assert not (tmp_path / "results").exists()
