"""The sweep as a user meets it: running, resuming, failing, being interrupted, and mistakes."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.cases import each
from tests.unit.conftest import SMALL, Run
from tests.unit.sweep_processes import NET_ON_FEW, environment, wait_for
from ttabench.data.own.manifest import MANIFEST
from ttabench.models.architectures.build import build
from ttabench.run import worker
from ttabench.run.executors import watched_worker
from ttabench.store import Store, load_frame
from ttabench.sweep import draft
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import warn_of_gpu_options
from ttabench.system.work_claims import process_start
from ttabench_methods.tent import Tent

ONE = ("--methods", "bn_stats", "--corruptions", "fog")
HERE = ("--workers", "0")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_a_sweep_fills_the_store_and_prints_the_table(ttabench: Run, out: Path) -> None:
    output = ttabench("sweep", *SMALL, *HERE, "--out", out)
    assert output.code == 0, output.err
    cells = load_frame(out)
    assert len(cells) == 4
    assert set(cells["status"]) == {"ok"}
    assert set(cells["method"]) == {"source", "tent"}
    assert (cells["n_images"] == 20).all()
    assert "tent on resnet18 adapts 20 BatchNorm2d" in output.out
    assert "4 cells" in output.err


def test_the_table_of_a_sweep_says_defaults_of_a_network_below_and_settings_of_the_user_in_names(
    ttabench: Run, out: Path
) -> None:
    options = ("--archs", "cct", "--corruptions", "fog", "--limit", "20", *HERE, "--out", out)
    shown = " ".join(ttabench("sweep", "--methods", "tent", *options).out.split())
    assert "TENT [" not in shown
    assert "Defaults of methods on CCT: norms=all (TENT)." in shown
    asked = ttabench("sweep", "--methods", "tent[norms=all]", *options[:-1], out.with_name("asked"))
    assert "TENT [norms=all]" in asked.out
    assert "Defaults of methods" not in asked.out


def test_the_same_command_again_recomputes_nothing(
    ttabench: Run, swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_frame(swept)
    monkeypatch.setattr(worker.Worker, "run", lambda *_: pytest.fail("recomputed"))
    output = ttabench("sweep", *SMALL, *HERE, "--out", swept)
    assert output.code == 0
    assert "0 to run, 4 done" in output.err
    assert load_frame(swept).equals(before)


def test_what_is_missing_is_run_and_only_that(ttabench: Run, swept: Path) -> None:
    shard = next(p for p in (swept / "cells").glob("*.jsonl") if p.read_bytes().count(b'"result"') == 4)
    lines = shard.read_bytes().splitlines(keepends=True)
    results = [i for i, line in enumerate(lines) if b'"result"' in line]
    shard.write_bytes(b"".join(lines[: results[1] + 1]))
    assert len(load_frame(swept)) == 2
    output = ttabench("sweep", *SMALL, *HERE, "--out", swept)
    assert "2 to run, 2 done" in output.err
    assert len(load_frame(swept)) == 4


@pytest.mark.usefixtures("forked_workers")
def test_numbers_do_not_depend_on_the_number_of_workers_or_on_what_ran_before(
    ttabench: Run, swept: Path, tmp_path: Path
) -> None:
    ttabench("sweep", *SMALL, "--workers", "2", "--out", tmp_path / "b")
    alone = (*SMALL[:4], "--corruptions", "snow", "--limit", "20")
    ttabench("sweep", *alone, *HERE, "--out", tmp_path / "c")
    a, b, c = (Store.at(folder).latest() for folder in (swept, tmp_path / "b", tmp_path / "c"))
    assert a.keys() == b.keys()
    assert c.keys() < a.keys()
    for key, record in a.items():
        for other in (b, c):
            if key in other:
                assert other[key].result.correct == record.result.correct
                assert unmeasured(other[key].result.details) == unmeasured(record.result.details)


def unmeasured(details: dict[str, Any]) -> dict[str, Any]:
    """Details without the times and the memory that were measured."""
    counted = {name: details["cost"][name] for name in ("adapted_parameters", "forward", "backward")}
    return {**details, "cost": counted}


def test_a_changed_setting_is_another_cell(ttabench: Run, swept: Path) -> None:
    output = ttabench("sweep", *SMALL, *HERE, "--out", swept, "--set", "tent.lr=0.01")
    assert output.code == 2
    assert "holds the results of another sweep" in output.err
    output = ttabench("sweep", *SMALL, *HERE, "--out", swept, "--set", "tent.lr=0.01", "--extend")
    assert output.code == 0
    assert "2 to run, 2 done" in output.err  # source is what it was
    assert set(load_frame(swept)["method"]) == {"source", "tent", "tent[lr=0.01]"}


def test_the_folder_of_another_sweep_is_refused_before_networks_are_opened(
    ttabench: Run, swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "find_sources", lambda *_, **_more: pytest.fail("networks were opened"))
    for more in ((), ("--dry-run",)):
        output = ttabench("sweep", *SMALL, *HERE, "--out", swept, "--set", "tent.lr=0.01", *more)
        assert output.code == 2
        assert "holds the results of another sweep" in output.err


def test_each_sweep_of_an_extended_folder_goes_on_without_extend(ttabench: Run, swept: Path) -> None:
    command = ("sweep", *SMALL, *HERE, "--out", swept)
    assert ttabench(*command, "--set", "tent.lr=0.01", "--extend").code == 0
    planned = {row["id"] for row in Store.at(swept).plan()}
    for more in ((), ("--dry-run",), ("--set", "tent.lr=0.01")):
        output = ttabench(*command, *more)
        assert output.code == 0, output
        assert "0 to run, 4 done" in (output.out if "--dry-run" in more else output.err)
    assert {row["id"] for row in Store.at(swept).plan()} == planned
    assert "holds the results of another sweep" in ttabench(*command, "--set", "tent.lr=0.02").err


def test_a_model_that_returns_nan_fails_its_cell_and_no_other(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Tent.adapt
    calls = []

    def sometimes(self: Tent, x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        logits = real(self, x)
        return logits * float("nan") if len(calls) == 1 else logits

    with monkeypatch.context() as patch:
        patch.setattr(Tent, "adapt", sometimes)
        output = ttabench("sweep", *SMALL, *HERE, "--out", out)
    assert output.code == 1
    assert "NaN logits" in output.err
    cells = load_frame(out).set_index(["method", "corruption"])
    assert cells.loc[("tent", "fog"), "status"] == "failed"
    assert "NaN" in cells.loc[("tent", "fog"), "reason"]
    assert cells.loc[("tent", "snow"), "status"] == "ok"
    assert "NaN" in ttabench("status", out).out
    output = ttabench("sweep", *SMALL, *HERE, "--out", out, "--overwrite", "never")
    assert (output.code, "1 failed" in output.err) == (1, True)
    output = ttabench("sweep", *SMALL, *HERE, "--out", out)  # by default what failed is tried again
    assert output.code == 0
    assert "1 to run, 3 done" in output.err


def test_control_characters_of_a_methods_error_do_not_reach_the_terminal(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def red(self: Tent, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no \x1b[31m good")

    monkeypatch.setattr(Tent, "adapt", red)
    output = ttabench("sweep", *SMALL, *HERE, "--out", out)
    assert output.code == 1
    assert "good" in output.out
    assert "\x1b" not in output.out + output.err


def test_a_cell_that_runs_out_of_memory_leaves_the_worker_usable(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Tent.adapt
    used: list[weakref.ref[Tent]] = []

    def large(self: Tent, x: torch.Tensor) -> torch.Tensor:
        assert not any(failed() for failed in used)  # methods that failed, and their classifiers, are gone
        if len(used) == 3:
            return real(self, x)
        used.append(weakref.ref(self))
        if len(used) == 1:
            torch.empty(1 << 50)
        elif len(used) == 2:
            bytearray(1 << 50)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Tent, "adapt", large)
    four = ("--corruptions", "fog,snow,frost,contrast", "--limit", "20")
    output = ttabench("sweep", *SMALL[:4], *four, *HERE, "--out", out)
    assert output.code == 1
    cells = load_frame(out).set_index(["method", "corruption"]).loc["tent"]
    assert cells.loc["contrast", "status"] == "ok"
    reasons = cells.loc[["fog", "snow", "frost"], "reason"]
    assert reasons.str.startswith("out of memory: ").all()
    assert reasons.is_unique


@dataclass
class FastWhile:
    """A clock that goes a minute forward at each look while the process of a file lives."""

    pid_file: Path
    offset: float = 0.0

    def monotonic(self) -> float:
        if self.pid_file.exists() and process_start(int(self.pid_file.read_text() or "0")):
            self.offset += 60
        return time.monotonic() + self.offset


@pytest.mark.slow
def test_a_cell_that_hangs_is_recorded_and_the_rest_goes_on(
    ttabench: Run, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net_that_hangs.py").write_text(
        "import multiprocessing, os, pathlib, time, torch\n"
        "once = pathlib.Path('once')\n"
        "class Net(torch.nn.Sequential):\n"
        "    def forward(self, x):\n"
        "        if multiprocessing.parent_process() and not once.exists():\n"
        "            once.write_text(str(os.getpid()))\n"
        "            time.sleep(6000)\n"
        "        return super().forward(x)\n"
        "def build(num_classes):\n"
        "    pool = [torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.BatchNorm1d(48)]\n"
        "    return Net(*pool, torch.nn.Linear(48, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    what = ("--methods", "bn_stats", "--corruptions", "fog,snow", "--reset", "continual", "--limit", "50")
    mine = ("--archs", "net_that_hangs:build", *what, "--workers", "1", "--out", out)
    # Only the cell that hangs runs into the limit: on a busy machine the others take long too.
    monkeypatch.setattr(watched_worker, "time", FastWhile(tmp_path / "once"))
    output = ttabench("sweep", *mine, "--cell-timeout", "600")
    assert output.code == 1, output.err
    cells = load_frame(out).set_index(["method", "corruption"])
    assert cells.loc["source", "status"].tolist() == ["failed", "failed"]
    assert cells.loc[("source", "fog"), "reason"] == "it ran longer than 600 s and was stopped"
    assert cells.loc[("source", "snow"), "reason"] == "fog-5, earlier in this continual run, failed"
    assert cells.loc["bn_stats", "status"].tolist() == ["ok", "ok"]
    assert not cells["alarm"].str.contains("imports").any()  # sending progress is not an import


@pytest.mark.parametrize(
    ("overwrite", "then"),
    [("stale", "goes on from there"), ("always", "begins again, because of --overwrite")],
)
def test_an_interrupted_sweep_says_what_the_same_command_does(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch, overwrite: str, then: str
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker.Worker, "run", interrupted)
    output = ttabench("sweep", *SMALL, *HERE, "--out", out, "--overwrite", overwrite)
    assert f"the same command {then}" in " ".join(output.err.split())


def test_fail_fast_stops(ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tent, "adapt", lambda self, x: x)
    output = ttabench("sweep", *SMALL, *HERE, "--out", out, "--fail-fast")
    assert output.code == 1
    assert len(load_frame(out)) == 3  # two of source, one failed


def test_not_applicable_is_recorded_with_its_reason(ttabench: Run, out: Path) -> None:
    output = ttabench("sweep", *ONE, "--archs", "cct", "--limit", "20", *HERE, "--out", out)
    assert output.code == 0
    cells = load_frame(out).set_index("method")
    assert cells.loc["bn_stats", ["status", "reason"]].tolist() == ["n/a", "no batch norm"]
    assert "no batch norm" in output.out


def test_dry_run_lists_everything_and_writes_nothing(ttabench: Run, tmp_path: Path, swept: Path) -> None:
    out = tmp_path / "none"
    output = ttabench("sweep", *ONE, "--archs", "resnet18,cct", "--out", out, "--dry-run")
    assert output.code == 0
    assert not out.exists()
    assert "skip   bn_stats · cct" in output.out
    assert "no batch norm" in output.out
    assert "4 cells: 3 to run, 0 done, 1 n/a" in output.out
    assert ttabench("sweep", *SMALL, "--out", swept, "--dry-run").out.count("done ") == 4


NETWORK = """
import torch
from torch import nn
seen = []

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(3, num_classes)

    def forward(self, x):
        seen.append(len(x))
        return self.last(self.norm(x).mean((2, 3)))

