"""What holds for the corruptions whatever the data: recipes, laws of the draws, fixed points, errors."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib import import_module
from math import sqrt
from pathlib import Path

import cv2
import numpy as np
import pytest
from bench_corruptions import synthetic_images
from golden_corruptions import replay
from numpy.typing import NDArray
from reference_corruptions import reference

from tests.cases import each
from ttabench.corruptions import by_name as registry
from ttabench.corruptions import constants, elastic, engine, frost_textures, hsv, noise, spatter, weather
from ttabench.corruptions.bar.constants import LEVELS
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, CORRUPTIONS, EXTRA_CORRUPTIONS, SEVERITIES
from ttabench.corruptions.engine import corrupt
from ttabench.corruptions.frost_textures import FrostTextures, load_frost_textures, procedural_frost_textures
from ttabench.errors import UserError

Images = NDArray[np.uint8]
RANDOM = [name for name in ALL_CORRUPTIONS if name not in registry.DETERMINISTIC]


@pytest.fixture(scope="module")
def images() -> Images:
    """Colourful, with flat white and black areas, where the last bit decides; more than two blocks."""
    made: Images = synthetic_images(2 * engine.BLOCK + 7, 32)
    made[0], made[1], made[2, :20], made[3, :, :20] = 255, 0, 255, 0
    return made


def flat(size: int, level: int, count: int = 2) -> Images:
    return np.full((count, size, size, 3), level, dtype=np.uint8)


def levels(value: float, size: int = 32, count: int = 200) -> Images:
    """Corrupted independently of each other, for statistics."""
    return flat(size, int(value), count)


# --- names and frame ----------------------------------------------------------------------------------------


def test_names_are_the_field_s() -> None:
    assert len(CORRUPTIONS) == 15
    assert CORRUPTIONS[0] == "gaussian_noise"
    assert CORRUPTIONS[-1] == "jpeg_compression"
    assert EXTRA_CORRUPTIONS == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert CORRUPTIONS + EXTRA_CORRUPTIONS == ALL_CORRUPTIONS
    assert set(registry.DETERMINISTIC) | set(registry.RANDOM) | {"frost"} == set(ALL_CORRUPTIONS)


def test_names_are_light_to_import() -> None:
    code = (
        "import sys; from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, VERSION;"
        "print([m for m in ('numpy', 'scipy', 'cv2', 'torch') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@each("size", [32, 64])
@each("name", ALL_CORRUPTIONS)
def test_five_severities_of_images(name: str, size: int) -> None:
    images: Images = synthetic_images(3, size)
    before = images.copy()
    results = [corrupt(images, name, severity, 0) for severity in SEVERITIES]
    for result in results:
        assert result.shape == images.shape
        assert result.dtype == np.uint8
        assert not np.array_equal(result, images)
    assert len({result.tobytes() for result in results}) == 5
    assert np.array_equal(images, before)


# --- streams ------------------------------------------------------------------------------------------------


@each("name", ALL_CORRUPTIONS)
def test_an_image_s_result_depends_on_its_index_only(name: str, images: Images) -> None:
    whole = corrupt(images, name, 3, 5, workers=1)
    assert np.array_equal(corrupt(images, name, 3, 5, workers=3), whole)
    for start, stop in ((0, 1), (5, 40), (engine.BLOCK, 2 * engine.BLOCK), (60, len(images))):
        assert np.array_equal(corrupt(images[start:stop], name, 3, 5, start=start), whole[start:stop])
    other = images.copy()
    other[:10] = 90
    assert np.array_equal(corrupt(other, name, 3, 5)[10:], whole[10:])


@each("name", ALL_CORRUPTIONS)
def test_the_seed_matters_where_something_is_random(name: str, images: Images) -> None:
    same = np.array_equal(corrupt(images[:4], name, 2, 0), corrupt(images[:4], name, 2, 1))
    assert same == (name in registry.DETERMINISTIC)


@each("name", ALL_CORRUPTIONS)
def test_corrupt_is_apply_of_the_draws(name: str, images: Images) -> None:
    block = images[engine.BLOCK : 2 * engine.BLOCK]
    corruption = registry.get(name)
    draws = corruption.draw(engine.stream(name, 4, 9, block=1), engine.BLOCK, 32, 4)
    expected = corruption.apply(block, draws, 4)
    assert np.array_equal(corruption.apply(block, draws, 4), expected), "apply changed its draws"
    assert np.array_equal(corrupt(images, name, 4, 9)[engine.BLOCK : 2 * engine.BLOCK], expected)


def test_corruptions_and_severities_have_streams_of_their_own() -> None:
    first = {
        engine.stream(name, severity, 0, block).integers(2**63)
        for name in ALL_CORRUPTIONS
        for severity in SEVERITIES
        for block in range(3)
    }
    assert len(first) == len(ALL_CORRUPTIONS) * 5 * 3


def test_constants_are_those_of_the_published_scripts() -> None:
    """They were compared with the scripts by hand. The recipes below read the same tables."""
    common = sorted((name, each) for name, each in vars(constants).items() if name.isupper() and name != "T")
    parts = (common, sorted(LEVELS.items()))
    digests = [hashlib.sha256(repr(part).encode()).hexdigest()[:16] for part in parts]
    assert digests == ["16a4bf9bfff197a8", "66cfc89d53920bd1"]


# --- the recipes, one image at a time -----------------------------------------------------------------------


@each("size", [32, 64])
@each("name", ALL_CORRUPTIONS)
def test_batched_equals_the_plain_recipe(name: str, size: int) -> None:
    """With the same draws, as the per-image reference computes it with other libraries' functions."""
    images: Images = synthetic_images(3, size)
    images[0], images[1, : size // 2] = 255, 255
    textures = procedural_frost_textures()
    plain = reference(name, textures)
    for severity in SEVERITIES:
        ours = replay(images, name, severity, 7, textures, "scipy1.6")
        rng = np.random.RandomState(7)
        expected = np.stack([plain(image, severity, rng) for image in images])
        off = np.abs(ours.astype(int) - expected)
        assert off.max() <= 1
        assert np.count_nonzero(off) <= 1e-3 * off.size


def test_shift_of_the_second_elastic_step_by_whole_pixels() -> None:
    """Smoothing keeps a constant field, so it moves the image by field times amplitude."""
    images: Images = synthetic_images(2, 32)
    step = np.float32(3 / constants.ELASTIC[32][3].amplitude)
    fields = np.zeros((2, 2, 32, 32))
    fields[:, 0] = step  # columns
    for mirror in ("scipy1.5", "scipy1.6"):
        moved = elastic.elastic_transform(images, elastic.Bends(np.zeros((2, 3, 2)), fields), 4, mirror)
        assert np.abs(moved[:, :, :28].astype(int) - images[:, :, 3:31]).max() <= 1


@each("mirror", ["scipy1.5", "scipy1.6"])
@each("severity", SEVERITIES)
def test_elastic_without_shifts_is_the_identity(mirror: elastic.Mirror, severity: int) -> None:
    images: Images = synthetic_images(2, 64)
    still = elastic.Bends(np.zeros((2, 3, 2)), np.zeros((2, 2, 64, 64)))
    assert np.array_equal(elastic.elastic_transform(images, still, severity, mirror), images)


# --- fixed points and bounds --------------------------------------------------------------------------------


@each("name", ["pixelate", "contrast", "elastic_transform"])
@each("level", [0, 37, 128, 255])
def test_flat_images_stay(name: str, level: int) -> None:
    for severity in SEVERITIES:
        off = flat(32, level).astype(int) - corrupt(flat(32, level), name, severity, 0)
        assert 0 <= off.min() <= off.max() <= (0 if name == "pixelate" else 1)


@each("name", ["gaussian_blur", "defocus_blur", "zoom_blur", "motion_blur", "glass_blur", "jpeg_compression"])
def test_blurs_lose_at_most_the_truncation_on_flat_images(name: str) -> None:
    for severity in SEVERITIES:
        off = flat(32, 128).astype(int) - corrupt(flat(32, 128), name, severity, 0)
        assert 0 <= off.min() <= off.max() <= 1


def test_brightness_adds_to_the_value_and_stops_at_white() -> None:
    for severity, added in zip(SEVERITIES, constants.BRIGHTNESS[32], strict=True):
        assert (corrupt(flat(32, 255), "brightness", severity, 0) == 255).all()
        assert (corrupt(flat(32, 0), "brightness", severity, 0) == int(added * 255)).all()


def test_contrast_keeps_the_mean_of_each_channel(images: Images) -> None:
    coloured = images[8:]
    for severity in SEVERITIES:
        result = corrupt(coloured, "contrast", severity, 0)
        loss = coloured.mean(axis=(1, 2)) - result.mean(axis=(1, 2))  # truncation loses half a level
        assert 0 <= loss.min() <= loss.max() <= 1
        factor = result.std(axis=(1, 2)) / coloured.std(axis=(1, 2))
        assert factor == pytest.approx(constants.CONTRAST[32][severity - 1], abs=0.01)


def test_hsv_round_trip_of_every_kind_of_colour() -> None:
    steps = np.arange(0, 256, 5, dtype=np.uint8)
    colours = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 3)
    packed = np.ascontiguousarray(colours.T[None, None])  # (1, 1, 3, N)
    hue, saturation, value = hsv.rgb_to_hsv(packed)
    assert 0 <= hue.min() <= hue.max() < 6
    assert 0 <= saturation.min() <= saturation.max() <= 1
    loss = packed.astype(int) - hsv.hsv_to_rgb(hue, saturation, value)
    assert 0 <= loss.min() <= loss.max() <= 1  # truncation
    assert (value == packed.max(axis=2) / 255).all()


