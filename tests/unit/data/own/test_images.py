"""Single images: every kind of file becomes 8-bit RGB, or is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import each
from tests.unit import data_fakes as fakes
from ttabench.data.own.clean_images import read_clean
from ttabench.errors import UserError

GREY = np.arange(256, dtype=np.uint8).repeat(4).reshape(32, 32)


def read(folder: Path) -> np.ndarray:
    return read_clean(folder).images[0]


def test_16_bit_grey_is_scaled_to_8_bit(tmp_path: Path) -> None:
    path = tmp_path / "x" / "a" / "1.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(GREY.astype(np.uint16) * 257).save(path)
    assert (read(tmp_path / "x") == GREY[..., None]).all()


@each("brightest", [1, 255])
def test_8_bit_values_in_a_16_bit_file_are_refused(tmp_path: Path, brightest: int) -> None:
    """Also one such file among many; images that are black, and dark ones of 16 bits, are read."""
    pixels = {"0": GREY.astype(np.uint16) * 257, "1": GREY * 0, "2": GREY.astype(np.uint16) * 0}
    pixels |= {"3": np.full_like(GREY, 256, np.uint16), "4": np.minimum(GREY, brightest).astype(np.uint16)}
    (tmp_path / "x" / "a").mkdir(parents=True)
    for name, image in pixels.items():
        Image.fromarray(image).save(tmp_path / "x" / "a" / f"{name}.png")
    with pytest.raises(UserError, match=rf"4\.png has 16 bits and no value above {brightest}, so it would"):
        read(tmp_path / "x")
    (tmp_path / "x" / "a" / "4.png").unlink()
    images = read_clean(tmp_path / "x").images
    assert [int(image.max()) for image in images] == [255, 0, 0, 1]


def test_a_16_bit_image_and_its_8_bit_twin_are_equal_when_resized(tmp_path: Path) -> None:
    for bits, pixels in (("8", GREY), ("16", GREY.astype(np.uint16) * 257)):
        (tmp_path / bits / "a").mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / bits / "a" / "1.png")
    assert (read_clean(tmp_path / "8", 64).images == read_clean(tmp_path / "16", 64).images).all()


def test_16_bit_grey_with_a_portable_header(tmp_path: Path) -> None:
    path = tmp_path / "x" / "a" / "1.ppm"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"P5 32 32 65535\n" + (GREY.astype(">u2") * 257).tobytes())
    assert (read(tmp_path / "x") == GREY[..., None]).all()


@each("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_other_kinds_become_rgb(tmp_path: Path, mode: str) -> None:
    black_and_white = np.where(GREY > 127, 255, 0).astype(np.uint8)
    path = tmp_path / "x" / "a" / "1.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(black_and_white).convert(mode).save(path)
    assert (read(tmp_path / "x") == black_and_white[..., None]).all()


def test_floating_point_values_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x" / "a" / "1.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(GREY.astype(np.float32)).save(path, format="TIFF")
    with pytest.raises(UserError, match=r"1\.png has floating-point values; save it again as an 8-bit image"):
        read(tmp_path / "x")


@pytest.mark.parametrize("keep", [0, 20, 60])
def test_a_truncated_image_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "x" / "a" / "1.png"
    fakes.write_png(path, fakes.clean_images(1)[0])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        UserError, match=r"1\.png cannot be decoded.*; replace the file, or delete it\.$"
    ) as caught:
        read(tmp_path / "x")
    assert str(caught.value).count("1.png") == 1
