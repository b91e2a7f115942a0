"""The reference results: their sweeps name every method, one script makes them, the tables are theirs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import imagenet_1000
import numpy as np
import pandas as pd
import pytest
import real_cifar
import reference_data
import reference_results as script
import tables_of_reference as tables

from tests.cases import each
from tests.unit import data_fakes as fakes
from tests.unit.made_cells import cells
from tests.unit.stored_results import CELL, filled, folder, measured
from tests.unit.sweep_processes import wait_for
from ttabench.cell.protocol import Protocol
from ttabench.cli import main as command_line
from ttabench.corruptions.corruption_names import EXTRA_CORRUPTIONS
from ttabench.data.catalog import dataset
from ttabench.errors import UserError
from ttabench.method.settings import make_config
from ttabench.method.spelling import split_list
from ttabench.models.architectures.build import build
from ttabench.models.checkpoints.cache import PRETRAINED, open_described, read
from ttabench.registry import method as find_method
from ttabench.registry import method_names
from ttabench.store import Store
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.presets import preset_file
from ttabench.sweep.sweep_file import read_sweep_file
from ttabench_reports.cells import load
from ttabench_reports.evidence.report import Report

ROOT = script.ROOT
FOLDERS = sorted({script.folder(file) for file in script.sweeps()})
ALL_TEST_IMAGES = ("cifar10-test-", "cifar100-test-")  # without MEMO, which is too costly
PHOTOGRAPHS = ("imagenet-1000", "imagenet-500")  # costly: some methods, some of them on a few corruptions
THREE = ("gaussian_noise", "defocus_blur", "contrast")
FIVE = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
WILD = [name for name in FOLDERS if name.startswith("wild-")]  # the methods of the presets
SOME = ("unknown-real-cifar10", "newer-real-cifar10-resnet20")  # some methods, for one question
LADDERS = [name for name in FOLDERS if name.startswith("ladder-")]
SETTINGS = [name for name in FOLDERS if name.startswith("settings-")]
OF_QUANTILE = (*LADDERS, *SETTINGS)  # on the page of quantile matching, under extra corruptions
COSTS = "costs-digits-c"  # times on a quiet machine, of one corruption
NEWER = ("rmt", "note", "adacontrast", "tea", "asr", "rem", "dpcore", "spa")  # in a section of the page
FORMS = ("quantile_strict", "quantile_selected")  # not measured yet
ON_GPU = {"cifar10-own"}  # measured on a GPU, by the commands on the page


def methods_of(name: str) -> list[str]:
    """The methods of a folder's sweep files that run each as its paper did, variants by their method."""
    files = [file for file in script.sweeps([name]) if file.stem.partition("+")[2] in ("", "slow")]
    configs = [read_sweep_file(file) for file in files]
    return [method for config in configs for method in split_list(str(config["methods"]))]