def test_saturate_tints_grey_only_where_it_has_an_offset() -> None:
    for severity in (1, 2, 3):
        assert np.array_equal(corrupt(flat(32, 100), "saturate", severity, 0), flat(32, 100))
    for severity in (4, 5):
        red, green, blue = corrupt(flat(32, 100), "saturate", severity, 0)[0, 0, 0]
        assert red == 100
        assert green == blue < 100


def test_pixelate_has_no_more_rows_and_columns_than_its_small_side(images: Images) -> None:
    for severity, side in zip(SEVERITIES, constants.PIXELATE[32], strict=True):
        result = corrupt(images[8:], "pixelate", severity, 0).astype(int)
        for axis in (1, 2):
            edges = np.diff(result, axis=axis).any(axis=tuple({0, 1, 2, 3} - {axis}))
            assert edges.sum() == side - 1


def test_glass_moves_pixels_from_up_and_left_only() -> None:
    """Severity 1 has no blur at 32 px: one pass, shifts of −1 and 0, the first two rows and columns stay."""
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    result = corrupt(images, "glass_blur", 1, 0)
    assert np.array_equal(result[:, :2], images[:, :2])
    assert np.array_equal(result[:, :, :2], images[:, :, :2])
    inner = result[:, 2:, 2:]
    sources = [images[:, 2 - dy : 32 - dy, 2 - dx : 32 - dx] for dy in (0, 1) for dx in (0, 1)]
    same = np.stack([(inner == source).all(axis=-1) for source in sources])
    assert same.any(axis=0).all()
    assert same.mean(axis=(1, 2, 3)) == pytest.approx(0.25, abs=0.02)