def build(num_classes, image_size):
    return Net(num_classes)
"""


@pytest.mark.filterwarnings("ignore:.*clean accuracy")
def test_dry_run_measures_no_network_from_elsewhere_and_lists_the_cells_of_the_sweep(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drynets.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "results"
    command = (
        "sweep", "--methods", "source,tent", "--archs", "drynets:build", "--corruptions", "fog",
        "--limit", "20", *HERE, "--out", out,
    )  # fmt: skip
    output = ttabench(*command, "--dry-run")
    assert (output.code, output.out.count("run    ")) == (0, 2)
    assert "clean accuracy" not in output.err
    assert sum(importlib.import_module("drynets").seen) < 100  # images of noise, and no clean one
    assert not [*(tmp_path / "cache").rglob("*-brought-*")]
    assert ttabench(*command).code == 0
    output = ttabench(*command, "--dry-run")
    assert (output.code, output.out.count("done   ")) == (0, 2)  # the same cells


def test_a_sweep_of_which_exclude_rules_leave_no_cell_is_refused(ttabench: Run, tmp_path: Path) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "none"
    file.write_text('corruptions = ["fog"]\n[[exclude]]\ncorruptions = ["fog"]\n')
    for dry in ((), ("--dry-run",)):
        output = ttabench("sweep", "--config", file, "--workers", "0", "--out", out, *dry)
        assert (output.code, output.out) == (2, "")
        assert "exclude rules leave out every cell" in output.err
        assert not out.exists()


def test_a_precision_of_another_device_is_refused_before_anything_runs(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    output = ttabench(
        "sweep", *SMALL, "--precision", "tf32", "--device", "cpu", "--workers", "0", "--out", out
    )
    assert output.code == 2
    assert "precision tf32 is for NVIDIA GPUs; on cpu, use float32 or bfloat16." in output.err
    assert not out.exists()


def test_a_wrong_setting_is_told_before_anything_is_fetched(
    ttabench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttabench.sweep import resolve as resolving

    monkeypatch.setattr(resolving, "open_dataset", lambda name: pytest.fail("data were looked up first"))
    output = ttabench("sweep", "--methods", "tent[steps=0]")
    assert output.code == 2
    assert "steps" in output.err


def test_dry_run_refuses_a_folder_that_the_sweep_would_refuse(
    ttabench: Run, swept: Path, tmp_path: Path
) -> None:
    other = (*SMALL, "--set", "tent.lr=0.01", "--dry-run")
    output = ttabench("sweep", *other, "--out", swept)
    assert (output.code, output.out) == (2, "")
    assert "--set was not given and is now tent.lr=0.01" in output.err
    assert ttabench("sweep", *other, "--out", swept, "--extend").out.count("run    tent") == 2
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("precious")
    for folder, says in ((tmp_path / "thesis", "choose another"), ("x" * 5000, "not a usable path")):
        output = ttabench("sweep", *SMALL, "--out", folder, "--dry-run")
        assert (output.code, output.out) == (2, "")
        assert says in output.err
        assert len(output.err) < 400


def test_dry_run_is_for_the_device_that_is_asked_for(ttabench: Run, out: Path) -> None:
    output = ttabench("sweep", *SMALL, "--device", "abacus", "--out", out, "--dry-run")
    assert output.code == 2
    assert "abacus" in output.err


@pytest.mark.parametrize("dry_run", [True, False])
def test_options_of_gpus_are_told_to_have_no_effect_on_a_cpu(
    ttabench: Run, tmp_path: Path, dry_run: bool
) -> None:
    small = ("--methods", "source", "--archs", "cct", "--corruptions", "fog", "--limit", "20", *HERE)
    out = ("--device", "cpu", "--out", tmp_path / "r", *(("--dry-run",) if dry_run else ()))
    for options, says in (
        (("--per-gpu", "1"), ""),
        (("--per-gpu", "2"), "warning: --per-gpu is for NVIDIA GPUs, and has no effect on cpu."),
        (
            ("--per-gpu", "2", "--device-memory", "3"),
            "warning: --per-gpu and --device-memory are for NVIDIA GPUs, and have no effect on cpu.",
        ),
    ):
        output = ttabench("sweep", *small, *options, *out)
        assert output.code == 0, output.err
        assert re.findall("warning: .*", output.err) == ([says] if says else [])
    with warnings.catch_warnings(action="error"):  # from Python, options are texts
        warn_of_gpu_options({**DEFAULTS, "per_gpu": "1", "device_memory": "0"}, "cpu")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--executor", "nosuch"), "unknown executor 'nosuch'"),
        (("--executor-options", "x=1"), "the executor local has no such option"),
        (("--executor", "slurm", "--executor-options", "x"), "expected KEY=VALUE"),
        (("--workers", "foo"), "expected auto or a whole number"),
        (("--executor", "ray", "--workers", "foo"), "expected auto or a whole number"),
        (("--device-memory", "inf"), "--device-memory: expected a number"),
        (("--device-memory", "1e300"), "--device-memory: expected a number"),
        (("--cell-memory", "1e300"), "--cell-memory: expected a number"),
        (("--cell-timeout", "1e300"), "--cell-timeout: expected a number"),
        (("--executor", "slurm", "--workers", "0"), "with --executor slurm expected auto or 1 or more"),
        (("--executor", "ray", "--workers", "+4"), "with --executor ray expected auto or 1 or more"),
        (("--executor", "slurm", "--executor-options", "tim=240"), "slurm has no such option"),
        (("--executor", "slurm", "--executor-options", "time=4h"), "time=4h: expected minutes, a number"),
        (("--executor", "ray", "--executor-options", "time=240"), "ray has no such option"),
        (("--executor", "slurm", "--device", "cuda:1"), "Slurm chooses the GPU; use cuda, cpu or auto"),
        (("--executor", "ray", "--device", "cuda:1"), "Ray chooses the GPU; use cuda, cpu or auto"),
    ],
)  # fmt: skip
def test_dry_run_refuses_what_the_sweep_would_refuse(
    ttabench: Run, out: Path, options: tuple[str, ...], says: str
) -> None:
    output = ttabench("sweep", *SMALL, *options, "--out", out, "--dry-run")
    assert (output.code, output.out) == (2, "")
    assert says in output.err


def test_dry_run_says_what_it_would_ask_of_a_cluster(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no sbatch
    dry = ("sweep", *SMALL, "--out", out, "--dry-run", "--executor")
    own = ("--executor-options", "partition=gpu,time=90,mem=16", "--workers", "16", "--device", "cuda")
    asked = ttabench(*dry, "slurm", *own).out
    assert (
        "slurm: tasks with 1 GPU each, 16 workers at once, 90 minutes, 16 GB of host memory, partition gpu;"
        in asked
    )
    assert "; sbatch is not on this machine." in asked
    default = ttabench(*dry, "slurm", "--device", "cpu").out
    assert "slurm: tasks with 1 core each, 32 tasks at once, 240 minutes;" in default
    assert "\nray: 1 worker per core" in ttabench(*dry, "ray", "--device", "cpu").out
    assert "\nray: 4 workers" in ttabench(*dry, "ray", "--workers", "4").out


def test_paths_with_a_tilde_are_in_the_home_and_commands_are_quoted(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    output = ttabench("sweep", *ONE, "--archs", "resnet18", "--limit", "20", *HERE, "--out", "~/my r")
    assert output.code == 0, output.err
    assert len(load_frame(tmp_path / "my r")) == 2
    assert f"ttabench report '{tmp_path}/my r'\n" in output.err
    output = ttabench(
        "sweep", *ONE, "--archs", "resnet20", "--checkpoint", "~/w.pt", "--out", "x", "--dry-run"
    )
    assert f"{tmp_path}/w.pt" in output.err
    (tmp_path / "empty.toml").write_text('out = ""\n')
    output = ttabench("sweep", *SMALL, "--config", "empty.toml")
    assert (output.code, "--out '' names no folder; name one" in output.err) == (2, True)
    assert not (tmp_path / "sweep.json").exists()


def test_dry_run_lists_the_cells_of_the_slice_that_is_asked_for(ttabench: Run, out: Path) -> None:
    listed = [
        ttabench("sweep", *SMALL, "--shard", shard, "--out", out, "--dry-run").out.splitlines()[:-1]
        for shard in ("1/3", "2/3", "3/3", "1/1")
    ]
    assert sorted(listed[0] + listed[1] + listed[2]) == sorted(listed[3])
    assert [len(lines) for lines in listed] == [2, 1, 1, 4]


def test_dry_run_says_what_would_be_trained(ttabench: Run, out: Path) -> None:
    output = ttabench("sweep", "--archs", "vit_lite", "--methods", "tent", "--out", out, "--dry-run")
    assert "train  vit_lite on digits-c" in output.out


def test_continual_state_survives_and_the_history_is_part_of_the_cell(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.batches = getattr(self, "batches", 0) + 1  # the n-th batch is said to be of class n − 1
        return torch.eye(10)[[self.batches - 1]].expand(len(x), -1)

    monkeypatch.setattr(Tent, "adapt", counting)
    actual = {}
    for reset in ("per_corruption", "continual"):
        ttabench("sweep", *SMALL, *HERE, "--batch-size", "10", "--reset", reset, "--out", tmp_path / reset)
        records = Store.at(tmp_path / reset).latest().values()
        actual[reset] = {
            r.result.cell.corruption: r.result for r in records if r.result.cell.method == "tent"
        }
    fresh, worn = actual["per_corruption"], actual["continual"]
    assert fresh["fog"].correct == worn["fog"].correct == fresh["snow"].correct
    assert fresh["snow"].correct != worn["snow"].correct
    assert worn["snow"].cell.history == ("fog-5",)


def test_results_say_which_forward_pass_was_scored(ttabench: Run, tmp_path: Path) -> None:
    for mode in ("online", "offline"):
        ttabench("sweep", *SMALL, *HERE, "--mode", mode, "--out", tmp_path / mode)
        cells = load_frame(tmp_path / mode).set_index("method")
        tent = cells.loc["tent", "scores"].iloc[0]
        assert tent == (Tent.scores if mode == "online" else Tent.scores_frozen)


def test_settings_that_cannot_work_on_clean_images_are_an_alarm(ttabench: Run, out: Path) -> None:
    methods = "sar[reset_constant=2],sar[reset_constant=0.000001]"
    output = ttabench("sweep", "--methods", methods, *SMALL[2:], *HERE, "--out", out)
    assert output.code == 0, output.err
    cells = load_frame(out).set_index("method")
    assert cells.loc["sar[reset_constant=2]", "alarm"].str.contains("of clean images").all()
    assert not cells.loc["sar[reset_constant=1e-06]", "alarm"].str.contains("clean").any()


def test_a_config_file_and_the_command_line_over_it(ttabench: Run, out: Path, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'methods = ["tent"]\narchs = "resnet18"\ncorruptions = ["fog", "snow"]\nlimit = 9\n'
        "workers = 0\n[set.tent]\nlr = [0.01, 0.1]\n"
    )
    output = ttabench("sweep", "--config", file, "--out", out, "--corruptions", "fog")
    assert output.code == 0, output.err
    cells = load_frame(out)
    assert set(cells["method"]) == {"source", "tent[lr=0.01]", "tent[lr=0.1]"}
    assert set(cells["corruption"]) == {"fog"}
    file.write_text('metods = ["tent"]')
    assert "did you mean 'methods'" in ttabench("sweep", "--config", file).err
    file.write_text("methods = [")
    assert "not valid TOML" in ttabench("sweep", "--config", file).err
    assert "cannot be read" in ttabench("sweep", "--config", tmp_path / "none.toml").err


@each(
    ("arguments", "message"),
    [
        (("--methods", "tnet"), "unknown method 'tnet'; did you mean 'tent'"),
        (("--archs", "resnet81"), "did you mean 'resnet18'"),
        (("--datasets", "digit-c"), "did you mean 'digits-c'?"),
        (("--corruptions", "frog"), "did you mean 'fog'"),
        (("--severities", "0"), "severities are 1 to 5"),
        (("--severities", "6"), "severities are 1 to 5"),
        (("--severities", "five"), "expected whole numbers"),
        (("--set", "tent.ler=1"), "did you mean 'lr'?"),
        (("--set", "tent.lr=fast"), "expected a number"),
        (("--set", "tent.norms=bath"), "did you mean 'batch'?"),
        (("--set", "nonsense"), "method.key=value"),
        (("--mode", "ofline"), "did you mean 'offline'?"),
        (("--reset", "never"), "per_corruption"),
        (("--order", "sorted"), "iid or dirichlet"),
        (("--limit", "-1"), "0 or larger"),
        (("--limit", "few"), "expected a whole number, 0 or larger"),
        (("--batch-size", "1,2"), "expected a whole number, 0 or larger"),
        (("--workers", "many"), "expected auto or a whole number"),
        (("--device", "gpu"), "unknown device 'gpu'"),
        (("--device", "meta"), "unknown device 'meta'"),
        (("--overwrite", "perhaps"), "never"),
        (("--shard", "0/2"), "expected i/n with 1"),
        (("--shard", "3/2"), "expected i/n with 1"),
        (("--cell-timeout", "5"), "need a worker process"),
        (("--precision", "float16"), "float16"),
        (("--contamination", "noise"), "NAME(ε)"),
        (("--contamination", "digit-c(0.1)"), "did you mean 'digits-c'?"),
        (("--contamination", "noyse(0.3)"), "unknown contamination 'noyse'; did you mean 'noise'?"),
        (("--contamination", "qqqq(0.3)"), ", noise, tinyimagenet-c."),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_exit_code_2(
    ttabench: Run, out: Path, arguments: tuple[str, ...], message: str
) -> None:
    usual = zip((*SMALL, *HERE)[::2], (*SMALL, *HERE)[1::2], strict=True)
    others = [text for pair in usual if pair[0] not in arguments for text in pair]
    output = ttabench("sweep", *others, "--out", out, *arguments)
    assert output.code == 2
    assert message in output.err
    assert output.err.startswith("ttabench: ")
    assert output.err.count("\n") == 1
    assert "Traceback" not in output.err + output.out
    assert not out.exists()


def test_folders_that_will_not_do(ttabench: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("precious")
    (tmp_path / "file").write_text("")
    for folder in ("thesis", "file", "file/below"):
        output = ttabench("sweep", *SMALL, *HERE, "--out", tmp_path / folder)
        assert (output.code, output.err.count("\n")) == (2, 1), output.err
        assert "--out" in output.err


def test_a_foreign_store_file_is_named(ttabench: Run, swept: Path) -> None:
    (swept / "cells" / "notes.jsonl").write_text("hello\n")
    for verb in (("sweep", *SMALL, *HERE, "--out", swept), ("report", swept), ("status", swept)):
        output = ttabench(*verb)
        assert output.code == 2
        assert "notes.jsonl, line 1, is not what ttabench wrote" in output.err


@pytest.mark.parametrize("name", ["plan.jsonl", "running/x.json", "cells/*.jsonl"])
def test_a_file_that_cannot_be_read_is_one_sentence(
    ttabench: Run, swept: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (swept / "running").mkdir(exist_ok=True)
    (swept / "running" / "x.json").touch()
    real = io.open

    def refused(path: Any, *how: Any, **more: Any) -> Any:
        if isinstance(path, Path) and path.is_relative_to(swept) and path.match(name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *how, **more)

    monkeypatch.setattr(io, "open", refused)
    output = ttabench("status", swept)
    assert (output.code, output.err.count("\n")) == (2, 1), output.err
    place = re.escape(f"{swept}/{name.partition('/')[0]}")
    assert re.search(rf"{place}.* cannot be read or written \(Permission", output.err)


def test_a_full_disk_ends_the_sweep_with_one_sentence(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.write, []

    def nearly_full(fd: int, data: bytes) -> int:
        calls.append(1)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:10] if len(calls) == 4 else data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", nearly_full)
        output = ttabench("sweep", *SMALL, *HERE, "--out", out)
    assert output.code == 2
    assert "what was stored is kept" in output.err
    stored = len(load_frame(out))
    assert stored >= 1
    output = ttabench("sweep", *SMALL, *HERE, "--out", out)
    assert output.code == 0
    assert f"{4 - stored} to run, {stored} done" in output.err


def background(out: Path, methods: str = "source", seeds: str = "0") -> subprocess.Popen[str]:
    """A sweep of 15 cells for each method and seed, with one worker: each more imports torch."""
    # Without job control a shell starts background commands with SIGINT ignored, and Python keeps that.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    start += "from ttabench.cli import main; main()"
    command = [sys.executable, "-c", start, "sweep", *NET_ON_FEW, "--workers", "1"]
    command += ["--methods", methods, "--seeds", seeds, "--out", str(out)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=out.parent, env=environment(out.parent, 0.05), stdout=pipe, stderr=pipe, text=True,
        start_new_session=True,
    )  # fmt: skip


def stored(out: Path) -> int:
    return len(Store.at(out).latest()) if (out / "sweep.json").exists() else 0


LONG = "source,bn_stats,tent"  # far from done when a test has seen that it has begun
SOON = 120  # seconds: 5 on a quiet machine


def test_ctrl_c_loses_nothing(net_out: Path, ttabench: Run) -> None:
    process = background(net_out, LONG, seeds="0,1")
    wait_for(lambda: stored(net_out) >= 3)
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, err = process.communicate(timeout=300)
    assert time.monotonic() - started < SOON
    assert process.returncode == 130
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
    kept = stored(net_out)
    assert 3 <= kept < 90
    assert json.loads((net_out / "sweep.json").read_text())


@pytest.mark.slow
def test_sigterm_keeps_what_is_stored_and_ends_in_time(net_out: Path) -> None:
    process = background(net_out, LONG, seeds="0,1")
    wait_for(lambda: stored(net_out) >= 3)
    workers = workers_of(process)
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGTERM)  # Slurm sends it to every process of a step
    _, err = process.communicate(timeout=300)
    assert time.monotonic() - started < SOON
    assert process.returncode == 143
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
    assert not any(map(alive, workers))
    assert stored(net_out) >= 3
    assert set(load_frame(net_out)["status"]) == {"ok"}  # no cell is blamed for it


def test_sigterm_ends_a_sweep_whose_cell_does_not_answer(out: Path, tmp_path: Path) -> None:
    (tmp_path / "net_that_hangs.py").write_text(
        "import pathlib, threading, time, torch\n"
        "class Net(torch.nn.Sequential):\n"
        "    def forward(self, x):\n"
        "        if threading.current_thread() is not threading.main_thread():\n"
        "            pathlib.Path('hangs').touch()\n"
        "            time.sleep(600)\n"
        "        return super().forward(x)\n"
        "def build(num_classes):\n"
        "    pool = [torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.BatchNorm1d(48)]\n"
        "    return Net(*pool, torch.nn.Linear(48, num_classes))\n"
    )
    command = [sys.executable, "-c", "from ttabench.cli import main; main()", "sweep", "--out", str(out)]
    command += ["--archs", "net_that_hangs:build", *ONE, *HERE, "--limit", "50"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    wait_for((tmp_path / "hangs").exists)
    started = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=300)
    assert time.monotonic() - started < SOON
    assert process.returncode == 143
    assert err.endswith("ttabench: ended by SIGTERM.\n")


@pytest.mark.parametrize("reset", ["per_corruption", "continual"])
def test_shards_share_a_sweep_and_no_cell_is_run_twice(ttabench: Run, out: Path, reset: str) -> None:
    usual = ("sweep", *SMALL, *HERE, "--reset", reset, "--out", out, "--shard")
    for shard in ("2/3", "1/3", "3/3"):
        output = ttabench(*usual, shard)
        assert output.code == 0, output.err
        assert re.search(rf"Slice {shard[0]} of 3: \d of the 4 cells\.", output.err)
        assert f"The table above shows only slice {shard[0]} of 3." in output.err
        assert f"ttabench status {out}" in output.err
    cells = load_frame(out)
    assert sorted(zip(cells["method"], cells["corruption"], strict=True)) == [
        ("source", "fog"), ("source", "snow"), ("tent", "fog"), ("tent", "snow"),
    ]  # fmt: skip
    records = [record.result.cell.cell_id for record in Store.at(out).records()]
    assert len(records) == len(set(records)) == 4
    whole = ttabench(*usual, "1/1").err
    assert "0 to run, 4 done" in whole
    assert "lice" not in whole


def test_a_shard_of_a_sweep_without_classifiers_is_refused(ttabench: Run, out: Path) -> None:
    output = ttabench("sweep", "--archs", "vit_lite", *ONE, "--shard", "1/2", "--out", out)
    assert (output.code, "ttabench train" in output.err, output.err.count("\n")) == (2, True, 1)


def alive(pid: str) -> bool:
    """Running, and not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def workers_of(process: subprocess.Popen[str]) -> list[str]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [c for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


@pytest.mark.slow
def test_kill_9_of_the_sweep_keeps_what_is_stored_and_leaves_no_workers(net_out: Path) -> None:
    process = background(net_out, LONG, seeds="0,1")
    wait_for(lambda: stored(net_out) >= 2)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    assert len(workers) == 1
    wait_for(lambda: not any(map(alive, workers)))
    assert stored(net_out) >= 2


@pytest.mark.slow
def test_a_killed_worker_does_not_take_the_sweep_with_it(net_out: Path) -> None:
    process = background(net_out)
    wait_for(lambda: stored(net_out) >= 1)
    os.kill(int(workers_of(process)[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    assert stored(net_out) == 15
    assert set(load_frame(net_out)["status"]) == {"ok"}


@pytest.mark.usefixtures("forked_workers")
def test_a_model_of_ones_own(
    ttabench: Run, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets_of_mine.py").write_text(
        "import torch\n"
        "SEED = 0\n"
        "def build(num_classes):\n"
        "    torch.manual_seed(SEED)\n"
        "    pool = [torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.BatchNorm1d(48)]\n"
        "    return torch.nn.Sequential(*pool, torch.nn.Linear(48, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    mine = ("--archs", "nets_of_mine:build", "--methods", "bn_stats", "--corruptions", "fog", "--limit", "50")
    output = ttabench("sweep", *mine, "--workers", "1", "--out", out)
    assert output.code == 0, output.err
    assert "better than the" in output.err  # an untrained net is warned about
    cells = load_frame(out)
    assert set(cells["status"]) == {"ok"}
    assert set(cells["arch"]) == {"nets_of_mine:build"}
    output = ttabench("sweep", *mine, *HERE, "--out", out)
    assert ("0 to run, 2 done" in output.err, "Note: the weights" in output.err) == (True, False)
    monkeypatch.setattr(sys.modules["nets_of_mine"], "SEED", 1)
    output = ttabench("sweep", *mine, *HERE, "--out", out)
    assert "2 to run, 0 done" in output.err
    assert " had other weights of nets_of_mine:build, so its cells are measured anew" in output.err
    output = ttabench("sweep", "--archs", "nets_of_mine:bild", "--out", out, "--extend")
    assert (output.code, "did you mean 'build'" in output.err) == (2, True)
    output = ttabench("sweep", "--archs", "resnet18,cct", "--checkpoint", "x.pt", "--out", out, "--extend")
    assert (output.code, "but 2 are given" in output.err) == (2, True)
    output = ttabench("sweep", "--archs", "resnet18", "--checkpoint", "x.pt", "--out", out, "--extend")
    assert (output.code, "x.pt" in output.err, output.err.count("\n")) == (2, True, 1)


def test_images_and_weights_that_changed_since_are_noted(
    ttabench: Run, net_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(net_out.parent)
    images, weights = Path("few-c-local") / "fog-5.npy", Path("own.safetensors")
    (images.parent / MANIFEST).unlink()  # which makes generated files that were changed an error
    net = build(
        "resnet18_w8", dataset="few", num_classes=10, image_size=32, mean=(0.5,) * 3, std=(0.5,) * 3
    ).net

    def run() -> tuple[str, list[str]]:
        save_file({name: value.contiguous() for name, value in net.state_dict().items()}, weights)
        own = ("--datasets", "./few-c-local", "--archs", "resnet18_w8", "--checkpoint", weights)
        output = ttabench(
            "sweep", "--methods", "bn_stats", *own, "--corruptions", "fog", *HERE, "--out", "own"
        )
        assert output.code == 0, output.err
        lines = output.err.splitlines()
        cells = next(line for line in lines if line.startswith("2 cells: "))
        return cells, [line for line in lines if line.startswith("Note: ") and " had other " in line]

    assert run() == ("2 cells: 2 to run, 0 done.", [])
    assert run() == ("2 cells: 0 to run, 2 done.", [])
    np.save(images, np.load(images) ^ 1)
    cells, notes = run()
    assert cells == "2 cells: 2 to run, 0 done."
    assert [note.partition(", so ")[0] for note in notes] == [
        "Note: 2 cells in own had other images or labels of few-c-local"
    ]
    next(net.parameters()).data += 1
    cells, notes = run()
    assert cells == "2 cells: 2 to run, 0 done."
    assert [note.partition(", so ")[0] for note in notes] == [
        "Note: 4 cells in own had other weights of resnet18_w8"
    ]
    assert run() == ("2 cells: 0 to run, 2 done.", [])


def test_a_sweep_in_bfloat16_is_another_cell_and_says_so(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    for precision in ("float32", "bfloat16"):
        options = ("--methods", "tent", "--archs", "resnet18", "--corruptions", "fog", "--limit", "10")
        output = ttabench("sweep", *options, "--precision", precision, *HERE, "--out", out, "--extend")
        assert output.code == 0, output.err
    cells = load_frame(out)
    assert set(cells["status"]) == {"ok"}
    assert cells.groupby("precision").size().to_dict() == {"bfloat16": 2, "float32": 2}
    assert cells["cell_id"].is_unique
