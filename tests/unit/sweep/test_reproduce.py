"""Stored cells made again: clean stores agree; altered records, other code and mistakes are told."""

from __future__ import annotations

import importlib
import json
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cases import each
from tests.unit.conftest import SMALL, Output, Run
from tests.unit.data_fakes import clean_images, labels_for
from tests.unit.stored_results import CELL, fill, filled
from tests.unit.sweep_processes import GRID
from ttabench.cell import Result
from ttabench.cell.protocol import Protocol
from ttabench.data.catalog import dataset
from ttabench.data.own.generate_corrupted import generate
from ttabench.errors import UserError
from ttabench.measure.streams import source_accuracy
from ttabench.models.checkpoints import cache
from ttabench.models.resolve import resolve_model
from ttabench.provenance import current_code
from ttabench.provenance.staleness import StoredCode
from ttabench.run.executors import Died, inline, workers
from ttabench.run.kept_objects import WorkerState
from ttabench.store import Record, Store
from ttabench.store.read_results import name_key
from ttabench.store.stored_environment import StoredEnvironment
from ttabench.sweep import agreement, available, reproduce
from ttabench.sweep.verify_sample import Drawn, draw
from ttabench.system.checked_lines import decode, encode

HERE = ("--workers", "0")


@pytest.fixture
def out(swept: Path) -> Path:
    return swept


def edit(store: Path, change: Callable[[dict[str, Any]], None], kind: str = "result") -> None:
    """Change the records of a kind in every shard, each with a checksum that fits."""
    for shard in (store / "cells").glob("*.jsonl"):
        lines = []
        for line in shard.read_bytes().splitlines():
            data = {k: v for k, v in decode(line).items() if k != "sum"}
            if data["kind"] == kind:
                change(data)
            lines.append(encode(data))
        shard.write_bytes(b"".join(lines))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_clean_store_is_made_again_bit_for_bit_and_nothing_is_written(ttabench: Run, out: Path) -> None:
    before = content(out)
    output = ttabench("verify", out, *HERE, "--sample", "100")
    assert output.code == 0, output.out
    assert output.out.endswith("4 cells: 4 the same bit for bit. Drawn with --seed 0.\n")
    assert "[4/4]" in output.err
    assert "4 cells of 4." in output.err
    assert "Nothing was measured" not in output.out
    assert "not drawn" not in output.out
    assert content(out) == before


def ids(drawn: Drawn) -> list[str]:
    return [record.result.cell.cell_id for record in drawn.records]


def test_the_draw_is_seeded_and_a_sample_larger_than_the_store_takes_all(cell: Any, tmp_path: Path) -> None:
    store = filled(tmp_path / "r", *(measured(replace(cell, seed=seed), 3) for seed in range(4)))

    def drawn(sample: int, seed: int) -> list[str]:
        return ids(draw(store, sample, seed))

    assert drawn(2, 5) == drawn(2, 5)
    assert len(set(drawn(2, 5))) == 2
    assert len({tuple(sorted(drawn(2, seed))) for seed in range(40)}) == 6  # every pair of four comes up
    assert set(drawn(99, 0)) == set(store.latest())


def test_the_draw_does_not_depend_on_the_order_in_which_results_were_stored(
    cell: Any, tmp_path: Path
) -> None:
    results = [measured(replace(cell, seed=seed), 3) for seed in range(8)]

    def drawn(name: str, results: list[Result]) -> list[str]:
        store = filled(tmp_path / name, *results)
        return [one for seed in range(5) for one in ids(draw(store, 3, seed))]

    assert drawn("one", results) == drawn("other", results[::-1])


@pytest.mark.parametrize("seconds", [301.0, 1e9])
def test_what_a_record_says_of_its_own_time_does_not_keep_it_from_being_drawn(
    cell: Any, tmp_path: Path, seconds: float
) -> None:
    """Else a made-up record that calls itself slow is never run again."""
    honest = [measured(replace(cell, seed=seed), 3) for seed in range(30)]
    forged = measured(replace(cell, method="mine", label="mine"), 0)
    store = filled(tmp_path / "r", *honest, replace(forged, seconds=seconds))
    for seed in range(5):
        assert forged.cell.cell_id in ids(draw(store, 2, seed))  # methods take turns


