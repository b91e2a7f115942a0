"""Sets of one dataset that do not go together: refused where a sweep takes them to be alike."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.sweep.test_grid import RESNET
from tests.unit.sweep.test_shifts import asked
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.catalog import dataset
from ttabench.data.own.set_checks import largest_set
from ttabench.data.verify.audit_dataset import verify
from ttabench.errors import UserError
from ttabench.sweep.plan import plan
from ttabench.sweep.resolve import Sweep, resolve

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # what random pixels give


def arrays(folder: Path, clean: int = 4, corrupted: int = 4) -> str:
    """The fifteen corruptions of this many images, and labels of their own, beside a clean set."""
    folder.mkdir()
    np.savez(folder / "test.npz", images=fakes.clean_images(clean), labels=np.arange(clean) % 4)
    np.save(folder / "labels.npy", np.tile(np.arange(corrupted) % 4, 5))
    for number, name in enumerate(CORRUPTIONS):
        np.save(folder / f"{name}.npy", fakes.clean_images(5 * corrupted, seed=number))
    return str(folder)


def folders(folder: Path, **images: str) -> Path:
    """``fog_1="cat/0 dog/1"``: the images of fog at severity 1; ``test="cat/0 dog/1"``: the clean ones."""
    for place, names in images.items():
        for number, name in enumerate(names.split()):
            path = folder / place.replace("_", "/") / f"{name}.png"
            fakes.write_image(path, fakes.clean_images(1, seed=number)[0])
    return folder


def resolved(path: str | Path, **options: str | int) -> Sweep:
    return resolve(asked(datasets=str(path), **options))


def test_mixed_needs_the_rows_of_the_clean_set(tmp_path: Path) -> None:
    more = arrays(tmp_path / "More-C", corrupted=8)
    says = "mixed takes each .* and gaussian_noise at severity 5 of more-c-local has 8 images, .* set has 4;"
    for options in ({"corruptions": "mixed"}, {"stream": "mixed"}):
        with pytest.raises(UserError, match=says):
            resolved(more, **options)
    with pytest.raises(UserError, match=says):
        resolved(f"{more}[4]", corruptions="mixed")
    resolved(more, corruptions="fog")
    resolved(arrays(tmp_path / "Same-C"), corruptions="mixed")


def test_mixed_needs_all_fifteen_at_its_severity(tmp_path: Path) -> None:
    folder = tmp_path / "One-C"
    folder.mkdir()
    np.savez(folder / "test.npz", images=fakes.clean_images(4), labels=np.arange(4))
    for name in CORRUPTIONS:
        np.save(folder / f"{name}-1.npy", fakes.clean_images(4))
    resolved(folder, corruptions="mixed", severities="1")
    with pytest.raises(UserError, match="has no gaussian_noise at severity 5; it has 1"):
        resolved(folder, corruptions="mixed")


@each("shape", [(4, 32, 24, 3), (4, 64, 64, 3)])
def test_arrays_have_one_square_size(shape: tuple[int, ...]) -> None:
    with TemporaryDirectory() as place:
        folder, test = Path(arrays(Path(place) / "Mine-C")), np.zeros(shape, np.uint8)
        np.savez(folder / "train.npz", images=fakes.clean_images(8, seed=9), labels=np.arange(8) % 4)
        resolved(folder)
        np.savez(folder / "test.npz", images=test, labels=np.arange(4))
        says = f"test.npz has images of {shape[2]}×{shape[1]} pixels, and train.npz of 32×32; expected square"
        with pytest.raises(UserError, match=says):
            resolved(folder)
        assert [(finding.level, says in finding.text) for finding in verify(str(folder))] == [("error", True)]


@each("stream", ["cdc(1)", "recurring(2)", "gradual"])
def test_long_streams_need_equally_many_images(tmp_path: Path, stream: str) -> None:
    more = arrays(tmp_path / "More-C", corrupted=8)
    with pytest.raises(UserError, match=r"needs equally many images .* has 8, not the 4 of the clean test"):
        resolved(more, stream=stream)
    resolved(f"{more}[4]", stream=stream)
    resolved(arrays(tmp_path / "Same-C"), stream=stream)


def test_a_limit_is_kept_where_corrupted_sets_are_larger(tmp_path: Path) -> None:
    """It counts their images, not those of the clean set."""
    more = arrays(tmp_path / "More-C", corrupted=8)
    assert largest_set(dataset(more)) == 8
    for limit, kept in ((4, 4), (6, 6), (8, 0)):
        planned = plan(resolved(more, corruptions="fog", limit=limit), [RESNET])
        assert {item.cell.protocol.limit for item in planned} == {kept}
    with pytest.raises(UserError, match="--limit 9: more-c-local has 8 test images"):
        resolved(more, limit=9)


def test_the_largest_domain_counts_for_a_limit(tmp_path: Path) -> None:
    photo = " ".join(f"{name}/{number}" for name in ("cat", "dog") for number in range(10))
    folders(tmp_path, photo=photo, art="cat/0 dog/1", sketch="cat/0 cat/1 dog/2 dog/3")
    data = dataset(str(tmp_path / "photo"))
    assert (data.shifted_count(), largest_set(data)) == (2, 4)


CLEAN = "cat/0 cat/1 cat/2 dog/3 dog/4 dog/5"
SAME_NAMES = "cat/0 cat/1 cat/2 dog/0 dog/1 dog/2"


@each(
    ("clean", "corrupted", "says"),
    [
        (CLEAN, "cat/0 cat/1 dog/2 dog/3 dog/4 dog/5", r"dog/2.png is .*test/cat/2.png in .* 1 of 6 have"),
        (CLEAN, "cat/0 cat/1 cat/3 dog/2 dog/4 dog/5", r"cat/3.png is .*test/dog/3.png in .* 2 of 6 have"),
        (CLEAN, "cat/a cat/b dog/c dog/d dog/e dog/f", r"dog/c.png is one of 4 .* dog, .* has 3: fog at sev"),
        (SAME_NAMES, "cat/0 cat/1 dog/0 dog/1 dog/2 dog/7", r"dog/7.png is one of 4 images of dog, .* has 3"),
        (SAME_NAMES, SAME_NAMES, ""),
        (CLEAN, "cat/a cat/b cat/c dog/d dog/e dog/f", ""),
        (CLEAN, "cat/3 dog/4", ""),
    ],
)
def test_the_classes_of_folders_are_those_of_the_clean_set(clean: str, corrupted: str, says: str) -> None:
    with TemporaryDirectory() as place:
        folder = folders(Path(place) / "Pets-C", test=clean, fog_1=corrupted)
        errors = [finding.text for finding in verify(str(folder)) if finding.level == "error"]
        if not says:
            assert errors == []
            resolved(folder, corruptions="fog", severities="1")
            return
        assert len(errors) == 1
        assert re.search(says, errors[0])
        with pytest.raises(UserError, match=says):
            resolved(folder, corruptions="fog", severities="1")
