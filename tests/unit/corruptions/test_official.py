"""Against the published generator: golden pixels of 200 CIFAR-10 images, and the script that replays them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import corruption_statistics as measures
import golden_corruptions as golden
import numpy as np
import pytest
import replay_corruptions as replay_script
from bench_corruptions import synthetic_images
from PIL import Image
from reference_corruptions import reference

from tests.cases import each
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS
from ttabench.corruptions.frost_textures import load_frost_textures, procedural_frost_textures

IMAGES = 200


def opened(folder: Path) -> golden.GoldenFolder:  # type: ignore[name-defined]
    """A golden folder; skips the test where it is not there."""
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return golden.GoldenFolder.open(folder)


@pytest.fixture(scope="module")
def cifar(shared: Path) -> golden.GoldenFolder:  # type: ignore[name-defined]
    return opened(shared / "corruptions" / "cifar10c-official")


@each("name", ALL_CORRUPTIONS)
def test_pixels_of_the_published_generator(name: str, cifar: golden.GoldenFolder, shared: Path) -> None:  # type: ignore[name-defined]
    textures = load_frost_textures(shared / "data" / "frost") if name == "frost" else None
    files = [file for file, entry in cifar.meta["files"].items() if entry["corruption"] == name]
    compared = 0
    for run in (run for file in files for run in cifar.read(file, IMAGES)):
        if cifar.not_comparable(run, textures):
            assert name == "jpeg_compression"  # the files of IJG's libjpeg
            continue
        off = np.abs(cifar.replay(run, textures).astype(int) - run.images)
        assert off.max() <= 1
        assert np.count_nonzero(off) <= 1e-3 * off.size
        compared += 1
    assert compared >= 3  # severities 1, 3 and 5


def test_pixels_of_the_published_generator_at_64_pixels(shared: Path) -> None:
    official = opened(shared / "corruptions" / "tinyimagenetc-official")
    frost = load_frost_textures(shared / "data" / "frost")
    compared = set()
    for run in (run for file in official.meta["files"] for run in official.read(file)):
        textures = frost if run.corruption == "frost" else None
        if official.not_comparable(run, textures):
            continue
        off = np.abs(official.replay(run, textures).astype(int) - run.images)
        assert off.max() <= 1, run
        assert np.count_nonzero(off) <= 1e-3 * off.size, run
        compared.add((run.corruption, run.severity))
    assert compared == {(name, severity) for name in ALL_CORRUPTIONS for severity in range(1, 6)}


# --- the script ---------------------------------------------------------------------------------------------


def write_mosaic(path: Path, images: np.ndarray) -> None:
    """One row of tiles per group: (rows, columns, n, n, 3)."""
    rows, columns, n = images.shape[:3]
    pixels = images.transpose(0, 2, 1, 3, 4).reshape(rows * n, columns * n, 3)
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, lossless=True, exact=True)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A golden folder of the other layout (rows are severities) that the per-image recipes made."""
    folder = tmp_path / "made"
    folder.mkdir()
    clean = synthetic_images(4, 32)
    write_mosaic(folder / "clean.webp", clean[None])
    files = {}
    for name in ("fog", "impulse_noise", "contrast"):
        rows = []
        for severity in range(1, 6):
            rng = np.random.RandomState(70 + severity)
            recipe = reference(name, procedural_frost_textures())
            rows.append(np.stack([recipe(image, severity, rng) for image in clean]))
        pixels = np.stack(rows)
        write_mosaic(folder / f"{name}.webp", pixels)
        digest = hashlib.sha256(pixels.tobytes()).hexdigest()
        files[f"{name}.webp"] = {"seeds": [71, 72, 73, 74, 75], "sha256_of_pixels": digest}
    (folder / "meta.json").write_text(json.dumps({"layout": "tiles 32x32", "files": files}))
    return folder


