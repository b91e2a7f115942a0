"""Corruptions at 224 pixels: the published generator's pixels, the plain reference, and every door."""

from __future__ import annotations

import warnings
from pathlib import Path

import golden_corruptions as golden
import golden_hashes
import numpy as np
import pytest
import replay_corruptions as replay_script
from bench_corruptions import synthetic_images
from PIL import Image
from reference_corruptions import reference

import ttabench
from tests.cases import each
from tests.unit.corruptions.test_official import opened
from ttabench.corruptions.any_size import corrupt_any_size, saved_as_jpeg
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, SEVERITIES
from ttabench.corruptions.engine import corrupt
from ttabench.corruptions.frost_textures import load_frost_textures, procedural_frost_textures
from ttabench.corruptions.imagenet.engine import corrupt_imagenet
from ttabench.corruptions.sizes import nearest_size
from ttabench.data.own.clean_images import read_clean
from ttabench.data.own.generate_corrupted import generate
from ttabench.data.own.open_own import open_own
from ttabench.errors import UserError

IMAGES = synthetic_images(4, 224)


@pytest.fixture(scope="module")
def official(shared: Path) -> golden.GoldenFolder:  # type: ignore[name-defined]
    return opened(shared / "imagenet" / "official-224")


@each("name", ALL_CORRUPTIONS)
def test_pixels_of_the_published_generator(name: str, official: golden.GoldenFolder, shared: Path) -> None:  # type: ignore[name-defined]
    textures = load_frost_textures(shared / "data" / "frost")
    runs = list(official.read(f"{name}.webp"))
    assert len(runs) == 5
    for run in runs:
        assert np.array_equal(official.replay(run, textures), run.images), run


@each("name", ALL_CORRUPTIONS)
def test_hashes_of_six_images(name: str, official: golden.GoldenFolder, shared: Path) -> None:  # type: ignore[name-defined]
    textures = load_frost_textures(shared / "data" / "frost")
    hashes = golden_hashes.Hashes.of(official)
    for severity in (1, 5):
        equal, count = hashes.equal(name, severity, textures)
        assert count == 6
        assert equal >= replay_script.UNEQUAL.get(("official-224", name), 6)


@each("name", ALL_CORRUPTIONS)
def test_plain_reference(name: str) -> None:
    textures = procedural_frost_textures()
    for severity in (2, 5):
        ours = golden.replay(IMAGES[:1], name, severity, 3, textures, "scipy1.6")[0]
        plain = reference(name, textures)(IMAGES[0], severity, np.random.RandomState(3))
        off = np.abs(ours.astype(int) - plain)
        assert off.max() <= 1
        assert np.count_nonzero(off) <= 1e-3 * off.size


@each("name", ALL_CORRUPTIONS)
def test_depends_on_index_and_seed_alone(name: str) -> None:
    whole = corrupt_any_size(IMAGES, name, 4, 7)
    part = corrupt_any_size(IMAGES[2:3], name, 4, 7, start=2, workers=1)
    assert whole.shape == IMAGES.shape
    assert whole.dtype == np.uint8
    assert np.array_equal(whole[2:3], part)
    same = np.repeat(IMAGES[:1], 2, axis=0)
    first, second = corrupt_any_size(same, name, 4, 7)
    random = name in golden_hashes.registry.RANDOM or name == "frost"
    assert np.array_equal(first, second) != random
    assert np.array_equal(corrupt_any_size(same, name, 4, 8)[0], first) != random


def test_small_sizes_are_as_before() -> None:
    small = synthetic_images(3, 32)
    assert np.array_equal(corrupt_any_size(small, "snow", 3, 1), corrupt(small, "snow", 3, 1))
    assert np.array_equal(ttabench.corrupt(small, "lines", 3), corrupt(small, "lines", 3, 0))


def test_other_sizes_are_resized_with_a_note() -> None:
    images = synthetic_images(2, 160)
    with pytest.warns(UserWarning, match=r"160×160 pixels have no published constants: resized to 224×224"):
        result = ttabench.corrupt(images, "contrast", 5)
    assert result.shape == images.shape
    assert result.std() < 0.3 * images.std()
    with warnings.catch_warnings(action="error"):
        ttabench.corrupt(IMAGES[:1], "contrast", 5)


def test_images_that_are_not_square_are_refused_with_all_sizes() -> None:
    images = np.zeros((1, 224, 300, 3), np.uint8)
    with pytest.raises(UserError, match=r"300×224 pixels; expected square.* for 32, 64, 224 pixels"):
        corrupt_any_size(images, "fog", 3, 0)


@each(("side", "nearest"), [(28, 32), (48, 64), (96, 64), (128, 224), (384, 224)])
def test_nearest_size(side: int, nearest: int) -> None:
    assert nearest_size(side) == nearest


def test_jpeg_of_the_published_files() -> None:
    plain = ttabench.corrupt(IMAGES[:1], "fog", 3)
    saved = ttabench.corrupt(IMAGES[:1], "fog", 3, jpeg=85)
    assert np.array_equal(saved, saved_as_jpeg(plain, 85))
    assert 0 < np.abs(saved.astype(int) - plain).mean() < 20


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("lines", {}, "lines is defined for 32×32 pixels; images are 224×224"),
        ("fog", {"jpeg": 101}, "JPEG quality 101; expected 1 to 100"),
        ("fog", {"jpeg": 8.5}, r"jpeg=8\.5: expected a whole number"),
    ],
)
def test_refused(name: str, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        ttabench.corrupt(IMAGES, name, 3, **options)


def test_generate_at_224_from_photographs(tmp_path: Path) -> None:
    source = tmp_path / "birds" / "test"
    for label, name in enumerate(("crow", "owl")):
        (source / name).mkdir(parents=True)
        for i in range(2):
            picture = Image.fromarray(IMAGES[2 * label + i]).resize((300, 260))
            picture.save(source / name / f"{i}.png")
    with pytest.warns(UserWarning, match=r"all are resized to 224×224 pixels, as --size 224 does"):
        folder = generate(source, root=tmp_path, corruptions=["fog"], severities=[5], workers=0, jpeg=85)
    data = open_own(folder)
    assert data.image_size == 224
    assert data.manifest["constants"] == "ImageNet-C"
    assert data.manifest["jpeg"] == 85
    expected = corrupt_any_size(data.test().images, "fog", 5, 0, jpeg=85)
    assert np.array_equal(data.corrupted("fog", 5).images, expected)
    assert not np.array_equal(expected, corrupt_imagenet(data.test().images, "fog", 5, 0))


def test_files_of_224_pixels_are_not_cropped_once_more(tmp_path: Path) -> None:
    (tmp_path / "a" / "crow").mkdir(parents=True)
    (tmp_path / "b" / "crow").mkdir(parents=True)
    Image.fromarray(IMAGES[0]).save(tmp_path / "a" / "crow" / "0.png")
    assert np.array_equal(read_clean(tmp_path / "a", 224).images[0], IMAGES[0])
    # Larger files: the shorter side to 256, then the centre of 224, as usual for ImageNet.
    large = Image.fromarray(IMAGES[0]).resize((512, 512))
    large.save(tmp_path / "b" / "crow" / "0.png")
    cropped = read_clean(tmp_path / "b", 224).images[0]
    by_hand = np.asarray(large.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240)))
    assert np.array_equal(cropped, by_hand)


def test_severities_do_harm_at_224() -> None:
    harm = [
        np.abs(corrupt_any_size(IMAGES, "gaussian_noise", s, 0).astype(int) - IMAGES).mean()
        for s in SEVERITIES
    ]
    assert harm == sorted(harm)