@pytest.mark.parametrize(
    "forged",
    [
        {"label": "tent[lr=1]", "seed": 99},  # of the same method and settings
        {"config": (("lr", 1.0),)},  # under the label of the others
        {"method": "mine", "label": "mine"},
        {"protocol": Protocol(mode="offline")},
    ],
)
def test_every_method_setting_and_mode_is_drawn_whatever_its_label(
    cell: Any, tmp_path: Path, forged: dict[str, Any]
) -> None:
    honest = [measured(replace(cell, seed=seed), 3) for seed in range(30)]
    other = measured(replace(cell, **forged), 0)
    drawn = draw(filled(tmp_path / "r", *honest, other), 1, 0, every_method=True)
    assert len(drawn.records) == 2
    assert other.cell.cell_id in ids(drawn)
    assert drawn.left_out() == "29 cells of 31 were not drawn."
    assert len(drawn.unmeasured([honest[0].cell])) == 1
    assert not drawn.unmeasured([honest[0].cell, other.cell])


def test_other_data_are_one_sentence_wherever_they_are_among_the_cells(ttabench: Run, out: Path) -> None:
    records = list(Store.at(out).latest().values())
    assert set(available.find_available(records, []).values()) == {available.Available()}
    cell = records[0].result.cell
    nowhere = record(measured(replace(cell, dataset="nowhere-c-local"), 0))  # a lesser problem
    for changes in ({"arch": "cct"}, {}):
        other = record(measured(replace(cell, fingerprint="0" * 64, **changes), 0))
        for given in ([*records, other], [other, *records], [nowhere, other]):
            with pytest.raises(UserError, match="digits-c is not what these results were measured on"):
                available.find_available(given, [])


def altered(data: dict[str, Any]) -> None:
    """A record that says the opposite of its last image."""
    result = Result.from_json(data)
    right = np.unpackbits(np.frombuffer(result.correct, np.uint8), count=result.n_images)
    right[-1] ^= 1
    other = replace(result, correct=np.packbits(right).tobytes(), accuracy=100 * float(right.mean()))
    data.update(other.to_json())


def test_an_altered_number_is_found(ttabench: Run, out: Path) -> None:
    edit(out, altered)
    output = ttabench("verify", out, *HERE)
    assert output.code == 1
    assert "4 differ" in output.out
    assert "the correctness of 1 of 20 images differs" in output.out
    assert "the record was altered" in output.out


def test_an_accuracy_that_is_not_that_of_its_images_is_refused_also_where_it_is_not_drawn(
    ttabench: Run, out: Path
) -> None:
    edit(out, lambda data: data.update(accuracy=data["accuracy"] - 1))
    output = ttabench("verify", out, *HERE, "--sample", "1")
    assert output.code == 2
    assert "is not what ttabench wrote: its accuracy is " in output.err


def test_one_cell_is_one_cell(ttabench: Run, out: Path) -> None:
    output = ttabench("verify", out, *HERE, "--sample", "1", "--seed", "7")
    assert output.out.endswith("\n1 cell: 1 the same bit for bit. Drawn with --seed 7.\n")
    assert "3 cells of 4 were not drawn." in output.out
    assert "Nothing was measured of 1 of 2 methods: " in output.out
    assert "1 cell of 4." in output.err


def test_cells_made_with_other_code_are_named_with_what_changed(ttabench: Run, out: Path) -> None:
    def older(data: dict[str, Any]) -> None:
        for pair in data["names"]:
            if pair[1] == "ttabench/measure/scoring.py: evaluate":
                pair[0] = "0" * 16
                keys.append(name_key(*pair))

    def with_it(data: dict[str, Any]) -> None:
        data["source"] = "0" * 64
        data["definitions"] = [key for key in data["definitions"] if key != kept] + keys

    keys: list[str] = []
    kept = name_key(current_code("tent", "digits-c").definitions["ttabench/measure/scoring.py: evaluate"],
                    "ttabench/measure/scoring.py: evaluate")  # fmt: skip
    edit(out, older, "definitions")
    edit(out, with_it, "code")
    edit(out, lambda data: data.update(source="0" * 64))
    output = ttabench("verify", out, *HERE)
    assert output.code == 0
    assert output.out.count("made with other code: ttabench/measure/scoring.py: evaluate changed") == 4
    edit(out, altered)
    output = ttabench("verify", out, *HERE)
    assert output.code == 1
    assert "made with other code: ttabench/measure/scoring.py: evaluate changed" in output.out
    assert "was altered" not in output.out  # there is another explanation