@each("name", [name for name in FOLDERS if name not in (*WILD, *SOME, *OF_QUANTILE, COSTS)])
def test_the_sweeps_of_a_folder_name_every_method_once(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    all_methods = set(project["entry-points"]["ttabench.methods"])
    named = methods_of(name)
    assert len(named) == len(set(named))
    left_out = {*NEWER, *FORMS, *(["memo"] if name.startswith(ALL_TEST_IMAGES) else [])}
    if name in PHOTOGRAPHS:
        needed = {find_method(method.partition("[")[0]).needs.source_data for method in named}
        assert needed == ({""} if name == "imagenet-1000" else {"", "images", "statistics", "features"})
        return
    assert {method.partition("[")[0] for method in named} == all_methods - left_out


def test_the_page_names_the_methods_that_its_tables_do_not_have() -> None:
    page = (ROOT / "docs" / "reference-results.md").read_text(encoding="utf-8")
    digits = page.split("\n## digits-c\n")[1].split("<!--")[0]
    newer = page.split("\n## Newer methods on real CIFAR-10\n")[1].split("<!--")[0]
    assert "(#newer-methods-on-real-cifar-10)" in digits
    assert [name for name in FORMS if f"`{name}`" not in digits] == []
    assert set(NEWER) <= set(re.findall(r"\w+", newer.lower()))


@each("file", script.sweeps(), ids=lambda file: file.stem)
def test_a_sweep_file_is_one_of_the_fifteen_corruptions_at_severity_5(file: Path) -> None:
    grid = make_grid({**DEFAULTS, **read_sweep_file(file)})
    if script.folder(file) == "imagenet-500":
        assert grid.corruptions == THREE
    elif script.folder(file) in LADDERS:
        assert grid.corruptions == EXTRA_CORRUPTIONS
    elif script.folder(file) in SETTINGS:
        assert grid.corruptions == ("speckle_noise", "gaussian_blur")
    elif script.folder(file) == COSTS:
        assert grid.corruptions == ("fog",)
    elif file.stem.startswith("wild-mixed-"):
        assert grid.corruptions == ("mixed",)  # all fifteen in one stream
    elif "five corruptions" in script.title(file):
        assert grid.corruptions == FIVE
    else:
        assert len(grid.corruptions) == 15
    assert grid.severities == (5,)
    assert script.title(file).endswith(".")


def test_every_own_dataset_of_a_sweep_file_can_be_made() -> None:
    grids = [make_grid({**DEFAULTS, **read_sweep_file(file)}) for file in script.sweeps()]
    own = {name for grid in grids for name in grid.datasets if name.endswith(script.SUFFIX)}
    assert own <= reference_data.MAKERS.keys()
    assert {reference_data.ALL_100, imagenet_1000.HALF} <= own


@pytest.mark.parametrize("file", script.sweeps(WILD), ids=lambda file: file.stem)
def test_the_wild_sweeps_are_the_presets_on_networks_that_come_with_ttabench(file: Path) -> None:
    usual = make_grid({**DEFAULTS, **read_sweep_file(preset_file(":".join(file.stem.split("-")[:2])))})
    grid = make_grid({**DEFAULTS, **read_sweep_file(file)})
    assert {*grid.methods} == {"source", *usual.methods}
    assert {*grid.corruptions} <= {*usual.corruptions}
    for name in ("order", "stream", "batch_size", "batch_rate"):
        assert getattr(grid, name) == getattr(usual, name)


@pytest.mark.parametrize("stream", ["dirichlet", "recurring"])
def test_every_network_sees_the_same_methods_on_a_stream(stream: str) -> None:
    files = [file for file in script.sweeps() if file.stem.endswith(f"+{stream}")]
    assert len(files) > 1
    assert len({str(read_sweep_file(file)["methods"]) for file in files}) == 1
    grids = [make_grid({**DEFAULTS, **read_sweep_file(file)}) for file in files]
    assert len({(grid.order, grid.stream) for grid in grids}) == 1


def test_networks_with_epochs_of_their_own_are_in_these_folders_and_trained() -> None:
    grids = [(script.folder(file), read_sweep_file(file)) for file in script.sweeps()]
    trained = {(folder, str(sweep["archs"])) for folder, sweep in grids if "checkpoint" not in sweep}
    assert script.EPOCHS.keys() <= {(folder, *split_list(archs)) for folder, archs in trained}


def test_networks_of_a_folder_are_trained_for_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, commands = tmp_path / "cct_2-1.safetensors", []
    weights.write_bytes(b"")
    plan = SimpleNamespace(path=Path("cct_2-fast-portable-1.json"))
    state = SimpleNamespace(ready=False, weights=lambda: weights, plan=plan)

    def model(arch: str, known: object, *, recipe: str, epochs: int) -> object:
        state.asked = recipe, epochs
        return state

    monkeypatch.setattr("ttabench.models.resolve.resolve_trainable", model)
    monkeypatch.setattr(script, "make", lambda name, *_: SimpleNamespace(name=name))
    monkeypatch.setattr(script, "run", lambda *arguments: commands.append(arguments))
    (tmp_path / "data").mkdir()
    for name, epochs in (
        ("real-cifar10-cct_2", 0),
        ("wild-mixed-real-cifar10+cct_2", 8),
        ("real-cifar10-cvt_2", 130),
    ):
        made = script.prepare(script.SWEEPS / f"{name}.toml", tmp_path / "data")
        assert made == {"--checkpoint": tmp_path / "data" / weights.name}
        assert state.asked == ("fast-portable", epochs)
    assert [command[-1] for command in commands] == ["fast-portable", "8", "130"]
    kept = script.ROOT / "weights"
    note = json.dumps({"weights": "cct_2-2.safetensors"})
    monkeypatch.setattr(script, "WEIGHTS", kept)
    monkeypatch.setattr("ttabench.models.checkpoints.cache._read", lambda file: json.loads(note))
    made = script.prepare(script.SWEEPS / "real-cifar10-cct_2.toml", tmp_path / "data")
    assert made == {"--checkpoint": Path("weights/cct_2-2.safetensors")}
    assert len(commands) == 3


OFFLINE_FILES = [file for file in script.sweeps() if file.stem.endswith("+offline")]


@each("file", OFFLINE_FILES, ids=lambda file: file.stem)
def test_all_alignment_methods_run_offline_for_the_epochs_of_quantile_matching(file: Path) -> None:
    """Those that are offline in their paper are in the other files of the folder.

    On the 10,000 images and at 224 pixels these are some of them.
    """
    grid = make_grid({**DEFAULTS, **read_sweep_file(file)})
    (dataset,) = grid.datasets
    quantile = find_method("quantile")
    assert grid.epochs == make_config(quantile, {}, quantile.for_dataset(dataset, 10)).epochs
    if file.stem.startswith((*ALL_TEST_IMAGES, *PHOTOGRAPHS)):
        return
    transformers = [arch for arch in grid.archs if not arch.startswith("resnet")]
    online = {
        name
        for name, cls in ((name, find_method(name)) for name in method_names())
        if cls.family == "alignment" and cls.mode == "online"
        and (transformers or "transformer" not in cls.needs.tags)
    }  # fmt: skip
    assert online <= set(grid.methods)


def test_online_methods_stand_offline_beside_quantile_for_as_many_epochs(tmp_path: Path) -> None:
    """A table has a line for each mode of a method."""
    right = np.arange(40) < 30
    offline = replace(CELL, protocol=Protocol(mode="offline", epochs=3))
    filled(tmp_path / "digits-c", measured(CELL, right), measured(offline, ~right))
    text = tables.means(tables.report([tmp_path / "digits-c"]))
    assert "| TENT | – | 75.0 |" in text
    assert "| TENT<sup>†</sup> | 3 ep. | 25.0 |" in text


def test_an_unknown_reference_is_one_sentence() -> None:
    with pytest.raises(UserError, match="did you mean 'digits-c'"):
        script.sweeps(["digit-c"])


def test_the_script_fills_a_folder_merges_it_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ["--only", "digits-c+slow", "--workers", "0", "--out", str(tmp_path), "--"]
    sweep = ["--archs", "resnet18", "--corruptions", "fog", "--limit", "20", "--methods"]
    monkeypatch.setattr(sys, "argv", ["script", *given, "--workers", "0", *sweep, "bn_stats"])

    def here(command: Sequence[str], cwd: Path) -> SimpleNamespace:
        def wait() -> int:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(cwd)
                patch.setattr(sys, "argv", command[len(script.TTABENCH) - 1 :])
                with pytest.raises(SystemExit) as ended:
                    command_line()
            return int(ended.value.code or 0)

        return SimpleNamespace(wait=wait)

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(Popen=here))
    assert script.main() == 0
    output = capfd.readouterr()
    assert "bn_stats         resnet18" in output.out
    (shard,) = (tmp_path / "digits-c" / "cells").iterdir()
    assert len(Store.at(tmp_path / "digits-c").latest()) == 2
    assert script.main() == 0
    assert "0 to run, 2 done" in capfd.readouterr().err
    assert [*(tmp_path / "digits-c" / "cells").iterdir()] == [shard]


