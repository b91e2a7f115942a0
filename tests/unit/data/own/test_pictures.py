"""Arrays that hold no pictures, or the pictures of other rows, are found by ``data verify``."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.sweep.test_shifts import asked
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS
from ttabench.corruptions.engine import corrupt
from ttabench.data.digits import Digits
from ttabench.data.own.picture_checks import Images, of_corruption, of_pixels
from ttabench.data.verify.audit_dataset import verify
from ttabench.errors import UserError
from ttabench.sweep.resolve import resolve


@pytest.fixture(scope="module")
def clean() -> Images:
    return Digits().test().images[:100]


@each(
    ("change", "says"),
    [
        (lambda x: x // 128, "pixels are 0 and 1 only"),
        (lambda x: x * 0, "all pixels are 0; .* Values of 8 bits in a file of 16 bits"),
        (lambda x: x * 0 + 7, "all pixels have the value 7"),
        (lambda x: x % 4, "pixels are 0 to 3 only"),
        (lambda x: np.repeat(x[:1], 100, axis=0), "they are all the same"),
        (lambda x: x, ""),
        (lambda x: x[:1], ""),
        (lambda x: x * (np.arange(100) % 4 > 0)[:, None, None, None], "of 50 images .* have a single value"),
    ],
)
def test_pixels_that_are_no_pictures(clean: Images, change: object, says: str) -> None:
    found = " ".join(of_pixels(change(clean).astype(np.uint8)))  # type: ignore[operator]
    assert re.search(says, found)
    assert bool(says) == bool(found)


def found(clean: Images, sets: dict[int, Images], corruption: str = "") -> str:
    return " ".join(of_corruption(clean, sets, corruption))


def test_no_corruption_is_doubted_as_it_is(clean: Images) -> None:
    """Also those whose distance to the clean images does not grow, and grey images, which do not saturate."""
    some = clean[:40]
    for corruption in ALL_CORRUPTIONS:
        made = {level: corrupt(some, corruption, level, seed=0) for level in (1, 2, 3, 4, 5)}
        assert found(some, made, corruption) == "", corruption


@pytest.mark.parametrize("corruption", ["fog", "gaussian_noise", "defocus_blur"])
def test_corruptions_are_held_against_the_clean_images(clean: Images, corruption: str) -> None:
    made = {level: corrupt(clean, corruption, level, seed=0) for level in (1, 2, 3, 4, 5)}

    def says(**sets: Images) -> str:
        return found(clean, {**made, **{int(level[1]): images for level, images in sets.items()}}, corruption)

    assert says() == ""
    assert "in reverse" in says(s1=made[5], s2=made[4], s4=made[2], s5=made[1])
    if corruption != "gaussian_noise":  # its distances differ by little
        assert "in another order" in says(s2=made[4], s4=made[2])
    order = np.random.default_rng(0).permutation(len(clean))
    assert "rows may be in another order" in found(clean, {level: made[level][order] for level in made})
    if corruption != "fog":  # too little is left of an image
        assert "images at severity 5 are most similar to the clean image of their row" in says(
            s5=made[5][order]
        )
    assert "severity 3 has the clean images themselves." in says(s3=clean)
    mostly = np.where((np.arange(100) % 5 > 0)[:, None, None, None], clean, made[3])
    assert "severity 3 has the clean images themselves, " in says(s3=mostly)
    assert "severities 3 and 4 have the same images" in says(s4=made[3])
    assert "severity 2: pixels are 0 and 1 only" in says(s2=made[2] // 128)
    assert "severity 5: all pixels are 0" in says(s5=made[5] * 0)


def test_verify_names_all_of_it(tmp_path: Path, clean: Images) -> None:
    np.savez(tmp_path / "test.npz", images=clean, labels=np.arange(100) % 4)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(100) % 4, 5))
    levels = [corrupt(clean, "fog", level, seed=0) for level in (5, 4, 3, 2, 1)]
    np.save(tmp_path / "fog.npy", np.concatenate(levels))
    np.save(tmp_path / "fog-5.npy", levels[0])
    np.save(tmp_path / "snow-1.npy", clean)
    with pytest.warns(UserWarning, match="is not read") as told:  # at the start of a sweep
        resolve(asked(datasets=str(tmp_path), corruptions="fog,snow", severities="1"))
    for texts in (
        " ".join(finding.text for finding in verify(str(tmp_path))),
        " ".join(str(warning.message) for warning in told),
    ):
        assert "fog-5.npy is not read: fog.npy has all severities." in texts
        assert "per pixel at severities 1, 2, 3, 4, 5, but it should grow" in texts
        assert "snow: severity 1 has the clean images themselves." in texts


def test_folders_of_images_are_looked_at_when_a_sweep_starts(tmp_path: Path, clean: Images) -> None:
    for part, images in {
        "test": clean,
        "fog/5": corrupt(clean, "fog", 5, seed=0)[::-1],
        "snow/5": clean,
    }.items():
        for row, image in enumerate(images[:40]):
            fakes.write_image(tmp_path / part / f"{row % 2}" / f"{row:02}.png", image)
    with pytest.warns(UserWarning, match="most similar to the clean image") as told:
        resolve(asked(datasets=str(tmp_path), corruptions="fog,snow"))
    texts = " ".join(str(warning.message) for warning in told)
    assert "fog: only" in texts
    assert "snow: severity 5 has the clean images themselves." in texts


def test_8_bits_in_files_of_16_bits_are_refused_when_a_sweep_starts(tmp_path: Path, clean: Images) -> None:
    for part in ("test", "fog/5"):
        for row, image in enumerate(clean[:4]):
            fakes.write_png(tmp_path / part / f"{row % 2}" / f"{row}.png", image)
    Image.fromarray(clean[2, ..., 0].astype(np.uint16)).save(tmp_path / "fog" / "5" / "0" / "2.png")
    with pytest.raises(UserError, match=r"fog/5/0/2\.png has 16 bits and no value above \d+"):
        resolve(asked(datasets=str(tmp_path), corruptions="fog"))


def test_domains_are_not_compared_row_by_row(tmp_path: Path, clean: Images) -> None:
    for domain, images in {"photo": clean[:40], "sketch": clean[40:44]}.items():
        for row, image in enumerate(images):
            fakes.write_image(tmp_path / domain / f"{row % 2}" / f"{row:02}.png", image)
    assert {each.level for each in verify(str(tmp_path / "photo"))} == {"ok"}