def test_a_right_folder_passes_and_what_is_missing_is_said(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay_script.main([str(made.parent)]) == 0
    out = capsys.readouterr().out
    for name in ("fog", "impulse_noise", "contrast"):
        for severity in range(1, 6):
            line = next(line for line in out.splitlines() if f"made {name} {severity}" in line)
            assert line.endswith("ok")
    assert "pixels made snow" in out
    assert "no file in meta.json" in out
    assert "no file of reference statistics" in out
    assert out.splitlines()[-1] == "compared=15 failed=0 skipped=17"


def test_wrong_pixels_fail(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta = json.loads((made / "meta.json").read_text())
    pixels = golden.read_mosaic(made / "contrast.webp", 32).reshape(5, 4, 32, 32, 3)
    pixels[2, :, :2, :2] += 1  # 0.4 % of the values of severity 3, by one
    write_mosaic(made / "contrast.webp", pixels)
    assert replay_script.main([str(made)]) == 1
    assert "SHA-256" in capsys.readouterr().out
    del meta["files"]["contrast.webp"]["sha256_of_pixels"]
    (made / "meta.json").write_text(json.dumps(meta))
    assert replay_script.main([str(made)]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.endswith("FAIL")]
    assert len(failed) == 1
    assert "contrast 3" in failed[0]
    assert "0.3906 %" in failed[0]


@each(
    ("files", "message"),
    [
        ({}, "holds neither golden pixels"),
        ({"meta.json": "{"}, "not readable JSON"),
        ({"meta.json": "{}"}, "lists no files"),
        ({"meta.json": '{"files": {"fog.webp": {"seeds": [1]}}}'}, "no clean.webp"),
        ({"reference.json": "["}, "not readable JSON"),
    ],
)
def test_folders_of_something_else(
    files: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert replay_script.main([str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_no_such_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_script.main([str(tmp_path / "nowhere")]) == 2
    assert "no folder" in capsys.readouterr().err


@pytest.fixture
def statistics_of_made(made: Path) -> dict[str, object]:
    """What a file of reference statistics says of the folder's images: three runs of the recipes."""
    clean = golden.read_mosaic(made / "clean.webp", 32)
    ours = measures.statistics(clean, clean)
    entries = {}
    for name in ("gaussian_noise", "contrast"):
        recipe, severities = reference(name, procedural_frost_textures()), {}
        pooled: list[dict[str, np.ndarray]] = []
        for severity in range(1, 6):
            runs = []
            for seed in (1, 2, 3):
                rng = np.random.RandomState(seed)
                runs.append(measures.statistics(np.stack([recipe(i, severity, rng) for i in clean]), clean))
            mean = {key: np.mean([run[key] for run in runs], axis=0) for key in ours}
            pooled.append({key: np.std([run[key] for run in runs], axis=0, ddof=1) for key in ours})
            pooled[-1] |= {f"{key} relative": pooled[-1][key] / np.abs(mean[key]) for key in ours}
            severities[str(severity)] = {"value": plain(runs[0]), "seed_mean": plain(mean)}
        entries[name] = {"severity": severities}
        if name == "gaussian_noise":
            root = {key: np.sqrt(np.mean([p[key] ** 2 for p in pooled], axis=0)) for key in pooled[0]}
            entries[name]["pooled_seed_std"] = {
                key: {"relative": root[f"{key} relative"].tolist(), "absolute": root[key].tolist()}
                for key in ours
            }
    bins = [44, 148, 244, 587]
    return {
        "images": {"n": len(clean)},
        "definitions": {"band_bins": bins},
        "clean": plain(ours),
        "corruptions": entries,
    }


def plain(statistics: dict[str, np.ndarray]) -> dict[str, object]:
    return {key: value.tolist() if value.size > 1 else float(value[0]) for key, value in statistics.items()}


def test_statistics_of_other_draws(
    made: Path, statistics_of_made: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    path = made.parent / "reference.json"
    path.write_text(json.dumps(statistics_of_made))
    assert replay_script.main([str(made.parent)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("statistics 32 px")]
    assert len([line for line in lines if line.endswith("ok")]) == 10
    assert any("snow" in line and "not in reference.json" in line for line in lines)

    # A deviation too large by a twentieth, as of a wrong constant, is found with or without draws.
    for name in ("gaussian_noise", "contrast"):
        wrong = json.loads(path.read_text())
        values = wrong["corruptions"][name]["severity"]["3"]
        for kind in ("value", "seed_mean"):
            values[kind]["mse"] *= 1.1
        path.write_text(json.dumps(wrong))
        assert replay_script.main([str(made.parent)]) == 1
        failed = [line for line in capsys.readouterr().out.splitlines() if line.endswith("FAIL")]
        assert len(failed) == 1
        assert f"{name} 3" in failed[0]
        assert "mse" in failed[0]
        path.write_text(json.dumps(statistics_of_made))


def test_statistics_keep_parseval() -> None:
    rng = np.random.default_rng(0)
    clean, corrupted = rng.integers(0, 256, (2, 3, 32, 32, 3), dtype=np.uint8)
    result = measures.statistics(corrupted, clean)
    total = result["dc_power"] + (result["band_power"] * [44, 148, 244, 587]).sum()
    assert total / 1024 == pytest.approx(result["mse"], rel=1e-5)
    assert result["mad"] == pytest.approx(256 / 3, rel=0.02)  # of two independent uniform levels