RESNET20 = ROOT / "scripts" / "reference" / "cifar10-test-resnet20.toml"


def test_all_test_images_are_made_from_published_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no folder ../shared: the batches of CIFAR-10 and the pictures of frost."""
    few = fakes.FAKE_CIFAR10
    test, train = fakes.clean_images(few.test), fakes.clean_images(few.train, seed=1)
    batches, frost = tmp_path / "cifar-10-batches-py", tmp_path / "frost"
    fakes.write_batch(batches / "test_batch", test, fakes.labels_for(few.test, 10))
    for i, part in enumerate(np.split(train, 5), 1):
        fakes.write_batch(batches / f"data_batch_{i}", part, fakes.labels_for(len(part), 10))
    fakes.make_frost(frost)
    monkeypatch.setattr(reference_data, "SHARED", tmp_path / "absent")
    monkeypatch.setattr(real_cifar, "CIFAR10_C", few)
    published = script.Published(batches, frost)

    assert script.prepare(RESNET20, tmp_path / "data", published) == {}  # its sweep file names the weights
    made = dataset(str(tmp_path / "data" / reference_data.ALL_10))
    assert len(made.corruptions) == 15
    assert (made.test().images == test).all()
    assert (made.train().images == train).all()

    monkeypatch.setattr(script, "trained", lambda arch, *_: Path(arch))
    cct, given = RESNET20.with_name("cifar10-test-cct_2.toml"), ["--checkpoint=cct.pt"]
    assert script.prepare(cct, tmp_path / "data", published) == {"--checkpoint": Path("cct_2")}
    assert script.prepare(cct, tmp_path / "data", published, given) == {}  # nothing is trained

    with pytest.raises(UserError, match="not published"):
        script.prepare(RESNET20.with_name("real-cifar10-resnet20.toml"), tmp_path / "data", published)
    with pytest.raises(UserError, match="take --cifar10 and --frost instead"):
        script.prepare(RESNET20, tmp_path / "data")


def test_options_after_the_dashes_replace_those_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"--workers": "auto", "--limit": "60"}
    assert script.without(own, ["--workers", "2", "--seeds=1"]) == ["--limit", "60"]
    assert script.without(own, ["--limit=9"]) == ["--workers", "auto"]
    monkeypatch.setattr(sys, "argv", ["script", "--only", "digits-c", "--", "--out", "elsewhere"])
    with pytest.raises(UserError, match="--out after --: the script sets it; choose it before the --"):
        script.main()


STOPPED = """
import json
import subprocess
import sys
import time
sys.path.append(sys.argv[1])
import reference_results as script
child = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(''); time.sleep(600)"
script.TTABENCH = (sys.executable, "-c", child)
try:
    script.run(sys.argv[2])
