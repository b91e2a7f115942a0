"""Sweeps over long streams and with a pace: which cells they have, what they refuse, and that they go on."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cases import each
from tests.unit import made_cells
from tests.unit.conftest import Run, sweep_once
from tests.unit.planning import plan
from tests.unit.sweep.test_shifts import BAR, CIFAR_C, asked
from ttabench.cell import Cell, canonical
from ttabench.cell.protocol import Protocol
from ttabench.cell.stream_spec import parse_stream
from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS, CORRUPTIONS
from ttabench.data.dataset import Dataset
from ttabench.errors import UnusableModel, UserError
from ttabench.measure.streams import checkpoint, source_accuracy
from ttabench.measure.streams.images import Point
from ttabench.provenance import Code
from ttabench.run.cell_images import ImagesOfLongStream
from ttabench.run.worker import Worker
from ttabench.store import Store, load_frame
from ttabench.sweep import compute_ratio
from ttabench.sweep.compute_ratio import Ratios
from ttabench.sweep.grid import Grid
from ttabench.sweep.option_table import OPTIONS
from ttabench.sweep.options_to_grid import stream_spelling
from ttabench.sweep.pace import OFFLINE
from ttabench.sweep.plan import Planned, SourceFacts
from ttabench.sweep.plan import plan as plan_cells
from ttabench.sweep.resolve import resolve
from ttabench.sweep.shifts import find_shifts, split_baseline
from ttabench.sweep.sweep_file import with_flags
from ttabench_reports.cells.frames import DETAILS
from ttabench_reports.evidence.report import Report
from ttabench_reports.evidence.stability import curve_frame, stabilities, stability_frame
from ttabench_reports.sheets import stability as sheets

ROOT = Path(__file__).resolve().parents[3]


def cells(planned: list[Planned], **fields: Any) -> list[Cell]:
    return [p.cell for p in planned if all(getattr(p.cell, k) == v for k, v in fields.items())]


# ---- protocols


@each(
    ("text", "stored"),
    [
        ("recurring(20)", "recurring(20)"),
        ("recurring(rounds=20)", "recurring(20)"),
        (" recurring( 20 ) ", "recurring(20)"),
        ("recurring(2,corruptions=fog+snow)", "recurring(2,corruptions=fog+snow)"),
        ("gradual", "gradual"),
        ("gradual()", "gradual"),
        ("ccc", "ccc(40,length=100000,speed=1000)"),
        ("ccc(20.50,speed=500)", "ccc(20.5,length=100000,speed=500)"),
        ("ccc(0.0,speed=500)", "ccc(0,length=100000,speed=500)"),
        ("cdc", "cdc(1)"),
        ("cdc( 0.50 ,rounds=4,corruptions=fog+snow)", "cdc(0.5,rounds=4,corruptions=fog+snow)"),
        ("ccc(speed=500,accuracy=20,length=7500000)", "ccc(20,length=7500000,speed=500)"),
    ],
)
def test_a_stream_has_one_spelling(text: str, stored: str) -> None:
    protocol = Protocol(stream=text, reset="continual")
    assert protocol.stream == stored
    assert Protocol.from_json(json.loads(json.dumps(protocol.to_json()))) == protocol
    assert str(parse_stream(stored)) == stored
    assert f"stream {stored}" in protocol.caption()


@each(
    ("wrong", "message"),
    [
        ({"stream": "recuring(2)"}, r"expected recurring\(K\), gradual, mixed, cdc"),
        ({"stream": "recurring"}, r"e.g. recurring\(20\)"),
        ({"stream": "recurring(0)"}, "a whole number from 1"),
        ({"stream": "recurring(2,3)"}, "expected recurring"),
        ({"stream": "recurring(2,rounds=3)"}, "'rounds' is given twice"),
        ({"stream": "gradual(3)"}, "expected"),
        ({"stream": "ccc(100)"}, "a number of percent from 0 to below 100"),
        ({"stream": "ccc(x)"}, "expected a number of percent"),
        ({"stream": "ccc(40,lenght=3)"}, "ccc has no 'lenght'"),
        ({"stream": "ccc(40,length=0)"}, "length is 0"),
        ({"stream": "ccc(0,length=0)"}, "length is 0"),
        ({"stream": "cdc(0)"}, "δ is 0; expected a number above 0"),
        ({"stream": "cdc(few)"}, "δ is few; expected a number above 0"),
        ({"stream": "cdc(1,rounds=0)"}, "rounds is 0; expected a whole number"),
        ({"stream": "cdc(1,length=5)"}, "cdc has no 'length'"),
        ({"stream": "cdc", "contamination": "noise(0.1)"}, "cannot be combined with a cdc stream"),
        ({"stream": "ccc(0)", "contamination": "noise(0.1)"}, "cannot be combined with a ccc stream"),
        ({"stream": "ccc(40)", "contamination": "noise(0.1)"}, "cannot be combined with a ccc stream"),
        (
            {"stream": "gradual", "reset": "per_corruption"},
            r"expected reset continual, every\(N\) or episodic",
        ),
        ({"stream": "gradual", "held_out": 0.5}, "held_out cannot be combined with a stream"),
        ({"reset": "every(0)"}, r"every\(N\) with N batches"),
        ({"reset": "every(2.5)"}, r"every\(N\) with N batches"),
        ({"reset": "each(2)"}, "expected one of per_corruption"),
        ({"reset": "every(5)", "mode": "offline"}, "not reset during a stream"),
        ({"reset": "every(5)", "held_out": 0.5}, "held_out cannot be combined"),
        ({"pace": -1.0}, "a number above 0"),
        ({"pace": float("nan")}, "a number above 0"),
        ({"pace": 1.0, "pace_ratio": 0.0}, "a number above 0, e.g. 3.1"),
        ({"pace_ratio": 3.0}, "belongs to a pace"),
        ({"pace": 1.0, "held_out": 0.5}, "pace cannot be combined with held_out"),
    ],
)
def test_bad_protocols_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Protocol(**{"reset": "continual" if "stream" in wrong else "per_corruption", **wrong})


def test_a_share_in_place_of_percent_is_refused_before_a_sweep() -> None:
    with pytest.raises(
        UserError, match=r"in percent, and 0.4 % is less than guessing; did you mean ccc\(40\)"
    ):
        stream_spelling("ccc(0.4,speed=500)")
    assert stream_spelling("ccc(0)").startswith("ccc(0,")
    assert stream_spelling("ccc(1)").startswith("ccc(1,")


def test_new_fields_stay_out_of_old_identities() -> None:
    assert Protocol(reset="every(50)").to_json() == {"mode": "online", "reset": "every(50)"}
    assert Protocol(pace=1.0).to_json() == {"mode": "online", "pace": 1.0}
    assert asked(methods="tent").to_json().keys() & {"stream", "pace", "pace_ratio"} == set()


# ---- plans


def test_a_recurring_stream_is_one_cell_per_severity_and_seed() -> None:
    planned = plan(asked(stream="recurring(20)", severities="3,5", seeds="0,1"), [CIFAR_C])
    assert [(c.corruption, c.severity, c.seed) for c in cells(planned)] == [
        ("recurring", 3, 0), ("recurring", 5, 0), ("recurring", 3, 1), ("recurring", 5, 1),
    ]  # fmt: skip
    assert {c.protocol.stream for c in cells(planned)} == {"recurring(20)"}
    assert {c.protocol.reset for c in cells(planned)} == {"continual"}


@pytest.mark.parametrize("kind", ["gradual", "ccc"])
def test_streams_through_all_severities_have_none(kind: str) -> None:
    (cell,) = cells(plan(asked(stream=kind), [CIFAR_C]))
    assert (cell.corruption, cell.severity) == (kind, 0)
    assert str(cell).endswith(f"· {kind} · seed 0")


def test_other_corruptions_than_the_fifteen_are_part_of_the_protocol() -> None:
    (cell,) = cells(plan(asked(stream="recurring(2)", corruptions="fog,snow"), [CIFAR_C]))
    assert cell.protocol.stream == "recurring(2,corruptions=fog+snow)"
    (bar,) = cells(plan(asked(stream="recurring(2)"), [BAR]))
    assert bar.protocol.spec.corruptions == BAR_CORRUPTIONS
    (whole,) = cells(plan(asked(stream="recurring(2)"), [CIFAR_C]))
    assert (whole.protocol.spec.corruptions, len(CORRUPTIONS)) == ((), 15)


def test_offline_methods_are_not_applicable_with_the_reason() -> None:
    for options in (
        {"stream": "gradual"}, {"pace": 1.0}, {"reset": "every(5)"}, {"reset": "episodic"},
        {"stream": "gradual", "reset": "every(5)"}, {"pace": 1.0, "reset": "episodic"},
    ):  # fmt: skip
        planned = plan(asked(methods="quantile,tent", **options), [CIFAR_C])
        unmet = {p.cell.method: p.unmet for p in planned}
        reset = (
            "" if "stream" in options or "pace" in options else ", so it cannot be reset during the stream"
        )
        assert unmet == {"source": "", "tent": "", "quantile": f"{OFFLINE}{reset}"}
        assert len({(p.cell.protocol.reset, p.cell.protocol.stream) for p in planned}) == 1  # one table
    online = plan(asked(methods="quantile", stream="gradual", mode="online"), [CIFAR_C])
    assert {p.unmet for p in online} == {""}
    with pytest.raises(UserError, match="offline mode sees all images at once"):
        plan(asked(methods="quantile", reset="every(5)", mode="offline"), [CIFAR_C])


# ---- the baseline of a ccc stream


def source(name: str, checkpoint: str) -> SourceFacts:
    return replace(CIFAR_C, name=name, checkpoint=checkpoint)


@each(
    ("text", "rest", "baseline"),
    [
        ("ccc", "ccc", ""),
        ("ccc(40)", "ccc(40)", ""),
        ("ccc(baseline=resnet18)", "ccc()", "resnet18"),
        ("ccc(40,baseline = mod:net ,speed=500)", "ccc(40,speed=500)", "mod:net"),
        ("recurring(2,baseline=cct)", "recurring(2,baseline=cct)", ""),
    ],
)
def test_the_baseline_is_taken_out_of_the_stream(text: str, rest: str, baseline: str) -> None:
    assert split_baseline(text) == (rest, baseline)


@pytest.mark.parametrize("text", ["ccc(baseline=)", "ccc(baseline=cct,baseline=resnet18)"])
def test_a_ccc_stream_has_one_baseline(text: str) -> None:
    with pytest.raises(UserError, match="expected one baseline, such as baseline=resnet18"):
        resolve(asked(stream=text))


def test_all_rows_of_a_ccc_stream_have_the_baseline_that_is_named() -> None:
    """Its weights are part of what identifies a cell, and a network that is not measured may be it."""
    grid = asked(methods="tent", archs="resnet18,cct", stream="ccc(40,baseline=resnet18)")
    sources = {"resnet18": source("resnet18", "r1"), "cct": source("cct", "c1"), "cvt": source("cvt", "v1")}

    def planned(grid: Grid, **other: SourceFacts) -> list[Cell]:
        sweep = resolve(grid)
        held = {**sources, **other}
        return [item.cell for item in plan_cells(sweep, [held[model.name] for model in sweep.models])]

    actual = planned(grid)
    assert {(cell.arch, cell.baseline) for cell in actual} == {
        (arch, "resnet18@r1") for arch in ("resnet18", "cct")
    }
    assert {cell.protocol.stream for cell in actual} == {"ccc(40,length=100000,speed=1000)"}
    ids = {cell.cell_id for cell in actual}
    assert ids.isdisjoint(cell.cell_id for cell in planned(replace(grid, stream="ccc(40)")))
    assert ids.isdisjoint(cell.cell_id for cell in planned(grid, resnet18=source("resnet18", "r2")))
    assert [Cell.from_json(json.loads(json.dumps(cell.to_json()))) for cell in actual] == actual
    other = planned(replace(grid, stream="ccc(40,baseline=cvt)"))
    assert {(cell.arch, cell.baseline) for cell in other} == {
        (arch, "cvt@v1") for arch in ("resnet18", "cct")
    }


def test_identities_without_a_baseline_are_those_of_before() -> None:
    (cell,) = cells(plan(asked(stream="ccc"), [CIFAR_C]))
    assert "baseline" not in cell.to_json()
    identity = {name: value for name, value in cell.to_json().items() if name != "label"}
    assert hashlib.sha256(canonical(identity).encode()).hexdigest() == cell.cell_id
    named = replace(cell, baseline="cct@c1")
    identity = {name: value for name, value in named.to_json().items() if name != "label"}
    assert hashlib.sha256(canonical(identity).encode()).hexdigest() == named.cell_id


def test_networks_share_the_stream_of_the_baseline(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Point]] = {}
    follow = ImagesOfLongStream.score

    def noted(self: ImagesOfLongStream, *rest: Any) -> Any:
        stream: Any = self.stream
        seen[str(self.cell)] = [stream._point_at(step) for step in range(4)]
        return follow(self, *rest)

    monkeypatch.setattr(ImagesOfLongStream, "score", noted)
    monkeypatch.setattr(source_accuracy, "CALIBRATION_IMAGES", 16)
    output = ttabench(
        "sweep", "--methods", "bn_stats", "--archs", "resnet18,cct", "--corruptions", "fog,contrast",
        "--stream", "ccc(60,length=40,speed=10,baseline=cct)", "--workers", "0", "--out", out,
    )  # fmt: skip
    assert output.code == 0, output.err
    assert len(seen) == 3  # bn_stats on cct is n/a
    assert len({tuple(points) for points in seen.values()}) == 1
    assert len(list(out.glob("streams/ccc-*.json"))) == 1
    assert "at the accuracy of CCT" in " ".join(output.out.split())
    shared = {tuple(points) for points in seen.values()}
    seen.clear()
    alone = ttabench(
        "sweep", "--methods", "source", "--archs", "cct", "--corruptions", "fog,contrast",
        "--stream", "ccc(60,length=40,speed=10)", "--workers", "0", "--out", out.parent / "alone",
    )  # fmt: skip
    assert alone.code == 0, alone.err
    assert {tuple(points) for points in seen.values()} == shared  # the path of CCT alone
    frame = load_frame(out)
    assert set(frame["baseline"].str.partition("@")[0]) == {"cct"}
    assert "0 to run, 3 done" in ttabench("sweep", "--config", out / "sweep.toml", "--out", out).err


@pytest.mark.parametrize("accuracy", [60, 0])
def test_a_path_is_measured_before_the_first_image(
    ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch, accuracy: int
) -> None:
    """Its passes are not those of the first method on it, nor its precision that of a protocol."""
    shortened: list[bool] = []
    measure = source_accuracy.SourceAccuracy.__call__

    def noted(self: source_accuracy.SourceAccuracy, point: Point) -> float:
        shortened.append(torch.is_autocast_enabled("cpu"))
        return measure(self, point)

    monkeypatch.setattr(source_accuracy.SourceAccuracy, "__call__", noted)
    monkeypatch.setattr(source_accuracy, "CALIBRATION_IMAGES", 16)
    output = ttabench(
        "sweep", "--methods", "bn_stats", "--archs", "resnet18", "--corruptions", "fog,contrast",
        "--precision", "bfloat16", "--batch-size", "30", "--workers", "0", "--out", out,
        "--stream", f"ccc({accuracy},length=60,speed=1)",
    )  # fmt: skip
    assert output.code == 0, output.err
    assert shortened
    assert not any(shortened)
    assert load_frame(out)["forward"].tolist() == [60, 60]  # of Source and of bn_stats


def test_streams_of_two_baselines_stand_in_two_tables() -> None:
    one = streamed({"source": [[60.0] * 20], "tent": [[70.0] * 20]})
    both = pd.concat([one.assign(baseline="cct@c1"), one.assign(baseline="resnet18@r1")], ignore_index=True)
    both["cell_id"] = [f"{number}" for number in range(len(both))]
    tables = Report(both).tables
    assert [table.protocol.partition(" at the ")[2] for table in tables] == [
        "accuracy of CCT",
        "accuracy of ResNet18",
    ]


def test_a_mixed_stream_is_the_mixed_cell_of_before() -> None:
    assert asked(stream="mixed") == asked(corruptions="mixed")


@each(
    ("option", "text", "spelled"),
    [
        ("reset", "every(02)", "every(2)"),
        ("reset", "every(2.0)", "every(2)"),
        ("reset", "episodic", "episodic"),
        ("stream", " recurring( 02 ) ", "recurring(2)"),
        ("stream", "gradual()", "gradual"),
        ("stream", "ccc", "ccc(40,length=100000,speed=1000)"),
        (
            "stream",
            "ccc(040.0, baseline = mod:net,speed=500)",
            "ccc(40,length=100000,speed=500,baseline=mod:net)",
        ),
    ],
)
def test_a_sweep_has_one_spelling_and_a_sweep_file_takes_each(option: str, text: str, spelled: str) -> None:
    grid = asked(**{option: text})
    assert getattr(grid, option) == spelled
    assert grid == asked(**{option: spelled})
    assert asked(include=[{option: text}]) == asked(include=[{option: spelled}])
    for one in (text, spelled):
        OPTIONS[option].kind.check(one, option)
        assert (
            re.fullmatch(OPTIONS[option].kind.schema["anyOf"][1]["pattern"], one)
            or one in (OPTIONS[option].kind.schema["anyOf"][0]["enum"])
        )


@pytest.mark.parametrize("text", ["ccc(100)", "ccc(40,lenght=3)", "recuring(2)", "recurring"])
def test_what_is_no_stream_is_refused_as_it_was_written(text: str) -> None:
    assert asked(stream=text).stream == text
    with pytest.raises(UserError, match="stream is "):
        resolve(asked(stream=text))


def test_a_dirichlet_stream_is_the_order() -> None:
    same = asked(stream="dirichlet(0.1)", order="dirichlet(0.1)")
    assert asked(stream="dirichlet(0.1)") == asked(order="dirichlet(0.1)") == same
    assert asked(stream="dirichlet(0.10)") == same
    assert asked(stream="dirichlet(0.10)", order="dirichlet(0.1)") == same
    for order in ("dirichlet(2)", "iid"):
        said = re.escape(f"--stream dirichlet(1) and --order {order} differ; keep one.")
        for asks in (
            lambda order=order: asked(stream="dirichlet(1)", order=order),
            lambda order=order: with_flags({}, {"stream": "dirichlet(1)", "order": order}),
            lambda order=order: asked(per_dataset={"digits-c": {"stream": "dirichlet(1)", "order": order}}),
        ):
            with pytest.raises(UserError, match=said):
                asks()
    with pytest.raises(UserError, match="expected iid or dirichlet"):
        resolve(asked(stream="dirichlet(x)"))


def test_a_flag_replaces_the_order_of_a_file_in_both_spellings() -> None:
    for order in ({"order": "dirichlet(1)"}, {"stream": "dirichlet(1)"}):
        for flag in ({"order": "dirichlet(2)"}, {"stream": "dirichlet(2)"}):
            options = with_flags({**order, "per_dataset": {"digits-c": order}}, flag)
            assert (options["order"], options["stream"]) == ("dirichlet(2)", "")
            assert "order" not in options["per_dataset"].get("digits-c", {})


@each(
    ("options", "message"),
    [
        ({"stream": "mixed", "corruptions": "fog"}, "mixed interleaves the fifteen"),
        ({"stream": "gradual", "mode": "offline"}, "--mode offline: an offline method sees all images"),
        ({"pace": 1.0, "mode": "offline"}, "which --pace does not allow"),
        ({"stream": "gradual", "severities": "3"}, "goes through all severities"),
        ({"stream": "ccc", "corruptions": "fog"}, "name at least two"),
        ({"stream": "recurring(2)", "corruptions": "mixed"}, "needs corruptions by name"),
        ({"stream": "recurring(2,corruptions=fog)", "corruptions": "snow"}, "both name corruptions"),
        ({"stream": "recurring(2,corruptions=fgo)"}, "did you mean 'fog'"),
        ({"stream": "recurring(2)", "corruptions": "ripple"}, "unknown corruption of digits-c 'ripple'"),
        ({"pace_ratio": "source=3"}, "belongs to --pace"),
        ({"pace": 1.0, "pace_ratio": "sorce=3"}, "did you mean 'source'"),
        ({"pace": 1.0, "pace_ratio": "source=3"}, "source=3: others are compared with it, so its ratio is 1"),
        ({"pace": 1.0, "methods": "tent", "pace_ratio": "tent[lt=1]=3"}, "unknown setting of tent 'lt'"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve(asked(**options))


@each("text", ["source", "source=", "source=x", "=3", "source=0", "source=inf", "source=-1"])
def test_a_ratio_has_a_form(text: str) -> None:
    with pytest.raises(UserError, match="METHOD=RATIO"):
        asked(pace=1.0, pace_ratio=text)
    with pytest.raises(UserError, match="names tent twice"):
        asked(pace=1.0, pace_ratio="tent=1,tent=2")


class Photographs(Dataset):
    name, corruptions, image_size = "cifar10.1", ("natural",), 32
    fingerprint = train = test = corrupted = None  # type: ignore[assignment]


class Large(Photographs):
    corruptions, image_size = CORRUPTIONS, 224


def test_a_natural_shift_has_no_stream_and_large_images_no_ccc() -> None:
    with pytest.raises(UserError, match=r"cifar10\.1 is a natural shift and has no corruptions"):
        find_shifts(Photographs(), asked(stream="gradual"))  # type: ignore[abstract]
    with pytest.raises(UserError, match=r"needs images of 32 or 64 pixels; those of cifar10\.1 have 224"):
        find_shifts(Large(), asked(stream="ccc"))  # type: ignore[abstract]


# ---- compute ratios


def paced(folder: Path = Path("nowhere"), **options: Any) -> list[Planned]:
    grid = asked(methods="tent,eata", pace=1.0, **options)
    return plan(grid, [CIFAR_C], Ratios(folder, "cpu", print))


def test_given_ratios_are_part_of_the_protocol_and_source_has_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_ratio, "measured", lambda cell, device: 2.71828)
    planned = paced(tmp_path, pace_ratio="tent=3.1")
    ratios = {p.cell.method: p.cell.protocol.pace_ratio for p in planned}
    assert ratios == {"source": 1.0, "tent": 3.1, "eata": 2.72}
    assert "pace 1 at compute ratio 2.72" in cells(planned, method="eata")[0].protocol.caption()


def test_a_ratio_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[str] = []

    def measured(cell: Cell, device: str) -> float:
        asked_for.append(cell.method)
        return 2.0 + len(asked_for)

    monkeypatch.setattr(compute_ratio, "measured", measured)
    grid = asked(methods="tent", pace=1.0, seeds="0,1")
    output: list[str] = []
    first = Ratios(tmp_path, "cpu", output.append)
    planned = plan(grid, [CIFAR_C], first)
    assert output == [
        "Measuring compute ratios for --pace; this takes seconds to minutes per method.",
        "Compute ratio of tent on resnet18: 3 (measured).",
    ]
    assert plan(grid, [CIFAR_C], Ratios(tmp_path, "cpu", output.append)) == planned
    assert asked_for == ["tent"]
    both = asked(methods="tent,eata", pace=1.0)
    dry = Ratios(tmp_path, "cpu", output.append, dry_run=True)
    ratios = {p.cell.method: p.cell.protocol.pace_ratio for p in plan(both, [CIFAR_C], dry)}
    assert ratios == {"source": 1.0, "tent": 3.0, "eata": 1.0}
    assert output[-1] == "Compute ratio of eata on resnet18: measured when the sweep runs."
    assert asked_for == ["tent"]  # a dry run measures nothing
    elsewhere = Ratios(tmp_path, "cpu", print, elsewhere="--shard")
    with pytest.raises(UserError, match=r"--shard with --pace needs the compute ratio of eata .*eata="):
        plan(asked(methods="eata", pace=1.0), [CIFAR_C], elsewhere)
    untrained = replace(planned[-1].cell, method="eata", checkpoint="")
    with pytest.raises(UserError, match="--executor slurm with --pace needs the compute ratio"):
        Ratios(tmp_path, "cpu", print, elsewhere="--executor slurm")(untrained)  # before it is trained
    assert Ratios(tmp_path, "cpu", print)(untrained) == 1.0
    with monkeypatch.context() as patch:
        patch.setattr(compute_ratio, "code_of", lambda cell: Code("other"))
        assert Ratios(tmp_path, "cpu", output.append)(planned[-1].cell) == 4.0  # of other code
    (tmp_path / compute_ratio.FILE).write_text("[1]")
    with pytest.raises(UserError, match="delete it to measure again"):
        plan(grid, [CIFAR_C], Ratios(tmp_path, "cpu", print))


def test_a_method_without_a_ratio_is_one_sentence_and_others_keep_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(cell: Cell, device: str) -> float:
        if cell.method == "eata":
            raise UnusableModel("eata gave NaN logits\nand more")
        return 3.0

    monkeypatch.setattr(compute_ratio, "measured", measured)
    grid = asked(methods="tent,eata", pace=1.0)
    with pytest.raises(UserError, match=r"of eata on resnet18 cannot .*\(eata gave NaN logits\); .*eata="):
        plan(grid, [CIFAR_C], Ratios(tmp_path, "cpu", print))
    (stored,) = json.loads((tmp_path / compute_ratio.FILE).read_text()).values()
    assert (stored["method"], stored["ratio"]) == ("tent", 3.0)


def test_a_ratio_is_of_one_network_with_its_settings_and_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[Cell] = []

    def measured(cell: Cell, device: str) -> float:
        asked_for.append(cell)
        return float(len(asked_for))

    monkeypatch.setattr(compute_ratio, "measured", measured)
    ratios = Ratios(tmp_path, "cpu", lambda text: None)
    tent = cells(plan(asked(methods="tent"), [CIFAR_C]), method="tent")[0]
    others = [
        replace(tent, protocol=replace(tent.protocol, batch_size=7)),
        replace(tent, protocol=replace(tent.protocol, precision="bfloat16")),
        replace(tent, config=(("lr", 0.5),)),
        replace(tent, arch="cct"),
        replace(tent, dataset="digits-c"),
    ]
    assert [ratios(cell) for cell in (tent, *others)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert ratios(replace(tent, seed=1, corruption="snow")) == 1.0


def test_a_ratio_given_for_a_variant_wins_over_that_of_its_method() -> None:
    grid = asked(methods="tent,tent[lr=0.5]", pace=1.0, pace_ratio="tent=2,tent[lr=0.5]=3")
    planned = plan(grid, [CIFAR_C], Ratios(Path(), "cpu", print, elsewhere="--shard"))
    ratios = {p.cell.label: p.cell.protocol.pace_ratio for p in planned}
    assert ratios == {"source": 1.0, "tent": 2.0, "tent[lr=0.5]": 3.0}


def test_a_ratio_is_measured_in_the_precision_of_its_cell_with_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[Any, ...]] = []

    def measure(*asked_for: Any) -> float:
        given.append((*asked_for, torch.get_num_threads(), torch.get_float32_matmul_precision()))
        return 2.5

    monkeypatch.setattr(compute_ratio, "compute_ratio", measure)
    monkeypatch.setattr(compute_ratio, "_batches", lambda worker, cell: ["batch"])
    monkeypatch.setattr(Worker, "prepared", lambda self, cell: ("method", ""))
    monkeypatch.setattr(Worker, "classifier", lambda self, cell: SimpleNamespace(classifier="net"))
    tent, on_gpu = (
        cells(plan(asked(methods="tent", precision=precision), [CIFAR_C]), method="tent")[0]
        for precision in ("bfloat16", "tf32")
    )
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert compute_ratio.measured(tent, "cpu") == 2.5
        assert torch.get_num_threads() == 3
        assert compute_ratio.measured(on_gpu, "cuda") == 2.5
    finally:
        torch.set_num_threads(before)
    assert given == [
        ("method", "net", ["batch"], "cpu", "bfloat16", 1, "highest"),
        ("method", "net", ["batch"], "cuda", "tf32", 3, "high"),
    ]
    assert torch.get_float32_matmul_precision() == "highest"


# ---- from the command line


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


SMALL = ("--methods", "tent", "--archs", "resnet18", "--corruptions", "fog,snow", "--limit", "30",
         "--batch-size", "10", "--batch-rate", "fixed", "--workers", "0")  # fmt: skip


@pytest.fixture(scope="module")
def _recurring(tmp_path_factory: pytest.TempPathFactory, cache_of_the_run: Path) -> Path:
    folder = tmp_path_factory.mktemp("recurring")
    return sweep_once(folder, cache_of_the_run, *SMALL, "--stream", "recurring(3)")


@pytest.fixture
def recurring(_recurring: Path, out: Path) -> Path:
    """The results of a sweep over a recurring stream."""
    return Path(shutil.copytree(_recurring, out / "recurring"))


def test_a_sweep_over_a_stream_stores_windows_and_leaves_no_state(ttabench: Run, recurring: Path) -> None:
    out = recurring
    for record in Store.at(out).latest().values():
        result = record.result
        assert (result.n_images, result.cell.corruption) == (180, "recurring")
        assert result.details["windows"]["length"] == 100
        assert len(result.details["windows"]["accuracy"]) == 2
        assert not record.stale
        assert "ttabench/measure/streams/checkpoint.py: Checkpoint.load" in record.definitions
    assert not list(out.glob("streams/*.npz"))
    assert "0 to run, 2 done" in ttabench("sweep", *SMALL, "--stream", "recurring(3)", "--out", out).err
    again = ttabench("verify", out, "--workers", "0")
    assert again.code == 0, again.err
    assert "2 the same bit for bit" in again.out + again.err


def test_a_paced_sweep_prints_its_ratio(ttabench: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttabench.observe.cost.SOURCE_SECONDS", 0.1)
    output = ttabench("sweep", *SMALL, "--pace", "1", "--pace-ratio", "tent=3.1", "--out", out)
    assert output.code == 0, output.err
    assert "pace 1 at compute ratio 3.1" in " ".join(output.out.split())
    frame = load_frame(out)
    assert dict(zip(frame["method"], frame["pace_ratio"], strict=True)) == {"source": 1.0, "tent": 3.1}
    assert not (out / compute_ratio.FILE).exists()
    measured = ttabench("sweep", *SMALL, "--pace", "1", "--out", out, "--extend")
    assert measured.code == 0, measured.err
    (entry,) = json.loads((out / compute_ratio.FILE).read_text()).values()
    assert entry["method"] == "tent"
    assert 1 < entry["ratio"] < 100


def test_a_stopped_cell_goes_on(
    ttabench: Run, recurring: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    save = checkpoint.Checkpoint.save

    def stop(self: checkpoint.Checkpoint, method: Any, progress: Any, device: str) -> None:
        save(self, method, progress, device)
        if method.name == "tent" and progress.number == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.Checkpoint, "save", stop)
    stopped = ttabench("sweep", *SMALL, "--stream", "recurring(3)", "--out", out / "stopped")
    assert stopped.code != 0
    assert len(list((out / "stopped" / "streams").glob("*.npz"))) == 1
    monkeypatch.setattr(checkpoint.Checkpoint, "save", save)

    read: list[int] = []
    from ttabench.measure.streams.images import Parts

    original = Parts.read
    monkeypatch.setattr(Parts, "read", lambda self, a, b: (read.append(a), original(self, a, b))[1])
    assert ttabench("sweep", *SMALL, "--stream", "recurring(3)", "--out", out / "stopped").code == 0
    assert min(start for start in read if start) == 70
    results = [
        {r.cell_id: r.result for r in Store.at(folder).latest().values()}
        for folder in (recurring, out / "stopped")
    ]
    assert results[0].keys() == results[1].keys()
    for key, expected in results[0].items():
        assert results[1][key].correct == expected.correct
        for detail in ("windows", "calibration", "unlabelled"):
            assert results[1][key].details[detail] == expected.details[detail]
        for count in ("images", "forward", "backward"):
            assert results[1][key].details["cost"][count] == expected.details["cost"][count]


@pytest.mark.slow
def test_a_killed_stream_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """The script of the long measurement, on a short stream; the process is killed by SIGKILL."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("resident memory is read from /proc")
    command = [
        sys.executable, str(ROOT / "scripts" / "bench_stream.py"), "--images", "18000", "--methods", "tent",
        "--seconds", "0.2", "--folder", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert "same=True" in done.stdout, done.stderr
    assert "went on from image 0:" not in done.stdout


# ---- stability


def streamed(windows: dict[str, list[list[float]]], length: int = 100) -> pd.DataFrame:
    """Cells of one recurring stream: the windows of each method, per seed."""
    frame = made_cells.cells(
        tuple(windows), ("resnet18",), corruptions=("recurring",), seeds=range(len(windows["source"])),
        stream="recurring(9)", reset="continual", n_images=length * len(windows["source"][0]),
        pace=0.0, pace_ratio=1.0,
    )  # fmt: skip
    details = []
    for method, seed in zip(frame["method"], frame["seed"], strict=True):
        details.append({"windows": {"length": length, "accuracy": windows[method][seed]}})
    frame[DETAILS] = details
    frame["accuracy"] = [float(np.mean(d["windows"]["accuracy"])) for d in details]
    return frame


def test_the_figures_of_a_method_that_collapses() -> None:
    source = [60.0] * 20
    falls = [70.0] * 10 + [50.0] * 5 + [20.0] * 5
    (one,) = stabilities(Report(streamed({"source": [source], "tent": [falls]})).tables[0])
    assert (one.below, one.tail, one.collapse) == (50.0, -40.0, 1500.0)


def test_a_method_with_the_accuracy_of_source_is_not_below_it() -> None:
    (one,) = stabilities(Report(streamed({"source": [[60.0] * 20], "tent": [[60.0] * 20]})).tables[0])
    assert (one.below, one.tail) == (0.0, 0.0)


def test_windows_of_another_length_are_not_averaged() -> None:
    frame = streamed({"source": [[60.0] * 20] * 2, "tent": [[70.0] * 20] * 2})
    other = {"windows": {"length": 200, "accuracy": [70.0] * 20}}
    last = frame.index[made_cells.where(frame, method="tent", seed=1)][0]
    frame.at[last, DETAILS] = other
    table = Report(frame).tables[0]
    windows = {row.method: row.windows for row in table.rows if row.measured}
    assert windows["tent"] == {}
    assert windows["source"]["recurring"].length == 100
    assert not [*stabilities(table)]


def test_a_method_that_never_collapses_has_no_first_collapse() -> None:
    (one,) = stabilities(Report(streamed({"source": [[60.0] * 20], "tent": [[31.0] * 20]})).tables[0])
    assert (one.below, one.tail) == (100.0, -29.0)
    assert np.isnan(one.collapse)
    assert sheets._line(one)[-1].text == "–"


def test_windows_are_compared_with_those_of_source_over_the_same_seeds() -> None:
    frame = streamed({"source": [[50.0] * 20, [70.0] * 20], "tent": [[55.0] * 20] * 2})
    report = Report(frame[~made_cells.where(frame, method="tent", seed=1)])
    (one,) = stabilities(report.tables[0])
    assert (one.below, one.tail) == (0.0, 5.0)
    assert stability_frame(report.tables).iloc[0]["source"] == 50.0


def test_seeds_are_averaged_and_a_short_last_window_counts_less() -> None:
    frame = streamed({"source": [[50.0] * 20] * 2, "tent": [[60.0] * 20, [80.0] * 19 + [50.0]]})
    frame["n_images"] = 1950  # the last window has 50 images
    report = Report(frame)
    (one,) = stabilities(report.tables[0])
    assert one.tail == pytest.approx((20 * 100 + 5 * 50) / 150)
    line = stability_frame(report.tables).iloc[0]
    assert line["last_tenth_minus_source"] == one.tail
    assert (line["method"], line["source"], line["below_source"]) == ("tent", 50.0, 0.0)
    curves = curve_frame(report.tables)
    assert len(curves) == 40
    assert curves[curves["method"] == "tent"]["image"].tolist() == [100 * k for k in range(20)]
    (sheet,) = sheets.sheets(report)
    assert "in windows of 100 test images" in sheet.caption
    assert "Mean over 2 seeds" in sheet.caption
    assert sheet.heads[1].text == "Given"
    assert "Given: what a method sees of the source data" in sheet.footer


def test_streams_of_other_images_have_lines_of_their_own() -> None:
    one = streamed({"source": [[60.0] * 20], "tent": [[70.0] * 20]})
    both = pd.concat([one, one.assign(fingerprint="of other images", cell_id=one["cell_id"] + "-2")])
    tables = Report(both.reset_index(drop=True)).tables
    stability, curves = stability_frame(tables), curve_frame(tables)
    assert len(stability) == 2
    assert not stability.duplicated(["table", "method"]).any()
    assert len(curves) == 80
    assert not curves.duplicated(["table", "method", "window"]).any()


def test_the_collapse_of_one_seed_is_not_averaged_away() -> None:
    tent = [[95.0] * 20, [95.0] * 3 + [10.0] * 17]
    report = Report(streamed({"source": [[80.0] * 20] * 2, "tent": tent}))
    (one,) = stabilities(report.tables[0])
    assert (one.collapse, one.collapsed, one.seeds) == (300.0, 1, 2)
    assert (one.below, one.tail) == (42.5, (15.0 - 70.0) / 2)
    assert sheets._line(one)[-1].text == "300 (1 of 2 seeds)"
    line = stability_frame(report.tables).iloc[0]
    assert (line["first_collapse"], line["collapsed_seeds"], line["seeds"]) == (300.0, 1, 2)


@each("images", [1, 49, 50])
def test_a_last_window_of_few_images_is_neither_a_collapse_nor_a_point_of_the_curve(images: int) -> None:
    frame = streamed({"source": [[60.0] * 30], "tent": [[70.0] * 29 + [0.0]]}).assign(n_images=2900 + images)
    table = Report(frame).tables[0]
    (one,) = stabilities(table)
    assert np.isnan(one.collapse) == (images < 50)
    (windows,) = (row.windows["recurring"] for row in table.rows if row.method == "tent" and row.measured)
    merged = windows.merged(30)
    assert len(merged.sizes) == (29 if images < 50 else 30)
    assert merged.sizes.sum() == 2900 + images
    total = float((merged.accuracy * merged.sizes).sum())
    assert total == pytest.approx(70.0 * 2900)


def test_a_short_last_window_counts_by_its_images() -> None:
    frame = streamed({"source": [[60.0, 60.0]], "tent": [[70.0, 40.0]]}).assign(n_images=120)
    tables = Report(frame).tables
    (one,) = stabilities(tables[0])
    assert one.below == pytest.approx(100 * 20 / 120)
    assert np.isnan(one.tail)  # of two windows there is no last tenth
    assert sheets._line(one)[-2].text == "–"
    curves = curve_frame(tables)
    assert curves.loc[curves["method"] == "tent", "length"].tolist() == [100, 20]
    (windows,) = (row.windows["recurring"] for row in tables[0].rows if row.method == "tent" and row.measured)
    merged = windows.merged(1)
    assert merged.accuracy.tolist() == [pytest.approx((70.0 * 100 + 40.0 * 20) / 120)]
    assert merged.sizes.tolist() == [120]


def test_cells_without_windows_have_no_figures() -> None:
    report = Report(made_cells.cells())
    assert list(sheets.sheets(report)) == []
    assert stability_frame(report.tables).empty
    assert curve_frame(report.tables).empty


def test_a_report_writes_the_figures_and_makes_no_intervals(ttabench: Run, out: Path) -> None:
    assert ttabench("sweep", *SMALL, "--stream", "recurring(3)", "--out", out).code == 0
    output = ttabench("report", out, "--format", "csv,latex,markdown", "--out", out / "report")
    assert output.code == 0, output.err
    written = {path.name for path in (out / "report").iterdir()}
    assert {"stability.csv", "stream_curves.csv"} <= written
    assert any(name.startswith("stability_") and name.endswith(".tex") for name in written)
    statistics = pd.read_csv(out / "report" / "statistics.csv")
    assert statistics.filter(like="low").isna().all().all()
    curves = pd.read_csv(out / "report" / "stream_curves.csv")
    assert set(curves["method"]) == {"source", "tent"}