def test_a_continual_cell_is_run_with_what_came_before_it(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "continual"
    options = ("--methods", "tent", "--archs", "resnet18", "--limit", "40", "--batch-size", "20")
    ttabench("sweep", *options, "--corruptions", "fog,snow", "--reset", "continual", *HERE, "--out", out)
    last = [r for r in Store.at(out).latest().values() if r.result.cell.history]
    assert len(last) == 2
    for record in last:
        (job,) = reproduce._jobs([record], "cpu", out)
        assert [str(c.corruption) for c in job.cells] == ["fog", "snow"]
        assert job.cells[0].cell_id in Store.at(out).latest()
    assert (
        len(reproduce._jobs(list(Store.at(out).latest().values()), "cpu", out)) == 2
    )  # the first ones come along
    output = ttabench("verify", out, *HERE)
    assert output.code == 0
    assert "4 cells: 4 the same bit for bit." in output.out


def test_a_ccc_stream_takes_the_path_of_the_folder(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the accuracies that the path was made from would be others now."""
    out = tmp_path / "ccc"
    monkeypatch.setattr(source_accuracy, "CALIBRATION_IMAGES", 16)
    output = ttabench(
        "sweep", "--methods", "bn_stats", "--archs", "resnet18", "--corruptions", "fog,contrast",
        "--stream", "ccc(40,length=80,speed=10)", *HERE, "--out", out,
    )  # fmt: skip
    assert output.code == 0, output.err
    before = content(out)
    assert any(name.startswith(str(out / "streams" / "ccc-")) for name in before)

    def other(*_: object) -> float:
        raise AssertionError("the path is computed anew")

    monkeypatch.setattr(source_accuracy.SourceAccuracy, "__call__", other)
    output = ttabench("verify", out, *HERE)
    assert output.code == 0, output.out
    assert "2 cells: 2 the same bit for bit." in output.out
    assert content(out) == before
    (path,) = out.glob("streams/ccc-*.json")
    path.write_bytes(encode({"alone": {}, "legs": {"contrast+fog": []}}))  # a stream without end
    output = ttabench("verify", out, *HERE)
    assert (output.code, "delete the file, and the path is computed again." in output.err) == (2, True)


def test_json_says_the_same(ttabench: Run, out: Path) -> None:
    edit(out, altered)
    output = ttabench("verify", out, *HERE, "--sample", "1", "--json")
    assert output.code == 1
    report = json.loads(output.out)
    assert report["agrees"] is False
    (check,) = report["checks"]
    assert check["verdict"] == "differs"
    assert check["differing"] == 1
    assert check["n_images"] == 20
    assert abs(check["now"] - check["stored"]) == pytest.approx(5)


def test_an_offline_cell_is_told_from_the_online_one_of_the_same_name(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "both"
    options = (*SMALL[:4], "--corruptions", "fog", "--limit", "20", *HERE, "--out", out)
    assert ttabench("sweep", *options).code == 0
    assert ttabench("sweep", *options, "--mode", "offline", "--epochs", "2", "--extend").code == 0
    output = ttabench("verify", out, *HERE)
    assert output.code == 0
    assert output.out.count("tent · resnet18 · digits-c · fog-5 · seed 0: ") == 1
    assert output.out.count("tent · resnet18 · digits-c · fog-5 · seed 0 · offline: ") == 1
    report = json.loads(ttabench("verify", out, *HERE, "--json").out)
    assert {check["mode"] for check in report["checks"]} == {"online", "offline"}


def test_a_store_without_numbers_is_one_sentence(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "none"
    fill(Store.create(out, {"methods": ["foa"]}), Result(cell=CELL, status="n/a", reason="not a transformer"))
    for more in ((), ("--at-most", "1")):
        output = ttabench("verify", out, *HERE, *more)
        assert output.code == 2
        assert "has no cell that has a number; there is nothing to verify." in output.err


def test_a_method_that_fails_now_is_told(ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttabench_methods.tent import Tent

    def broken(*_: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(Tent, "adapt", broken)
    output = ttabench("verify", out, *HERE)
    assert output.code == 1
    assert output.out.count("it fails now: ValueError: no such thing") == 2
    assert "2 the same bit for bit, 2 failed" in output.out


def test_a_worker_that_dies_costs_its_own_cells_alone(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(jobs: Sequence[Any], workers: int) -> Iterator[Any]:
        yield from inline.run(jobs[1:], workers)
        yield Died(jobs[0], "its worker was killed by SIGKILL")

    monkeypatch.setattr(workers, "pick_executor", lambda count, place, limits: run)
    output = ttabench("verify", out, *HERE)
    assert output.code == 1
    assert output.out.count("it fails now: its worker was killed by SIGKILL") == 1
    assert "3 the same bit for bit, 1 failed" in output.out


@pytest.mark.parametrize(
    ("checked", "says"),
    [(0, ""), (1, "1 of 4 cells was checked before the interruption: 1 the same bit for bit. Drawn with")],
)
def test_what_was_checked_before_ctrl_c_is_shown(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch, checked: int, says: str
) -> None:
    def run(jobs: Sequence[Any], workers: int) -> Iterator[Any]:
        yield from inline.run(jobs[:checked], workers)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "pick_executor", lambda count, place, limits: run)
    output = ttabench("verify", out, *HERE)
    assert output.code == 130
    assert says in output.out
    assert bool(output.out) == bool(checked)
    assert ttabench("verify", out, *HERE, "--json").out == ""


def test_weights_that_are_gone_are_one_sentence(ttabench: Run, out: Path, weights_in_cache: Path) -> None:
    shutil.rmtree(weights_in_cache)
    output = ttabench("verify", out, *HERE)
    assert output.code == 4
    assert "train them with ttabench train --archs resnet18 --datasets digits-c, or bring" in output.out
    assert "4 cells: 4 not run, without their data, weights or code" in output.out


@pytest.mark.parametrize("name", ["cifar10-c", "nowhere-c-local"])
@pytest.mark.usefixtures("own_data")
def test_data_that_are_not_here_have_a_verdict_and_a_code_of_their_own(
    ttabench: Run, cell: Any, tmp_path: Path, name: str
) -> None:
    """A damaged record is worse."""
    good = measured(replace(cell, dataset=name), 3)
    store = filled(tmp_path / "r", good)
    output = ttabench("verify", store.root, *HERE)
    assert output.code == 4
    assert "1 cell: 1 not run, without their data, weights or code" in output.out
    assert name in output.out
    (shard,) = store.cells.iterdir()
    shard.write_bytes(shard.read_bytes().replace(b'"seconds":', b'"seconds":1'))
    output = ttabench("verify", store.root, *HERE)
    assert (output.code, output.out) == (2, "")
    assert shard.name in output.err


def test_data_that_contaminate_a_stream_are_part_of_its_results(
    ttabench: Run, tmp_path: Path, own_data: Path
) -> None:
    """Made again from other images, a dataset of the same name gives other numbers."""

    def make(seed: int) -> None:
        shutil.rmtree(own_data, ignore_errors=True)
        np.savez(tmp_path / "other.npz", images=clean_images(40, seed=seed), labels=labels_for(40, 4))
        generate(tmp_path / "other.npz", corruptions=["fog"], severities=(5,), workers=0)

    def swept() -> dict[str, float]:
        grid = ("--methods", "tent", "--archs", "resnet18", "--corruptions", "fog", "--limit", "20")
        foreign = ("--contamination", "other-c-local(0.5)", "--batch-size", "25")
        output = ttabench("sweep", *grid, *foreign, *HERE, "--out", tmp_path / "r")
        assert output.code == 0, output.err
        cells = Store.at(tmp_path / "r").frame()
        return dict(zip(cells["foreign"] + cells["method"], cells["accuracy"], strict=True))

    make(1)
    first = swept()
    assert ttabench("verify", tmp_path / "r", *HERE).code == 0
    make(2)
    output = ttabench("verify", tmp_path / "r", *HERE)
    assert output.code == 2
    assert "other-c-local is not what these results were measured on" in output.err
    both = swept()
    assert len(first) == 2
    assert len(both) == 4  # and not two cells that are there already
    shutil.rmtree(own_data)
    assert ttabench("verify", tmp_path / "r", *HERE).code == 4


def test_a_network_that_is_not_installed_is_not_here(out: Path) -> None:
    good = next(iter(Store.at(out).latest().values()))
    cell = replace(good.result.cell, arch="nobodys_nets:build")
    places = available.find_available([good, record(replace(good.result, cell=cell))], [])
    assert places[good.result.cell.cell_id] == available.Available()
    assert "nobodys_nets" in places[cell.cell_id].lacks


def verified_with(code: str | None, ttabench: Run, net_out: Path, monkeypatch: pytest.MonkeyPatch) -> Output:
    """What verify says of cells whose network has other code since; None = its file is gone."""
    monkeypatch.chdir(net_out.parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "net", raising=False)
    assert ttabench("sweep", *GRID, "--corruptions", "fog", *HERE, "--out", net_out).code == 0
    Path("net.py").unlink()
    if code is not None:
        Path("net.py").write_text(code)
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "net")
    return ttabench("verify", net_out, *HERE)


@pytest.mark.parametrize(
    "lost", ["import net_of_nobody", "def build(num_classes): import net_of_nobody", None]
)
def test_a_network_whose_code_is_gone_is_not_here_although_its_weights_are(
    ttabench: Run, net_out: Path, monkeypatch: pytest.MonkeyPatch, lost: str | None
) -> None:
    output = verified_with(lost, ttabench, net_out, monkeypatch)
    assert output.code == 4, output.out
    assert "2 cells: 2 not run, without their data, weights or code." in output.out
    assert f"No module named '{'net' if lost is None else 'net_of_nobody'}'" in output.out


def test_a_network_that_is_here_and_fails_has_failed(
    ttabench: Run, net_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = verified_with("def build(num_classes): 1 / 0", ttabench, net_out, monkeypatch)
    assert output.code == 1
    assert "2 failed" in output.out


def test_a_method_that_is_not_installed_is_not_here(ttabench: Run, out: Path) -> None:
    def of_another(data: dict[str, Any]) -> None:
        result = Result.from_json(data)
        data.update(replace(result, cell=replace(result.cell, method="mine", label="mine")).to_json())

    edit(out, lambda data: of_another(data) if data["cell"]["method"] == "tent" else None)
    output = ttabench("verify", out, *HERE)
    assert output.code == 4, output.out
    assert "the method mine is not installed" in output.out
    assert "2 the same bit for bit, 2 not run, without their data, weights or code" in output.out


def test_cells_whose_data_are_here_are_run_beside_others(ttabench: Run, out: Path, tmp_path: Path) -> None:
    """A made-up name of data is no way to have no cell of a folder checked."""
    whole = tmp_path / "whole"
    shutil.copytree(out, whole)
    good = next(iter(Store.at(out).latest().values())).result
    elsewhere = replace(good, cell=replace(good.cell, dataset="nowhere-c-local"))
    fill(Store.at(whole), elsewhere)
    output = ttabench("verify", whole, *HERE)
    assert output.code == 4
    assert "5 cells: 4 the same bit for bit, 1 not run, without their data, weights or code" in output.out
    edit(whole, altered)
    output = ttabench("verify", whole, *HERE)
    assert output.code == 1
    assert "1 not run, without their data, weights or code" in output.out


@pytest.mark.parametrize(
    ("sweeps", "brought"),
    [
        ([{}], False),
        ([{"checkpoint": "w.pt"}], True),
        ([{"checkpoint": "w.pt", "archs": ["cct"]}], False),  # of another network
        ([{"checkpoint": "w.pt", "datasets": "cifar10-c"}], False),  # for other data
        ([{"checkpoint": "w.pt", "datasets": "./digits"}], True),  # which a folder may have any name for
        ([{"include": [{"checkpoint": "w.pt"}]}], True),
        ([{"archs": "cct", "include": [{"archs": "resnet18", "checkpoint": "w.pt"}]}], True),
        ([{"include": [{"archs": ["cct"], "checkpoint": "w.pt"}]}], False),
        ([{"include": [{"datasets": ["cifar10-c"], "checkpoint": "w.pt"}]}], False),
        ([{"per_dataset": {"digits-c": {"checkpoint": "w.pt"}}}], True),
        ([{"datasets": ["cifar10-c"], "per_dataset": {"cifar10-c": {"checkpoint": "w.pt"}}}], False),
        ([{"checkpoint": "w.pt", "per_dataset": {"digits-c": {"checkpoint": ""}}}], False),
        ([{"per_dataset": {"digits-c": {"checkpoint": "w.pt"}}, "include": [{"checkpoint": ""}]}], True),
        ([{"checkpoint": "w.pt"}, {}], True),
        ([{}, {"checkpoint": "w.pt"}], True),
    ],
)
def test_weights_from_a_file_are_known_from_all_sweeps_and_their_rules(
    out: Path, sweeps: list[dict[str, Any]], brought: bool
) -> None:
    """Nobody can train them again, so that no recipe is to blame."""
    cell = next(iter(Store.at(out).latest().values())).result.cell
    records = [record(measured(replace(cell, checkpoint="d" * 64), 0))]
    sweeps = [{"archs": ["resnet18"], "datasets": ["digits-c"], **sweep} for sweep in sweeps]
    (place,) = available.find_available(records, sweeps).values()
    assert ("--datasets digits-c --checkpoint FILE" in place.lacks) == brought
    assert bool(place.other) == (not brought)


def test_weights_that_are_missing_are_put_into_the_cache_as_the_message_says(
    ttabench: Run, out: Path, tmp_path: Path
) -> None:
    stored = resolve_model("resnet18", dataset("digits-c")).weights()
    assert stored is not None
    weights = load_file(stored)
    convolution = next(name for name, values in weights.items() if values.dim() == 4)
    weights[convolution] = 1.01 * weights[convolution]
    file = tmp_path / "mine.safetensors"
    save_file(weights, file)
    small = ("--corruptions", "fog", "--limit", "20", *HERE)
    one = ("--methods", "source", "--archs", "resnet18", "--datasets", "digits-c", "--checkpoint", file)
    folder = tmp_path / "mine"
    assert ttabench("sweep", *one, *small, "--out", folder).code == 0
    sha256 = next(iter(Store.at(folder).latest().values())).result.cell.checkpoint
    for kept in cache.folder("digits-c").glob(f"*{sha256[:12]}*"):
        kept.unlink()
    missing = ttabench("verify", folder, *HERE)
    assert missing.code == 4
    command = re.search(r"put them there with (ttabench sweep .*? FILE)\.", " ".join(missing.out.split()))
    assert command is not None, missing.out
    options = [str(file) if word == "FILE" else word for word in command[1].split()[1:]]
    assert ttabench(*options, *small, "--out", tmp_path / "again").code == 0
    assert ttabench("verify", folder, *HERE).code == 0


def test_a_sweep_of_trained_weights_after_one_of_a_file_hides_none_of_them(
    ttabench: Run, out: Path, tmp_path: Path
) -> None:
    """`--extend` leaves one value of each option in sweep.json, and a sweep file of each sweep."""
    cell = next(iter(Store.at(out).latest().values())).result.cell
    weights = resolve_model("resnet18", dataset("digits-c")).weights()
    assert weights is not None
    folder = tmp_path / "both"
    one = ("--methods", "source", "--archs", "resnet18", "--limit", "20", *HERE, "--out", folder)
    assert ttabench("sweep", *one, "--corruptions", "fog", "--checkpoint", weights).code == 0
    assert ttabench("sweep", *one, "--corruptions", "snow", "--extend").code == 0
    store = Store.at(folder)
    assert store.sweep()["checkpoint"] == ""
    (folder / "sweep-3.toml").write_bytes("# für später\n".encode("latin-1"))  # is none
    records = [record(measured(replace(cell, checkpoint="d" * 64), 0))]
    (place,) = available.find_available(records, available.sweeps_of(store)).values()
    assert "--checkpoint FILE" in place.lacks
    for path in folder.glob("sweep*.toml"):
        path.unlink()
    assert available.sweeps_of(store) == [store.sweep()]


def test_another_folder_is_one_sentence(ttabench: Run, tmp_path: Path) -> None:
    output = ttabench("verify", tmp_path / "nowhere")
    assert output.code == 2
    assert "nowhere does not exist; expected a results folder" in output.err


def test_a_limit_needs_a_process_that_can_be_stopped(ttabench: Run, out: Path) -> None:
    output = ttabench("verify", out, *HERE, "--at-most", "5")
    assert (output.code, output.out) == (2, "")
    assert "--at-most stops worker processes; set --workers to 1 or more." in output.err


@pytest.mark.usefixtures("forked_workers")
def test_cells_are_stopped_by_the_clock_and_do_not_pass(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where their records say that they are quick."""
    clock = SimpleNamespace(monotonic=count().__next__)  # a second later at each look
    monkeypatch.setattr("ttabench.run.executors.watched_worker.time", clock)
    edit(out, lambda data: data.update(seconds=0.0))
    output = ttabench("verify", out, "--workers", "1", "--at-most", "0.2")
    assert output.code == 5, output.out
    assert "4 not run to the end, slower than --at-most" in output.out
    assert output.out.count("it ran longer than 0.2 s and was stopped") == 4
    assert "Nothing was measured of 2 of 2 methods: source, tent." in output.out


@pytest.mark.usefixtures("forked_workers")
def test_with_time_enough_a_forged_record_is_found_and_an_honest_folder_passes(
    ttabench: Run, out: Path
) -> None:
    edit(out, lambda data: data.update(seconds=1000.0))
    output = ttabench("verify", out, "--workers", "1", "--at-most", "300", "--sample", "1")
    assert output.code == 0, output.out
    assert "2 cells: 2 the same bit for bit" in output.out  # one of each method
    edit(out, altered)
    assert ttabench("verify", out, "--workers", "1", "--at-most", "300", "--sample", "1").code == 1


@pytest.mark.usefixtures("forked_workers")
def test_a_method_without_data_here_does_not_pass_beside_others(
    ttabench: Run, cell: Any, tmp_path: Path, out: Path
) -> None:
    good = next(iter(Store.at(out).latest().values())).result
    mine = replace(good.cell, label=f"{good.cell.method}[mine]", dataset="nowhere-c-local")
    fill(Store.at(out), replace(good, cell=mine))
    output = ttabench("verify", out, "--workers", "1", "--at-most", "300", "--json")
    report = json.loads(output.out)
    assert output.code == 5
    assert report["unmeasured_methods"] == [f"{good.cell.method}[mine]"]
    assert report["agrees"] is False
    assert report["not_drawn"] == 0


@pytest.mark.usefixtures("weights_in_cache")
@pytest.mark.parametrize(
    ("processor", "code", "words"),
    [("", 1, "4 differ"), ("another CPU", 3, "4 not comparable, with other weights here")],
)
def test_other_weights_from_the_same_recipe_fail_on_the_same_kind_of_machine_only(
    ttabench: Run, out: Path, processor: str, code: int, words: str
) -> None:
    def moved(data: dict[str, Any]) -> None:
        data["cell"]["checkpoint"] = "d" * 64
        data["id"] = Result.from_json(data).cell.cell_id

    edit(out, moved)
    if processor:
        edit(out, lambda data: data.update(processor=processor), "environment")
    output = ttabench("verify", out, *HERE)
    assert output.code == code
    assert words in output.out
    assert "the recipe trains other weights here" in output.out


# ---- the comparison by itself

NOW = {
    "device": "cpu",
    "threads": 1,
    "machine": "m",
    "processor": "p",
    "versions": {"torch": "2", "ttabench": "1"},
}


def measured(cell: Any, wrong: int, n: int = 400) -> Result:
    right = np.ones(n, bool)
    right[random.Random(3).sample(range(n), wrong)] = False
    return Result(
        cell=cell, status="ok", accuracy=100 * float(right.mean()), n_images=n,
        correct=np.packbits(right).tobytes(),
    )  # fmt: skip


def record(result: Result, **environment: Any) -> Record:
    stored = {"written": 1.0, **result.to_json()}
    return Record(stored, "s", StoredCode(), StoredEnvironment({**NOW, **environment}))


@each(
    ("environment", "wrong", "verdict"),
    [
        ({}, 0, "same"),
        ({}, 1, "differs"),
        ({"processor": "q"}, 0, "same"),
        ({"processor": "q"}, 4, "within"),
        ({"processor": "q"}, 5, "differs"),
        ({"versions": {"torch": "1", "ttabench": "1"}}, 4, "within"),
        ({"versions": {"torch": "2", "ttabench": "0"}}, 4, "differs"),
        ({"threads": 2}, 4, "within"),
        ({"device": "cuda"}, 5, "differs"),
    ],
)
def test_the_bound_holds_on_another_kind_of_machine_only(
    cell: Any, environment: dict[str, Any], wrong: int, verdict: str
) -> None:
    check = agreement.compare(record(measured(cell, 0), **environment), measured(cell, wrong), NOW)
    assert check.verdict == verdict
    assert check.differing == wrong
    assert check.exact == (environment.get("versions", {}).get("ttabench") == "0" or not environment)


@each(("wrong", "verdict"), [(0, "same"), (4, "within"), (5, "differs")])
@each("stored_on", ["cuda", "cuda:1"])
def test_a_gpu_may_sum_in_another_order_in_each_run(
    cell: Any, stored_on: str, wrong: int, verdict: str
) -> None:
    stored = record(measured(cell, 0), device=stored_on)
    check = agreement.compare(stored, measured(cell, wrong), {**NOW, "device": "cuda"})
    assert (check.verdict, check.exact) == (verdict, False)
    assert not any("device" in note for note in check.notes)


def test_cells_of_a_gpu_are_run_by_the_workers_of_gpus(cell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker for each GPU, and not one for each core, all on the first GPU."""

    def pick(name: str) -> str:
        if name not in here:
            raise UserError("no such device")
        return name

    monkeypatch.setattr(reproduce, "pick_device", pick)
    on_cpu, on_gpu = (record(measured(cell, 0), device=device) for device in ("cpu", "cuda:1"))
    here = ("cpu", "cuda")
    assert reproduce.device_of([on_cpu, on_gpu]) == "cuda"
    assert reproduce.device_of([on_cpu]) == "cpu"
    assert [job.device for job in reproduce._jobs([on_gpu], "", Path())] == ["cuda"]
    here = ("cpu",)
    assert reproduce.device_of([on_cpu, on_gpu]) == "cpu"


def test_workers_are_counted_in_gpus_where_cells_need_one(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, str]] = []

    def pick_executor(count: int, device: str, limits: Any) -> Any:
        asked.append((count, device))
        return inline.run

    monkeypatch.setattr(reproduce, "device_of", lambda records: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(workers, "pick_executor", pick_executor)
    assert ttabench("verify", out, "--sample", "1").code == 0
    assert asked == [(2, "cuda")]


def test_other_images_with_the_same_accuracy_are_not_the_same(cell: Any) -> None:
    first, second = np.arange(400) != 0, np.arange(400) != 1
    results = [replace(measured(cell, 1), correct=np.packbits(right).tobytes()) for right in (first, second)]
    assert results[0].accuracy == results[1].accuracy
    check = agreement.compare(record(results[0]), results[1], NOW)
    assert (check.verdict, check.differing) == ("differs", 2)
    assert agreement.compare(record(results[0], processor="q"), results[1], NOW).verdict == "within"


@pytest.mark.parametrize("environment", [{}, {"processor": "q"}])
def test_another_accuracy_of_the_same_images_differs_on_every_machine(
    cell: Any, environment: dict[str, Any]
) -> None:
    right = measured(cell, 3)
    check = agreement.compare(record(replace(right, accuracy=90.0), **environment), right, NOW)
    assert (check.verdict, check.differing) == ("differs", 0)


def test_the_bound_is_a_whole_number_of_images_and_at_least_one() -> None:
    assert [agreement.allowed(n) for n in (1, 50, 199, 200, 399, 10_000)] == [1, 1, 1, 2, 3, 100]


def test_every_cell_of_a_run_that_fails_has_a_result(cell: Any, tmp_path: Path) -> None:
    """Its weights are nowhere. Of a continual run, the last cell is the one that was drawn."""
    cells = tuple(replace(cell, corruption=name) for name in ("fog", "snow", "frost"))
    results = reproduce.Rerun(cells, "cpu", tmp_path)(lambda event: None, WorkerState())
    assert [result.cell for result in results] == [*cells]
    assert {result.status for result in results} == {"failed"}


def test_what_differs_between_two_machines_is_said() -> None:
    then = {**NOW, "processor": "q", "versions": {"torch": "1", "numpy": "2"}}
    assert agreement.differences(then, NOW) == [
        "processor q then, p now", "numpy 2 then, unknown now", "torch 1 then, 2 now",
    ]  # fmt: skip
    assert agreement.differences(NOW, NOW) == []
    newer = {**NOW, "versions": {"torch": "2", "ttabench": "2", "scipy": "1"}}
    assert agreement.differences(NOW, newer) == ["scipy unknown then, 1 now"]
    for name in ("device", "threads", "machine", "processor"):
        assert agreement.differences({**NOW, name: "x"}, NOW) == [f"{name} x then, {NOW[name]} now"]


def test_another_number_of_images_is_never_the_same(cell: Any) -> None:
    check = agreement.compare(record(measured(cell, 0, 400), processor="q"), measured(cell, 0, 399), NOW)
    assert (check.verdict, check.differing) == ("differs", None)
    assert "400 images then, 399 now" in check.notes