def test_motion_blur_smears_to_the_left_of_what_is_bright() -> None:
    """Taps read to the right, so a bright column spreads to columns before it, never after it."""
    images = np.zeros((30, 32, 32, 3), dtype=np.uint8)
    images[:, :, 16] = 255
    result = corrupt(images, "motion_blur", 5, 0)
    assert (result[:, :, 17:] == 0).all()
    assert (result[:, :, 15] > 0).mean() > 0.5


def test_snow_only_whitens(images: Images) -> None:
    for severity in SEVERITIES:
        assert (corrupt(images, "snow", severity, 0).astype(int) - images).min() >= -1  # truncation


def test_fog_field_spans_zero_to_one_and_leaves_black_black() -> None:
    for size in (32, 64):
        turbulence = weather.draw_turbulence(np.random.default_rng(0), 5, size, 1)
        field = weather.fractal_field(np.moveaxis(turbulence, 0, -1), size, 2.0)
        assert (field.min(axis=(0, 1)) == 0).all()
        assert (field.max(axis=(0, 1)) == 1).all()
        assert (corrupt(flat(size, 0), "fog", 5, 0) == 0).all()


def test_dry_spatter_changes_nothing(images: Images) -> None:
    dry = np.full(images.shape[:3], 0.5, dtype=np.float32)
    for severity in SEVERITIES:
        assert np.array_equal(spatter.spatter(images, dry, severity), images)