except script.UserError as problem:
    sys.exit(str(problem))
"""


def test_the_sweep_ends_with_the_script(tmp_path: Path) -> None:
    started = tmp_path / "started"
    arguments = [sys.executable, "-c", STOPPED, str(ROOT / "scripts"), str(started)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(started.exists)
        process.terminate()
        _, message = process.communicate(timeout=300)  # the child has the pipe too: it ended
    finally:
        process.kill()
    assert process.returncode == 1
    assert "ended with exit code -15; the same command goes on from there." in message


# ---- tables


read_once = cache(load.read_one)
report_once = cache(tables.report)


@pytest.fixture
def read_folders_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and the picture show the same folders."""
    monkeypatch.setattr(load, "read_one", lambda folder: read_once(folder).copy())


# Most of the time goes into the many folders of these pages; the others have tables of the same kinds.
AT_NIGHT = ("reference-results.md", "which-method.md")
PAGES = [
    pytest.param(file, id=file.name, marks=pytest.mark.slow if file.name in AT_NIGHT else ())
    for file in tables.FILES
]


@pytest.mark.usefixtures("read_folders_once")
@pytest.mark.parametrize("file", PAGES)
def test_the_tables_are_those_of_the_reference_results(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "report", report_once)
    text = file.read_text(encoding="utf-8")
    assert tables.named(text) <= {*FOLDERS, *ON_GPU}
    assert tables.fill(text, tables.RESULTS) == text, "run python scripts/tables_of_reference.py"


