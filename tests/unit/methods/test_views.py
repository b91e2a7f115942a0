"""The random views of CoTTA, RoTTA and ROID: what each transform must do, and views in few forward passes."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import affine_transform
from torch import Tensor, nn

from tests.cases import each
from ttabench.classifier import Classifier
from ttabench.conformance.case import Case
from ttabench.conformance.nets import images, nets
from ttabench.conformance.watched_data import Target
from ttabench.nn import use_batch_statistics
from ttabench.registry import method, methods
from ttabench_methods import colour, cotta_views, roid_views, view_average


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What `uniform` returns next, in place of random numbers; all of it has to be drawn."""
    planned: list[float] = []
    for module in (colour, cotta_views):
        monkeypatch.setattr(module, "uniform", lambda low, high: planned.pop(0))
    yield planned
    assert not planned


@each("shape", [(1, 3, 8, 8), (3, 3, 32, 32), (2, 3, 17, 24)])
@each("dtype", [torch.float32, torch.float64])
def test_a_view_is_an_image_of_the_same_kind(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.rand(shape, dtype=dtype)
    for _ in range(10):
        view = cotta_views.random_view(x)
        assert view.shape == x.shape
        assert view.dtype == dtype
        assert view.min() >= 0
        assert view.max() <= 1


def test_one_draw_serves_the_whole_batch() -> None:
    """Copies of one image differ by the noise only, which is drawn for each pixel: σ = 0.005."""
    x = images(1, seed=0)
    for _ in range(5):
        copies = cotta_views.random_view(x.expand(8, -1, -1, -1))
        spread = (copies - copies.mean(0)).abs()
        assert 0 < spread.max() < 8 * 0.005
        assert (copies[0] - x[0]).abs().mean() > 0.01


def test_another_call_is_another_view_and_the_seed_decides_it() -> None:
    x = images(2, seed=0)
    torch.manual_seed(0)
    first, second = cotta_views.random_view(x), cotta_views.random_view(x)
    torch.manual_seed(0)
    assert torch.equal(cotta_views.random_view(x), first)
    assert (first - second).abs().mean() > 0.01


def test_colour_transforms_at_their_neutral_strength_change_nothing() -> None:
    x = torch.rand(4, 3, 8, 8, dtype=torch.float64).clamp(min=1e-6)
    for change, neutral in (
        (colour.brightness, 1),
        (colour.contrast, 1),
        (colour.saturation, 1),
        (colour.hue, 0),
        (colour.gamma, 1),
    ):
        torch.testing.assert_close(change(x, neutral), x, atol=1e-12, rtol=0)


def test_without_saturation_or_contrast_images_are_grey() -> None:
    x = torch.rand(4, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(colour.saturation(x, 0), colour.grey(x).expand_as(x))
    flat = colour.contrast(x, 0)
    torch.testing.assert_close(flat, flat[:, :1, :1, :1].expand_as(x))
    white = torch.ones(1, 3, 2, 2, dtype=torch.float64)
    torch.testing.assert_close(colour.grey(white), white[:, :1] * 0.9999)


@pytest.mark.parametrize("turn", [-0.06, 0.013, 0.06])
def test_hue_agrees_with_colorsys(turn: float) -> None:
    x = torch.rand(1, 3, 16, 16, dtype=torch.float64)
    x[..., :4] = x[..., :4].round(decimals=1)  # ties between the channels, greys among them
    turned = colour.hue(x, turn)[0].flatten(1).T
    for before, after in zip(x[0].flatten(1).T.tolist(), turned.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*before)
        assert after == pytest.approx(colorsys.hsv_to_rgb((h + turn) % 1, s, v), abs=1e-9)


def inner(x: Tensor) -> Tensor:
    """Without the margin that `affine` adds."""
    return x[..., cotta_views.MARGIN : -cotta_views.MARGIN, cotta_views.MARGIN : -cotta_views.MARGIN]


def test_affine_map_without_motion_is_the_image_with_its_border_continued(draws: list[float]) -> None:
    draws += [0.0, 0.0, 0.0, 1.0]
    x = torch.rand(2, 3, 12, 16, dtype=torch.float64)
    torch.testing.assert_close(cotta_views.affine(x), nn.functional.pad(x, (2, 2, 2, 2), mode="replicate"))


def test_affine_map_shifts_to_the_right_and_down_by_whole_pixels(draws: list[float]) -> None:
    draws += [0.0, 1.4, 0.6, 1.0]
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    moved = inner(cotta_views.affine(x))
    torch.testing.assert_close(moved[..., 1:, 1:], x[..., :-1, :-1])


def test_affine_map_turns_clockwise_about_the_centre(draws: list[float]) -> None:
    """At (u, v), y downwards, is the input at (v, −u) for a quarter turn: the bottom comes to the left."""
    draws += [90.0, 0.0, 0.0, 1.0]
    x = torch.rand(1, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(inner(cotta_views.affine(x)), torch.rot90(x, -1, (2, 3)))


def test_affine_map_enlarges_about_the_centre(draws: list[float]) -> None:
    draws += [0.0, 0.0, 0.0, 1.1]
    ramp = torch.linspace(-1, 1, 32, dtype=torch.float64).expand(1, 3, 32, 32)
    torch.testing.assert_close(inner(cotta_views.affine(ramp)), ramp / 1.1)


def test_blur_keeps_what_is_flat_and_weighs_like_a_gaussian() -> None:
    flat = torch.full((1, 3, 9, 9), 0.3, dtype=torch.float64)
    torch.testing.assert_close(cotta_views.blur(flat, 0.5), inner(flat))
    point = torch.zeros(1, 3, 9, 9, dtype=torch.float64)
    point[..., 4, 4] = 1
    spread = cotta_views.blur(point, 0.5)[0, 0]
    assert spread.sum().item() == pytest.approx(1)
    assert (spread[2, 3] / spread[2, 2]).item() == pytest.approx(math.exp(-2))
    assert (spread[3, 3] / spread[2, 2]).item() == pytest.approx(math.exp(-4))
    torch.testing.assert_close(cotta_views.blur(point, 0.001), inner(point))


# ---- ROID's views


@each("shape", [(3, 3, 8, 8), (2, 3, 31, 31), (3, 3, 32, 32), (2, 3, 12, 20)])
@each("seed", range(4))
def test_a_view_of_roid_is_that_of_the_official_steps(shape: tuple[int, ...], seed: int) -> None:
    """Colours, border by reflection, torchvision's affine map, crop, mirror."""
    x = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    height, width = shape[-2:]
    torch.manual_seed(seed)
    view = roid_views.reflected_view(x)
    torch.manual_seed(seed)
    jittered = colour.colour_jitter(x)
    angle, right, down = (colour.uniform(-most, most) for most in (15, width / 8, height / 8))
    scale, mirrored = colour.uniform(0.9, 1.1), torch.rand(1).item() < 0.5
    cos, sin = (math.cos(math.radians(angle)) / scale, math.sin(math.radians(angle)) / scale)
    inverse = np.array([[cos, -sin], [sin, cos]])  # of rows and columns
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    offset = centre - inverse @ (centre + np.array([round(down), round(right)]))
    moved = [
        [affine_transform(channel, inverse, offset, order=1, mode="mirror") for channel in image]
        for image in jittered.numpy()
    ]
    expected = torch.from_numpy(np.array(moved))
    torch.testing.assert_close(view, expected.flip(-1) if mirrored else expected, atol=1e-6, rtol=0)


# ---- many views in few forward passes


@each("name", ["BN CNN", "GN CNN", "LN ViT"])
@each("batch", [1, 7, 40])
@each("limit", [1, 16, 100])
def test_views_together_are_as_views_one_by_one(
    name: str, batch: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_average, "IMAGES_PER_FORWARD_CPU", limit)
    model = nets()[name].double()
    use_batch_statistics(model)
    x = images(batch, seed=2).double()
    torch.manual_seed(0)
    average = view_average.average_over_views(model, x, cotta_views.random_view, 5)
    torch.manual_seed(0)
    with torch.no_grad():
        one_by_one = torch.stack([model(cotta_views.random_view(x)) for _ in range(5)]).mean(0)
    torch.testing.assert_close(average, one_by_one)


@each(("batch", "passes"), [(1, [20, 12]), (7, [14] * 16), (10, [20] * 16), (11, [11] * 32), (40, [40] * 32)])
def test_a_forward_pass_takes_a_bounded_number_of_images(
    batch: int, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_average, "IMAGES_PER_FORWARD_CPU", 20)
    model = nets()["BN CNN"]
    sizes: list[int] = []

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        sizes.append(len(inputs[0]))

    model.register_forward_pre_hook(note)
    view_average.average_over_views(model, images(batch, seed=2), lambda x: x, 32)
    assert sizes == passes


@each("name", sorted(methods().keys() - {"cotta", "rotta", "sotta", "stack"}))
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # of few images
def test_images_that_a_method_makes_have_the_memory_format_of_the_stream(name: str) -> None:
    """Networks are slower with another format."""
    cls = method(name)
    shorter = {"views": 4, "warmup_images": 64, "source_images": 64, "capacity": 12, "update_every": 12}
    shorter |= {"buffer": 64, "sgld_steps": 2}
    config = cls.Config(**{key: shorter[key] for key in shorter.keys() & cls.Config.__dataclass_fields__})
    kind, net = next(it for it in nets().items() if not cls.needs_of(config).unmet(it[1].architecture()))
    made = Case(cls, config, kind, net).fresh()
    seen: list[Tensor] = []
    for part in vars(made).values():
        if isinstance(part, Classifier):
            part.net.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    stream = [images(12, seed=seed).contiguous(memory_format=torch.channels_last) for seed in range(2)]
    for x in stream:
        made.adapt(x)
    made.fit(Target(stream), 1)
    assert seen
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in seen)
