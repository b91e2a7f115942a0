"""Arrays that hold no pictures, or the pictures of other rows, are found by ``data verify``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ttabench.corruptions.engine import corrupt
from ttabench.data.digits import Digits
from ttabench.data.verify.picture_checks import Images, of_corruption, of_pixels
from ttabench.data.verify.verify import verify


@pytest.fixture(scope="module")
def clean() -> Images:
    return Digits().test().images[:100]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x: x // 128, "pixels are 0 and 1 only"),
        (lambda x: x * 0, "all pixels have the value 0"),
        (lambda x: x * 0 + 7, "all pixels have the value 7"),
        (lambda x: x % 4, "pixels are 0 to 3 only"),
        (lambda x: np.repeat(x[:1], 100, axis=0), "they are all the same"),
        (lambda x: x, ""),
        (lambda x: x[:1], ""),
    ],
)
def test_pixels_that_are_no_pictures(clean: Images, change: object, says: str) -> None:
    found = " ".join(of_pixels(change(clean).astype(np.uint8)))  # type: ignore[operator]
    assert says in found
    assert bool(says) == bool(found)


@pytest.mark.parametrize(
    "corruption", ["fog", "gaussian_noise", "contrast", "defocus_blur", "pixelate", "brightness"]
)
def test_corruptions_are_held_against_the_clean_images(clean: Images, corruption: str) -> None:
    made = {level: corrupt(clean, corruption, level, seed=0) for level in (1, 3, 5)}

    def found(sets: dict[int, Images]) -> str:
        return " ".join(of_corruption(clean, sets))

    assert found(made) == ""
    assert "the severities may be in reverse" in found({1: made[5], 3: made[3], 5: made[1]})
    order = np.random.default_rng(0).permutation(len(clean))
    assert "may be in another order" in found({level: images[order] for level, images in made.items()})
    assert "severity 3 has the clean images themselves" in found({**made, 3: clean})


def test_verify_names_all_of_it(tmp_path: Path, clean: Images) -> None:
    np.savez(tmp_path / "test.npz", images=clean, labels=np.arange(100) % 4)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(100) % 4, 5))
    levels = [corrupt(clean, "fog", level, seed=0) for level in (5, 4, 3, 2, 1)]
    np.save(tmp_path / "fog.npy", np.concatenate(levels))
    np.save(tmp_path / "fog-5.npy", levels[0])
    np.save(tmp_path / "snow-1.npy", clean)
    texts = " ".join(finding.text for finding in verify(str(tmp_path)))
    assert "fog-5.npy is not read: fog.npy has all severities." in texts
    assert "fog: images at severity 5 are nearer to the clean ones" in texts
    assert "snow: severity 1 has the clean images themselves." in texts