@pytest.mark.usefixtures("read_folders_once")
def test_the_picture_of_the_readme_is_that_of_the_reference_results() -> None:
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    drawing = ("contourpy", "matplotlib", "numpy", "pandas", "pillow", "seaborn")
    if {f"{name}=={version(name)}" for name in drawing} - {*pinned}:
        pytest.skip("other versions draw other bytes")
    assert tables.PICTURE.read_bytes() == tables.picture(tables.RESULTS)


def test_every_reference_that_is_measured_has_its_tables() -> None:
    shown = tables.named((ROOT / "docs" / "reference-results.md").read_text())
    assert shown <= {*FOLDERS, *ON_GPU}
    assert COSTS in tables.named((ROOT / "docs" / "reference-tables.md").read_text())
    held = {path.name for path in tables.RESULTS.glob("*") if (path / "sweep.json").exists()}
    assert held - {COSTS, *OF_QUANTILE} <= shown
    assert held & {*OF_QUANTILE} <= tables.named((ROOT / "docs" / "quantile.md").read_text())


@each("name", [*FOLDERS, *ON_GPU])
def test_reference_results_were_made_with_this_code(name: str) -> None:
    results = tables.RESULTS / name
    if not (results / "sweep.json").exists():
        pytest.skip(f"{name} is not measured yet")
    assert changes_since(results) == set()


def test_the_results_of_digits_c_were_made_with_the_weights_of_the_package() -> None:
    described = [read(file) for file in (PRETRAINED / "digits-c").glob("*.json")]
    packaged = {one.note["sha256"] for one in described if one is not None}
    assert len(packaged) == 2
    records = Store.at(tables.RESULTS / "digits-c").latest(quick=True).values()
    assert {record.data["cell"]["checkpoint"] for record in records} == packaged


def test_stored_weights_are_those_of_stored_results() -> None:
    """The hash in a JSON file is that of its weights, and cells were measured with them."""
    measured = {
        record.data["cell"]["checkpoint"]
        for folder in tables.RESULTS.iterdir() if (folder / "sweep.json").is_file()
        for record in Store.at(folder).latest(quick=True).values()
    }  # fmt: skip
    for file in script.WEIGHTS.glob("*.json"):
        described = read(file)
        assert described is not None
        note = described.note
        make = partial(
            build, note["arch"], dataset=note["dataset"], num_classes=100 if "100" in note["dataset"] else 10,
            image_size=32, mean=note["mean"], std=note["std"],
        )  # fmt: skip
        assert open_described(described, make).sha256 in measured


def changes_since(results: Path) -> set[str]:
    """What changed since any of the stored results was measured, by method."""
    records = Store.at(results).latest(quick=True).values()
    assert len(records) > 0
    return {f"{r.data['cell']['method']}: {change}" for r in records for change in r.changes}


TEXT = "before\n<!-- reference one: {} -->\nas it was\n<!-- end of reference -->\nafter\n"