# --- laws of the noise --------------------------------------------------------------------------------------


def close_to(value: float, deviation: float) -> object:
    """Within five standard deviations."""
    return pytest.approx(value, abs=5 * deviation)


def test_gaussian_noise_has_the_stated_deviation() -> None:
    for severity, sigma in zip(SEVERITIES, constants.GAUSSIAN_NOISE[32], strict=True):
        noisy = corrupt(levels(128), "gaussian_noise", severity, 0)
        assert noisy.mean() == close_to(
            127.5, 255 * sigma / sqrt(noisy.size)
        )  # truncation loses half a level
        assert noisy.std() == pytest.approx(sqrt((255 * sigma) ** 2 + 1 / 12), rel=0.01)


def test_speckle_noise_grows_with_the_value() -> None:
    for severity, sigma in zip(SEVERITIES, constants.SPECKLE_NOISE[32], strict=True):
        assert (corrupt(levels(0), "speckle_noise", severity, 0) == 0).all()
        assert corrupt(levels(100), "speckle_noise", severity, 0).std() == pytest.approx(
            100 * sigma, rel=0.01
        )


@each("rate", [*constants.SHOT_NOISE[32], *constants.SHOT_NOISE[64]])
def test_alias_tables_hold_the_law_of_shot_noise(rate: float) -> None:
    threshold, alias = noise._alias_tables(rate)
    keep = threshold.reshape(256, 256) / 2**24
    law = keep.copy()
    for row in range(256):
        np.add.at(law[row], alias.reshape(256, 256)[row], 1 - keep[row])
    expected = noise.shot_noise_law(rate)
    assert np.abs(law / 256 - expected).max() < 2**-29
    assert expected.sum(axis=1) == pytest.approx(1, abs=1e-12)


def test_law_of_shot_noise_is_poisson() -> None:
    """Against draws of NumPy's generator, through the same truncation."""
    rng = np.random.default_rng(0)
    for level, rate in ((0, 100.0), (20, 50.0), (130, 100.0), (255, 15.0)):
        counts = rng.poisson(level / 255 * rate, 200_000)
        drawn = np.bincount((np.clip(counts / rate, 0, 1) * 255).astype(np.uint8), minlength=256) / len(
            counts
        )
        law = noise.shot_noise_law(rate)[level]
        assert np.abs(np.cumsum(drawn) - np.cumsum(law)).max() < 2 / sqrt(len(counts))  # Kolmogorov–Smirnov


def test_shot_noise_draws_its_law() -> None:
    for severity, rate in zip(SEVERITIES, constants.SHOT_NOISE[32], strict=True):
        noisy = corrupt(levels(120), "shot_noise", severity, 3)
        drawn = np.bincount(noisy.ravel(), minlength=256) / noisy.size
        distance = np.abs(np.cumsum(drawn) - np.cumsum(noise.shot_noise_law(rate)[120])).max()
        assert distance < 2 / sqrt(noisy.size)


