"""Augmentations, checked image by image and against Pillow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from tests.cases import each
from ttabench.models.training.augment import Sampler, mix
from ttabench.models.training.randaugment import OPERATIONS, randaugment

CPU = torch.device("cpu")


@pytest.fixture
def images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (6, 12, 10, 3), dtype=np.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_sampler_without_augmentation_returns_the_images(images: NDArray[np.uint8]) -> None:
    index = torch.tensor([4, 0, 4])
    x = Sampler(images, CPU).batch(index, generator())
    assert np.array_equal((x * 255).round().permute(0, 2, 3, 1).numpy(), images[index])


def test_every_sample_is_some_shift_and_mirror_of_its_image(images: NDArray[np.uint8]) -> None:
    index = torch.arange(6).repeat(80)
    x = (Sampler(images, CPU, shift=2, flip=True).batch(index, generator()) * 255).round().byte()
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    seen: dict[tuple[int, int, int], int] = {}
    for sample, i in zip(x.permute(0, 2, 3, 1).numpy(), index.tolist(), strict=True):
        for down, right, mirror in np.ndindex(5, 5, 2):
            window = padded[i, down : down + 12, right : right + 10]
            if np.array_equal(sample, window[:, ::-1] if mirror else window):
                seen[down, right, mirror] = seen.get((down, right, mirror), 0) + 1
    assert sum(seen.values()) == len(index)  # each is exactly one of the 50 …
    assert len(seen) == 50  # … and all 50 occur (a given one is missed once in 16,000)


def test_mixup_is_a_convex_combination() -> None:
    x = torch.rand(4, 3, 8, 8)
    targets = torch.eye(4)
    mixed, soft = mix(x, targets, np.random.default_rng(0), mixup=0.8)
    λ = soft[0, 0]
    torch.testing.assert_close(soft.sum(1), torch.ones(4))
    torch.testing.assert_close(mixed, λ * x + (1 - λ) * x.flip(0))


def test_cutmix_weighs_labels_by_area() -> None:
    x = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 16, 16)
    for seed in range(20):
        mixed, soft = mix(x, torch.eye(4), np.random.default_rng(seed), cutmix=1.0)
        kept = (mixed == x).float().mean(dim=(1, 2, 3))
        torch.testing.assert_close(soft.diagonal(), kept)
        assert bool(((mixed == x) | (mixed == x.flip(0))).all())


def test_no_mixing_leaves_the_batch_alone() -> None:
    x, targets = torch.rand(2, 3, 4, 4), torch.eye(2)
    assert mix(x, targets, np.random.default_rng(0)) == (x, targets)


# Signed strength s; what Pillow is told for it.
PILLOW = {
    "autocontrast": lambda image, s: ImageOps.autocontrast(image),
    "equalize": lambda image, s: ImageOps.equalize(image),
    "invert": lambda image, s: ImageOps.invert(image),
    "posterize": lambda image, s: ImageOps.posterize(image, 4 - int(4 * abs(s))),
    "solarize": lambda image, s: ImageOps.solarize(image, 256 - int(abs(s) * 256)),
    "color": lambda image, s: ImageEnhance.Color(image).enhance(1 + 0.9 * s),
    "contrast": lambda image, s: ImageEnhance.Contrast(image).enhance(1 + 0.9 * s),
    "brightness": lambda image, s: ImageEnhance.Brightness(image).enhance(1 + 0.9 * s),
    "sharpness": lambda image, s: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * s),
    "rotate": lambda image, s: image.rotate(30 * s, Image.Resampling.BILINEAR, fillcolor=(128, 128, 128)),
    "shear_x": lambda image, s: _affine(image, 1, 0.3 * s, -0.3 * s * 16, 0, 1, 0),
    "shear_y": lambda image, s: _affine(image, 1, 0, 0, 0.3 * s, 1, -0.3 * s * 16),
    "translate_x": lambda image, s: _affine(image, 1, 0, 0.45 * s * 32, 0, 1, 0),
    "translate_y": lambda image, s: _affine(image, 1, 0, 0, 0, 1, 0.45 * s * 32),
    "solarize_add": lambda image, s: Image.fromarray(
        np.where(np.asarray(image) < 128, np.asarray(image) + int(110 * abs(s)), np.asarray(image)).astype(
            np.uint8
        )
    ),
}


def _affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(
        image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR, fillcolor=(128, 128, 128)
    )


@pytest.fixture(scope="module")
def smooth() -> Tensor:
    """Smooth colourful images (4, 3, 32, 32): interpolation differs little on them, histograms are uneven."""
    rows, columns = np.mgrid[:32, :32] / 31
    waves = [np.sin(k * rows * 3 + c) * np.cos(columns * (k + 2) + c) for k in range(4) for c in range(3)]
    levels = 40 + 170 * (np.stack(waves).reshape(4, 3, 32, 32) / 2 + 0.5) ** 2
    return torch.from_numpy(levels.round().astype(np.uint8))


@each("strength", [-0.9, 0.5])
@each("name", OPERATIONS)
def test_operation_is_pillows(name: str, strength: float, smooth: Tensor) -> None:
    s = torch.full((4, 1, 1, 1), strength)
    ours = (OPERATIONS[name](smooth.float() / 255, s).clamp(0, 1) * 255).round().permute(0, 2, 3, 1).numpy()
    theirs = np.stack(
        [np.asarray(PILLOW[name](Image.fromarray(i.permute(1, 2, 0).numpy()), strength)) for i in smooth]
    ).astype(float)
    off = np.abs(ours - theirs)
    if name in ("rotate", "shear_x", "shear_y", "translate_x", "translate_y"):
        # Pillow's outermost line is all or nothing where ours fades to grey.
        assert np.median(off) <= 1
        assert (off > 3).mean() < 0.1
    else:
        assert off.max() <= 2  # Pillow truncates where we round


def test_randaugment_changes_about_half_of_each_round_and_is_seeded(smooth: Tensor) -> None:
    x = (smooth.float() / 255).repeat(100, 1, 1, 1)
    first = randaugment(x, 9, np.random.default_rng(3))
    assert torch.equal(first, randaugment(x, 9, np.random.default_rng(3)))
    assert first.min() >= 0
    assert first.max() <= 1
    untouched = (first == x).flatten(1).all(1).float().mean()
    assert 0.18 < untouched < 0.34  # (1/2)², standard error 0.02, and a few operations that do nothing


def test_randaugment_sends_its_draws_to_the_device_in_one_array(
    smooth: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    real = torch.from_numpy

    def counted(array: NDArray[np.int32]) -> Tensor:
        sent.append(array)
        return real(array)

    monkeypatch.setattr(torch, "from_numpy", counted)
    randaugment((smooth.float() / 255).repeat(32, 1, 1, 1), 9, np.random.default_rng(3))
    assert len(sent) == 1