@each("kind", sorted(tables.KINDS.keys() - {"scores", "times", "costs", "unknown"}))
def test_a_table_follows_its_store(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    right = {(corruption, 0): rng.random(600) < 0.8 for corruption in ("fog", "snow")}
    folder(tmp_path / "one", right)
    text = tables.fill(TEXT.format(kind), tmp_path)
    assert text.startswith("before\n")
    assert text.endswith("<!-- end of reference -->\nafter\n")
    assert "as it was" not in text
    mean = sum(100 * bits.mean() for bits in right.values()) / len(right)
    assert f"{mean:.1f}" in text
    assert "stale" not in text
    assert tables.fill(text, tmp_path) == text
    key, bits = next(iter(right.items()))
    folder(tmp_path / "one", {key: ~bits})  # measured again, with another outcome
    assert tables.fill(text, tmp_path) != text


def test_the_time_of_a_network_is_that_of_all_its_cells_on_streams_too() -> None:
    usual, paced = cells(("source", "tent"), ("cct",)), cells(("source", "tent"), ("cct",), pace=1.0)
    frame = pd.concat([usual, paced], ignore_index=True)
    frame = frame.assign(seconds=3600.0, processor="P", versions="numpy 2 torch 2.13.0 scipy 1")
    assert tables.times(Report(frame)).splitlines()[2:] == [
        f"| Digits-C: CCT | {len(frame)} | {len(frame)}.0 | P | 2.13.0 |"
    ]


def test_a_cell_of_a_busy_machine_has_the_time_of_the_others_of_its_row(tmp_path: Path) -> None:
    writer = Store.create(tmp_path / "one", {"methods": ["source"]}).writer()
    for corruption, seconds in {"fog": 1e6, "snow": 2400.0, "frost": 2400.0}.items():
        one = measured(replace(CELL, corruption=corruption), np.ones(4, bool))
        writer.append(replace(one, seconds=seconds))
    writer.close()
    assert " | 3 | 2.0 | " in tables.fill(TEXT.format("times"), tmp_path)
    assert script.costs(tmp_path / "one").splitlines()[-1].split() == ["in", "all", "120.0", "min"]


def test_the_first_screen_of_the_readme_has_one_command_one_table_and_one_picture() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert lines[0] == "# ttabench"
    assert lines[2].startswith("A benchmark harness for test-time adaptation")
    end = lines.index("<!-- end of reference -->")
    screen = lines[: end + 1]
    assert len(screen) <= 36
    assert sum(line.startswith("![") for line in screen) == 1
    assert sum(line.startswith("python3 -m venv") for line in screen) == 1
    table = [line for line in screen if line.startswith("|")]
    assert len(table) <= 7
    assert max(map(len, table)) <= 120
    assert not any("<!-- reference" in line for line in lines[end:])  # wide tables are on the reference page


def test_the_best_online_and_the_best_offline_method_of_a_network_are_bold() -> None:
    online = cells(("source", "tent", "sar"), ("cct",), corruptions=("fog", "snow"))
    offline = cells(("quantile",), ("cct",), corruptions=("fog", "snow"), mode="offline")
    frame = pd.concat([online, offline], ignore_index=True)
    frame["accuracy"] = frame["method"].map({"source": 50.0, "tent": 60.0, "sar": 55.0, "quantile": 90.0})
    _, _, line = tables.networks(Report(frame)).splitlines()[:3]
    assert line == "| Digits-C: CCT | 50.0 | 55.0 | **60.0** | **90.0** |"


def test_a_method_without_a_mean_has_no_line_of_means() -> None:
    frame = pd.concat([cells(("source", "tent")), cells(("sar",), corruptions=("fog", "snow"))])
    text = tables.means(Report(frame.reset_index(drop=True)))
    assert "| TENT |" in text
    assert "| SAR |" not in text
    assert text.rstrip().endswith("Measured under some of the corruptions: SAR.")


def test_a_line_of_means_has_the_settings_that_all_networks_share() -> None:
    labels = {
        "resnet18": ("source", "come[K=10]", "tent"),
        "cct": ("source", "come[K=10,norms=all]", "tent[norms=all]"),
    }
    frames = [cells(methods, (arch,)) for arch, methods in labels.items()]
    text = tables.means(Report(pd.concat(frames, ignore_index=True)))
    lines = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert lines == ["", ":---", "Source", r"COME \[K=10\]", "TENT"]
    assert "does not name: CCT: COME, TENT with norms=all. Given:" in text
    offline = cells(("tent",), ("resnet18",), mode="offline", epochs=10)  # hides nothing of the online line
    text = tables.means(Report(pd.concat([*frames, offline], ignore_index=True)))
    assert "does not name: CCT: COME, TENT with norms=all. Given:" in text
    alone = tables.means(Report(cells(labels["cct"], ("cct",))))
    assert "does not name" not in alone
    assert r"COME \[K=10, norms=all\]" in alone


def test_scores_are_compared_with_accuracies_cell_by_cell() -> None:
    methods = ("source", "tent", "sar", "quantile")
    measured = cells(methods, ("cct", "resnet18"), corruptions=("fog", "snow"))
    measured["entropy"] = measured["accuracy"]
    measured["infomax"] = -measured["accuracy"]
    measured["nuclear_norm"] = measured["accuracy"] + 1000 * (measured["method"] == "source")
    measured["snd"] = measured["accuracy"].where(measured["method"] != "sar", 0.0)
    first, second = tables.scores(Report(measured)).splitlines()[2:]
    assert first.startswith("| Digits-C: ResNet18 | 4 | 1.00 | 0.0 | −1.00 | ")
    assert second.startswith("| Digits-C: CCT | 4 | 1.00 | 0.0 | −1.00 | ")
    of_cct = [cell for _, cell in measured[measured["arch"] == "cct"].groupby("corruption")]
    worst = np.mean([cell["accuracy"].max() - cell["accuracy"].min() for cell in of_cct])
    source = np.mean([cell["accuracy"].max() - cell["accuracy"].iloc[0] for cell in of_cct])
    assert [float(number) for number in second.split(" | ")[5:8:2]] == [round(worst, 1), round(source, 1)]


def test_scores_compare_the_same_methods_whatever_their_seeds() -> None:
    measured = cells(("source", "tent", "quantile"), ("cct",), corruptions=("fog", "snow"), seeds=(0, 1, 2))
    best = {"source": 50.0, "tent": 60.0, "quantile": 90.0}
    measured["accuracy"] = measured["method"].map(best)
    measured = measured[(measured["method"] != "quantile") | (measured["seed"] == 0)]
    measured["entropy"] = -measured["accuracy"]  # it chooses Source, 40 points below the best
    for name in ("infomax", "nuclear_norm", "snd"):
        measured[name] = measured["accuracy"]
    (line,) = tables.scores(Report(measured)).splitlines()[2:]
    assert line.startswith("| Digits-C: CCT | 3 | −1.00 | 40.0 | 1.00 | 0.0 | ")


def test_a_ladder_has_the_gain_of_each_line_over_the_one_above() -> None:
    labels = ("source", "quantile_paper", "quantile_paper[size=small]", "quantile_paper[lr=1,size=small]")
    frame = cells((*labels, "quantile"), ("cct",), corruptions=("spatter", "gaussian_blur"), seeds=(0, 1))
    frame["base"] = frame["method"].str.partition("[")[0]
    means = dict(zip(frame["method"].unique(), (50.0, 70.0, 60.0, 61.0, 64.0), strict=True))
    frame["accuracy"] = frame["method"].map(means) + np.where(frame["corruption"] == "spatter", 2.0, 0.0)
    frame.loc[(frame["method"] == "quantile") & (frame["seed"] == 1), "accuracy"] -= 4.0
    frame = frame[(frame["base"] != "source") | (frame["seed"] == 0)]
    assert tables.KINDS["ladder"](Report(frame)).splitlines() == [
        "|  | Gaussian blur | Spatter | Mean | Gain |",
        "| :--- | ---: | ---: | ---: | ---: |",
        "| Source | 50.0 | 52.0 | 51.0 |  |",
        "| `quantile_paper` | 70.0 | 72.0 | 71.0 |  |",
        "| `quantile_paper[size=small]` | 60.0 | 62.0 | 61.0 | +10.0 (+10.0 to +10.0) |",
        "| `lr=1` | 61.0 | 63.0 | 62.0 | +1.0 (+1.0 to +1.0) |",
        "| `quantile` | 62.0 | 64.0 | 63.0 | +1.0 (−1.0 to +3.0) |",
    ]
    partial = frame[
        (frame["method"] != "quantile") | (frame["seed"] == 0) | (frame["corruption"] == "spatter")
    ]
    assert tables.KINDS["ladder"](Report(partial)).splitlines()[-1] == "| `quantile` |  | 64.0 |  |  |"


def test_a_table_without_its_store_is_left_as_it_is(tmp_path: Path) -> None:
    assert tables.fill(TEXT.format("means"), tmp_path) == TEXT.format("means")
