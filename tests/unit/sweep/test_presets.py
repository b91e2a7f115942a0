"""The usual protocols by name: each file is sound, names its source, and is replaced by flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import each
from tests.unit.conftest import Run
from ttabench.cell.stream_spec import parse_stream
from ttabench.errors import UserError
from ttabench.registry import method_names
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.presets import preset_file, presets
from ttabench.sweep.sweep_file import read_sweep_file, with_flags

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "protocols.md"
SWEEP_FILES = [
    file.relative_to(ROOT).as_posix()
    for folder in ("scripts", "ttabench", "tests/regression")
    for file in sorted((ROOT / folder).rglob("*.toml"))
    if file.name not in ("sources.toml", "gate.toml")
]


@each("name", presets())
def test_each_is_a_grid_of_known_methods_with_its_source(name: str) -> None:
    grid = make_grid(with_flags(read_sweep_file(preset_file(name)), {}))
    assert {text.partition("[")[0] for text in grid.methods} <= set(method_names())
    text = preset_file(name).read_text()
    assert re.search(r"^# Source: .*\(.* et al\., \w+", text, flags=re.MULTILINE)
    assert "# Differs:" in text
    assert f"`{name}`" in DOCS.read_text()


@each("name", SWEEP_FILES)
def test_every_sweep_file_of_the_repository_is_one(name: str) -> None:
    make_grid(with_flags(read_sweep_file(ROOT / name), {}))


def test_the_docs_name_a_sweep_file_with_networks_of_each_package() -> None:
    """And every sweep file that a page names is there."""
    text = (ROOT / "docs" / "bring-your-own.md").read_text()
    table = text[text.index("Sweep files that come with ttabench") :]
    rows = re.findall(r"^\| `([a-z_]+)/` \| `--(protocol|config) (\S+)`[^|]*\|", table, flags=re.MULTILINE)
    assert [prefix for prefix, _, _ in rows] == ["timm", "torchvision", "robustbench", "efficientnet_lite"]
    for prefix, option, name in rows:
        options = read_sweep_file(preset_file(name)) if option == "protocol" else read_sweep_file(ROOT / name)
        assert all(arch.startswith(f"{prefix}/") for arch in make_grid(with_flags(options, {})).archs)
    pages = [file.read_text() for file in (ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"(?:scripts|tests)/[\w/+-]+\.toml", page)}
    assert named <= set(SWEEP_FILES) | {"tests/regression/gate.toml"}


def test_the_wild_settings() -> None:
    mixed = make_grid(with_flags(read_sweep_file(preset_file("wild:mixed")), {}))
    assert (mixed.corruptions, mixed.batch_size) == (("mixed",), 64)
    one = make_grid(with_flags(read_sweep_file(preset_file("wild:batch1")), {}))
    assert (len(one.corruptions), one.batch_size, one.batch_rate) == (15, 1, "official")
    assert mixed.archs == one.archs
    shift = make_grid(with_flags(read_sweep_file(preset_file("wild:labelshift")), {}))
    assert (shift.order, shift.batch_size, shift.archs) == ("dirichlet(0)", 64, one.archs)
    assert [arch.partition(".")[0] for arch in one.archs] == ["timm/resnet50_gn", "timm/vit_base_patch16_224"]


def test_ccc_has_every_speed_at_each_baseline() -> None:
    grid = make_grid(with_flags(read_sweep_file(preset_file("ccc")), {}))
    streams = [grid.stream, *(rule["stream"] for rule in grid.include)]
    specs = [parse_stream(text) for text in streams]
    speeds = {(spec.accuracy, spec.speed) for spec in specs}
    assert speeds == {(a, s) for a in (0, 20, 40) for s in (1000, 2000, 5000)}
    assert {spec.length for spec in specs} == {7_500_000}
    assert grid.seeds == (43, 44, 45)


def test_a_dry_run_tells_its_streams_apart(ttabench: Run, tmp_path: Path) -> None:
    what = ("--methods", "source", "--archs", "cct", "--datasets", "digits-c")
    done = ttabench("sweep", "--protocol", "ccc", *what, "--dry-run", "--out", tmp_path)
    cells = [line for line in done.out.splitlines() if line.startswith("run ")]
    assert len(set(cells)) == len(cells) == 27
    assert "run    source · cct · digits-c · ccc · seed 43 · ccc(40,length=7500000,speed=1000)" in cells


def test_flags_replace_what_a_protocol_says(ttabench: Run, tmp_path: Path) -> None:
    what = ("--methods", "sar", "--archs", "cct", "--datasets", "digits-c", "--corruptions", "fog")
    done = ttabench("sweep", "--protocol", "wild:batch1", *what, "--dry-run", "--out", tmp_path)
    assert done.code == 0, done.err
    assert "sar[lr=3.125e-05] · cct · digits-c · fog-5" in done.out
    assert "--archs cct replaces archs = timm/resnet50_gn" in done.err


def test_an_unknown_one_names_the_nearest(ttabench: Run) -> None:
    with pytest.raises(UserError, match="unknown protocol 'wild:mixd'; did you mean 'wild:mixed'"):
        preset_file("wild:mixd")
    done = ttabench("sweep", "--protocol", "tab")
    assert done.code == 2
    assert "did you mean 'ttab'" in done.err


def test_a_protocol_and_a_file_are_one_too_many(ttabench: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("limit = 9\n")
    done = ttabench("sweep", "--protocol", "ttab", "--config", tmp_path / "mine.toml")
    assert done.code == 2
    assert "are both sweep files; keep one, or copy" in done.err


def test_they_are_listed(ttabench: Run) -> None:
    done = ttabench("list", "protocols")
    assert done.code == 0
    assert all(name in done.out for name in presets())
