"""The ten corruptions of CIFAR-10-C-bar: equal to the published generator, and what they promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.unit.data_fakes import natural_images
from ttabench.corruptions.bar import cutout, fourier_noise, lines, sparkles, spline_blurs, warps
from ttabench.corruptions.bar.constants import LEVELS
from ttabench.corruptions.by_name import BAR
from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS
from ttabench.corruptions.engine import corrupt
from ttabench.errors import UserError

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "cifar10-c-bar.npz"
DRAWS = {
    "checkerboard_cutout": cutout.Board,
    "inverse_sparkles": sparkles.Stars,
    "sparkles": sparkles.Stars,
    "ripple": warps.Waves,
    "lines": lines.Strokes,
}
# Share of the values that may differ, by one level: halves are rounded, and sums are added, in another order.
DIFFERENT = {"transverse_chromatic_aberration": 0.01, "circular_motion_blur": 1e-3, "sparkles": 1e-3}


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return natural_images(40)


@each("severity", [1, 5])
@each("name", BAR_CORRUPTIONS)
def test_equal_draws_give_the_pixels_of_the_published_generator(name: str, severity: int) -> None:
    """Recorded with the generator at commit c7d90e3 of facebookresearch/augmentation-corruption."""
    with np.load(GOLDEN, allow_pickle=False) as golden:
        key = f"{name}-{severity}"
        kind = DRAWS.get(name)
        draws = golden.get(f"{key}-draws")
        if kind is not None:
            draws = kind(*(golden[f"{key}-{field}"] for field in kind._fields))
        ours = BAR[name].apply(golden["images"], draws, severity)
        difference = np.abs(ours.astype(int) - golden[key])
    assert difference.max() <= 1
    assert np.count_nonzero(difference) <= DIFFERENT.get(name, 1e-3) * difference.size


def test_every_corruption_has_its_levels_and_its_functions() -> None:
    assert set(BAR) == set(LEVELS) == set(BAR_CORRUPTIONS)
    assert all(list(levels) == sorted(levels) for levels in LEVELS.values())


@each("name", BAR_CORRUPTIONS)
def test_an_image_depends_on_its_index_and_the_seed_only(name: str, images: np.ndarray) -> None:
    whole = corrupt(images, name, 3, seed=4)
    assert (corrupt(images[33:36], name, 3, seed=4, start=33) == whole[33:36]).all()
    assert (corrupt(images, name, 3, seed=4, workers=2) == whole).all()
    if name != "circular_motion_blur":  # draws nothing
        assert (corrupt(images, name, 3, seed=5) != whole).any()


@each("name", BAR_CORRUPTIONS)
def test_the_distance_to_the_clean_image_grows_with_the_severity(name: str, images: np.ndarray) -> None:
    distance = [np.abs(corrupt(images, name, s, seed=0) - images.astype(float)).mean() for s in range(1, 6)]
    assert distance[0] > 0
    assert distance[4] > distance[0]


@each("name", BAR_CORRUPTIONS)
def test_other_sizes_have_no_constants(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is defined for 32×32 pixels; images are 64×64"):
        corrupt(np.zeros((1, 64, 64, 3), np.uint8), name, 1, seed=0)


def test_blue_noise_grows_with_frequency_and_brownish_noise_falls() -> None:
    rng = np.random.default_rng(0)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(32), np.fft.fftfreq(32)))
    for power, sign in ((lambda f: f, 1), (lambda f: 1 / (f**2 + 1), -1)):
        noise = fourier_noise._noise(fourier_noise.draw_phases(rng, 200, 32, 1), power)
        assert np.allclose(noise.std(axis=(2, 3)), 1)
        amplitude = np.abs(np.fft.fft2(noise[:, 0])).mean(axis=0)
        assert sign * np.corrcoef(frequency.ravel(), amplitude.ravel())[0, 1] > 0.3


def test_cut_out_fields_are_grey_and_half_of_the_board_stays(images: np.ndarray) -> None:
    board = cutout.draw_board(np.random.default_rng(0), 40, 32, 5)
    everything = cutout.Board(board.angle, board.field, np.zeros_like(board.uniform))
    result = cutout.checkerboard_cutout(images, everything, 5)
    changed = (result != images).any(axis=-1)
    assert (result[changed] == 128).all()
    assert abs(changed.mean() - 0.5) < 0.05


def test_no_wave_and_no_turn_leave_the_image(images: np.ndarray) -> None:
    still = warps.Waves(np.full((40, 2), 1e12), np.zeros((40, 2)))
    assert np.abs(warps.ripple(images, still, 5).astype(int) - images).max() <= 1
    outside = warps.pinch_and_twirl(images, np.ones((40, 3, 3), int), 5)
    assert (outside[:, 30:] == images[:, 30:]).all()  # the nine squares cover 30 × 30 pixels


def test_ripples_move_rows_by_the_sine(images: np.ndarray) -> None:
    quarter = warps.Waves(np.full((40, 2), 1e12), np.full((40, 2), np.pi / 2))  # moves all by the amplitude
    shift = 0.025 * 0.8 * 32
    down = (1 - shift) * images[:, :-1] + shift * images[:, 1:].astype(float)
    both = (1 - shift) * down[:, :, :-1] + shift * down[:, :, 1:]
    assert np.abs(warps.ripple(images, quarter, 5)[:, :-1, :-1] - both).max() <= 1


def test_a_flat_image_stays_flat_where_rotations_and_zooms_read_inside() -> None:
    flat = np.full((3, 32, 32, 3), 128, np.uint8)
    orders = np.array([[0, 1, 2]] * 3)
    blurred = spline_blurs.circular_motion_blur(flat, None, 1)[:, 12:20, 12:20]
    zoomed = spline_blurs.transverse_chromatic_aberration(flat, orders, 5)[:, 6:26, 6:26]
    for inside in (blurred, zoomed):  # in some versions of SciPy, 127.999… is cut to 127
        assert set(np.unique(inside)) <= {127, 128}


def test_channels_are_zoomed_in_the_order_that_was_drawn(images: np.ndarray) -> None:
    first = spline_blurs.transverse_chromatic_aberration(images[:1], np.array([[0, 1, 2]]), 5)
    other = spline_blurs.transverse_chromatic_aberration(images[:1], np.array([[0, 2, 1]]), 5)
    assert (first[..., 0] == other[..., 0]).all()
    assert (first[..., 1] != other[..., 1]).any()


@each("end", [(0, 9), (9, 0), (9, 9), (-7, 3), (4, -11), (0, 0)])
def test_a_line_goes_from_its_start_to_its_end_without_gaps(end: tuple[int, int]) -> None:
    weights = lines._line((0, 0), end)
    assert all(0 <= weight <= 1 for weight in weights.values())
    assert {(0, 0), end} <= set(weights)
    steps = max(map(abs, end))
    for step in range(steps + 1):
        i, j = (round(side * step / max(steps, 1)) for side in end)
        assert max(weights.get((i + a, j + b), 0) for a in (-1, 0, 1) for b in (-1, 0, 1)) >= 0.5


def test_sparkles_only_brighten_and_a_window_only_whitens(images: np.ndarray) -> None:
    for name in ("sparkles", "inverse_sparkles"):
        assert (corrupt(images, name, 3, seed=0) >= images.astype(int) - 1).all()