@pytest.mark.parametrize("size", [32, 64])
def test_impulses_hit_the_stated_share_of_values_each_on_its_own(size: int) -> None:
    for severity, amount in zip(SEVERITIES, constants.IMPULSE_NOISE[size], strict=True):
        noisy = corrupt(levels(77, size, 100), "impulse_noise", severity, 0)
        assert set(np.unique(noisy)) == {0, 77, 255}
        hit = noisy != 77
        assert hit.mean() == close_to(amount, sqrt(amount / hit.size))
        white = (noisy[hit] == 255).mean()
        assert white == close_to(0.5, 0.5 / sqrt(hit.sum()))
        pairs = (hit[..., 0] & hit[..., 1]).mean()  # channels are independent
        assert pairs == close_to(amount**2, sqrt(amount**2 / hit[..., 0].size))


@each("name", RANDOM)
def test_draws_of_neighbouring_images_differ(name: str) -> None:
    images = np.broadcast_to(synthetic_images(1, 32), (3, 32, 32, 3)).copy()
    first, second, third = corrupt(images, name, 3, 0)
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)


# --- frost pictures -----------------------------------------------------------------------------------------


def test_built_in_ice_is_always_the_same_and_has_the_published_sizes() -> None:
    textures = procedural_frost_textures()
    sizes = [picture.shape for picture in textures.pictures]
    assert sizes == [(600, 900, 3), (315, 560, 3), (315, 560, 3), (350, 527, 3), (495, 660, 3)]
    again = FrostTextures("procedural", import_module("ttabench.corruptions.built_in_frost").grow_pictures())
    assert again.fingerprint == textures.fingerprint
    assert textures.fingerprint.startswith("procedural:")
    assert len({picture.tobytes() for picture in textures.pictures}) == 5


def test_frost_uses_the_pictures_it_is_given(tmp_path: Path) -> None:
    for number, name in enumerate(frost_textures.OFFICIAL_FILES):
        cv2.imwrite(str(tmp_path / name), np.full((320, 330, 3), 40 * number, dtype=np.uint8))
    textures = load_frost_textures(tmp_path)
    assert textures.fingerprint.startswith("official:")
    assert textures.fingerprint != procedural_frost_textures().fingerprint
    result = corrupt(flat(32, 100, 60), "frost", 3, 0, frost_textures=textures)
    weight = constants.FROST[32][2]
    expected = {int(weight.image * 100 + weight.frost * 40 * number) for number in range(5)}
    assert set(np.unique(result)) == expected


def test_frost_pictures_that_are_not_there_or_too_small(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no readable frost picture at .*frost1\.png"):
        load_frost_textures(tmp_path)
    cv2.imwrite(str(tmp_path / "frost1.png"), np.zeros((100, 400, 3), dtype=np.uint8))
    with pytest.raises(UserError, match="400×100 pixels; expected at least 300×300"):
        load_frost_textures(tmp_path)


# --- bad input ----------------------------------------------------------------------------------------------


def test_unknown_corruption_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown corruption 'motionblur'; did you mean 'motion_blur'"):
        corrupt(flat(32, 0), "motionblur", 1, 0)


@pytest.mark.parametrize("severity", [0, 6, -1])
def test_severity_out_of_range(severity: int) -> None:
    with pytest.raises(UserError, match=f"severity {severity} of fog; expected an integer from 1 to 5"):
        corrupt(flat(32, 0), "fog", severity, 0)


def test_negative_seed() -> None:
    with pytest.raises(UserError, match="seed -3; expected 0 or a positive integer"):
        corrupt(flat(32, 0), "fog", 1, -3)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            np.zeros((2, 28, 28, 3), dtype=np.uint8),
            "28×28 pixels; corruptions have constants for 32×32 and 64×64",
        ),
        (np.zeros((2, 32, 64, 3), dtype=np.uint8), "64×32 pixels"),
        (np.zeros((2, 32, 32), dtype=np.uint8), r"expected \(N, n, n, 3\) and uint8"),
        (np.zeros((2, 32, 32, 3), dtype=np.float32), "type float32; expected"),
    ],
)
def test_images_of_another_kind(images: Images, message: str) -> None:
    with pytest.raises(UserError, match=message):
        corrupt(images, "fog", 1, 0)


def test_no_images() -> None:
    assert corrupt(flat(32, 0, 0), "snow", 1, 0).shape == (0, 32, 32, 3)
