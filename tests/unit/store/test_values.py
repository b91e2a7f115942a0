"""What a results folder holds, value by value: tables, plans, shards, and what stands at their head."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cases import each
from tests.unit import other_code
from tests.unit.made_cells import facts
from tests.unit.stored_results import fill, measured, with_accuracy
from ttabench.cell import Result, canonical
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError, shortened
from ttabench.observe.unknown_classes import CERTAINTIES, FIGURES
from ttabench.provenance import current_code
from ttabench.store import Store, Writer, load_frame
from ttabench.store.columns import COLUMNS, COST, OWN, SCORES, own, shared
from ttabench.store.manifest import checksum
from ttabench.store.results_folder import PLAN, _is_free
from ttabench.store.writer import environment
from ttabench.system.checked_lines import Damaged, decode, encode, is_first_format
from ttabench.system.environment import machine, processor, versions
from ttabench_reports.formats.csv_files import write_cells


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results", {"methods": ["tent"], "limit": 0})


def lines(path: Path) -> list[dict[str, Any]]:
    return [decode(line) for line in path.read_bytes().splitlines()]


# ---- tables


def test_a_row_has_every_value_of_a_result_and_its_environment(store: Store, result: Result) -> None:
    cost, scores = dict.fromkeys(COST, 2.5), dict.fromkeys(SCORES, 0.5)
    figures = dict(zip(FIGURES, (1.5, 2.5, 3.5), strict=True))
    details = {
        "adapted": "2 layers", "scored_classes": "2 of 4 classes", "scores": "this pass",
        "restores": "nothing", "source_data": "images", "source_used": "images (9 images)",
        "alarm": "it collapsed",
        "source_warning": "it is low", "cost": cost, "unlabelled": scores,
        "unknown": {"images": 7.0, **dict.fromkeys(CERTAINTIES, figures)},
    }  # fmt: skip
    cell = replace(
        result.cell, history=("snow-5", "frost-5"), label="tent[lr=1]", baseline="cct@c0ffee",
        foreign="a" * 64,
        protocol=Protocol(batch_size=64, reset="continual", stream="gradual", pace=1.0, pace_ratio=3.1),
    )  # fmt: skip
    fill(store, replace(result, cell=cell, reason="why", details=details))
    (record,) = store.records()
    (row,) = store.frame().drop(columns="increase").to_dict("records")
    assert row.pop("written") == record.written > 1.7e9
    assert row == {
        "method": "tent[lr=1]", "base": "tent", "config": '{"lr":0.001,"norms":"batch"}', "arch": "resnet18",
        "dataset": "digits-c", "corruption": "fog", "severity": 5, "seed": 0, **asdict(cell.protocol),
        "baseline": "cct@c0ffee", "foreign": "a" * 64,
        "history": "snow-5 frost-5", "n_images": 8, "clean_accuracy": 97.0, "accuracy": 62.5, "seconds": 0.5,
        "status": "ok", "reason": "why",
        **{name: details[name] for name in ("adapted", "scored_classes", "scores", "restores")},
        **{name: details[name] for name in ("source_data", "source_used", "alarm")}, **cost, **scores,
        "foreign_images": 7.0,
        **{f"{figure}_{name}": value for name in CERTAINTIES for figure, value in figures.items()},
        "warning": "it is low", "stale": False, "stale_because": "", "attested": False,
        "code": current_code("tent", "digits-c", "fog").source, "device": "cpu",
        "processor": processor("cpu"), "threads": torch.get_num_threads(),
        "about_method": facts("tent"),
        "versions": " ".join(f"{name} {number}" for name, number in sorted(versions().items())),
        "checkpoint": "c" * 64, "fingerprint": "f" * 64, "cell_id": cell.cell_id,
    }  # fmt: skip


def test_columns_have_the_same_type_whatever_is_in_them(store: Store, result: Result) -> None:
    empty = store.frame()
    assert len(empty) == 0
    fill(store, replace(result, status="failed", accuracy=None, correct=b"", n_images=0, details={}))
    one = store.frame()
    details = {"cost": dict.fromkeys(COST, 2), "unlabelled": dict.fromkeys(SCORES, 1.5)}
    fill(store, replace(result, details=details))
    kinds = [frame.dtypes.astype(str).to_dict() for frame in (empty, one, store.frame())]
    assert kinds[0] == kinds[1] == kinds[2]
    assert {kinds[0][name] for name in (*COST, *SCORES, "accuracy", "increase")} == {"float64"}
    assert {kinds[0][name] for name in ("seed", "n_images")} == {"int64"}


def test_what_cells_share_is_one_object(store: Store, result: Result) -> None:
    others: tuple[dict[str, Any], ...] = ({"corruption": "snow"}, {"seed": 7}, {"dataset": "digits-c[100]"})
    fill(store, result, *(replace(result, cell=replace(result.cell, **other)) for other in others))
    first, snow, seed, other = store.records()
    assert shared(first) is shared(snow) is shared(seed)
    assert shared(other) != shared(first)
    assert {*shared(first)} == {*COLUMNS} - {*OWN}
    assert [*own(first)] == [*OWN]


def test_the_increase_is_over_source_on_the_same_images_and_weights(store: Store, result: Result) -> None:
    def of(method: str, accuracy: float, **changed: Any) -> Result:
        cell = replace(result.cell, method=method, label=method, config=(), **changed)
        return with_accuracy(replace(result, cell=cell), accuracy)

    fill(
        store,
        of("source", 50.0), of("tent", 62.5), of("eata", 37.5, protocol=Protocol(batch_size=64)),
        of("tent", 75.0, corruption="snow"), of("tent", 75.0, checkpoint="d" * 64), of("tent", 75.0, seed=1),
    )  # fmt: skip
    frame = store.frame()
    assert frame["increase"].fillna(-1).tolist() == [-1, 12.5, -12.5, -1, -1, -1]
    csv = pd.read_csv(write_cells(frame.sample(frac=1, random_state=0), store.root / "cells.csv"))
    assert csv.set_index("cell_id")["increase"].to_dict() == pytest.approx(
        frame.set_index("cell_id")["increase"].to_dict(), nan_ok=True
    )


def test_a_cell_without_a_number_has_empty_values(store: Store, result: Result) -> None:
    shard = store.cells / "made.jsonl"
    stored = {"id": result.cell.cell_id, "cell": result.cell.to_json(), "status": "n/a"}
    head = {"kind": "environment", "generation": 1, "machine": "m"}
    shard.write_bytes(encode(head) + encode({"kind": "result", "written": 5, "source": "", **stored}))
    (row,) = store.frame().astype(object).to_dict("records")
    missing = ("clean_accuracy", "accuracy", "increase", *COST, *SCORES)
    assert {name: row[name] for name in missing if row[name] is not None and row[name] == row[name]} == {}
    empty = (
        "baseline", "foreign",
        "history", "reason", "adapted", "scored_classes", "scores", "restores", "source_data", "source_used",
        "alarm", "warning", "stale_because", "code", "device", "processor", "versions",
    )  # fmt: skip
    assert {name: row[name] for name in empty} == dict.fromkeys(empty, "")
    assert (row["n_images"], row["seconds"], row["threads"], row["stale"]) == (0, 0.0, 0, False)
    assert (row["written"], row["batch_size"]) == (5.0, 200)
    assert set(row) == {*COLUMNS, "increase"}


def test_several_changes_of_the_code_are_listed(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_code.installed(monkeypatch, {"ttabench/nn/a.py: f": "0", "ttabench/measure/scoring.py: g": "1"})
    fill(store, result)
    other_code.installed(monkeypatch, {"ttabench/nn/a.py: f": "2"})
    (row,) = load_frame(str(store.root)).to_dict("records")
    assert row["stale"]
    assert row["stale_because"].split("; ") == list(next(store.records()).changes)
    assert len(next(store.records()).changes) == 2


@pytest.mark.parametrize(
    ("changed", "definition"),
    [
        ({"corruption": "mixed"}, "ttabench/data/mixed.py: mixed"),
        ({"corruption": "gradual"}, "ttabench/run/stream_of_cell.py: stream_of"),
        ({"dataset": "cifar10-c"}, "ttabench/data/published/cifar.py: CifarC"),
        ({"arch": "timm/resnet10t"}, "ttabench/models/external/timm.py"),
    ],
)
def test_a_result_depends_on_what_mixes_its_images_and_makes_its_network(
    store: Store, result: Result, changed: dict[str, str], definition: str
) -> None:
    fill(store, replace(result, cell=replace(result.cell, **changed)))  # type: ignore[arg-type]
    (record,) = store.latest().values()
    assert definition in record.definitions
    assert record.changes == ()


def test_a_failure_with_other_code_is_stale(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        other_code.changed(patch)
        fill(store, Result(cell=result.cell, status="failed", reason="it was too hard"))
    (record,) = store.records()
    assert record.changes == (f"{other_code.CHANGED} changed",)


def test_the_bitmap_has_a_place_for_each_image(store: Store, result: Result) -> None:
    right = np.array([True, False, True, True, True])
    fill(store, measured(result.cell, right))
    stored = store.latest()[result.cell.cell_id].result
    bits = np.unpackbits(np.frombuffer(stored.correct, np.uint8), count=stored.n_images)
    assert bits.astype(bool).tolist() == right.tolist()


# ---- the plan


def row_of(name: str, **changed: Any) -> dict[str, Any]:
    return {**dict.fromkeys(PLAN, "x"), "id": name, "severity": 5, "seed": 0, **changed}


def test_a_plan_comes_back_and_is_replaced_or_extended(store: Store) -> None:
    assert store.plan() == []
    store.write_plan([row_of("a"), row_of("b", seed=2, more="dropped when read")])
    assert store.plan() == [row_of("a"), row_of("b", seed=2)]
    store.write_plan([row_of("b", seed=3), row_of("c")], extend=True)
    assert store.plan() == [row_of("a"), row_of("b", seed=3), row_of("c")]
    store.write_plan([row_of("d")])
    assert store.plan() == [row_of("d")]


@pytest.mark.parametrize("text", [b"hello\n", encode({"id": "a"})])
def test_a_damaged_plan_is_one_sentence(store: Store, text: bytes) -> None:
    path = store.root / "plan.jsonl"
    path.write_bytes(text)
    with pytest.raises(UserError) as problem:
        store.plan()
    assert str(problem.value).startswith(f"{path}, line 1, is not what ttabench wrote: ")
    assert str(problem.value).endswith("; delete the file and run the sweep again.")


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_a_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "cannot be written (Permission denied); choose another folder with --out."
    with monkeypatch.context() as patch:
        patch.setattr("ttabench.store.results_folder.replace_file", refuse)
        patch.setattr("ttabench.store.manifest.replace_file", refuse)
        with pytest.raises(UserError) as problem:
            store.write_plan([row_of("a")])
        assert str(problem.value) == f"{store.root} {text}"
        with pytest.raises(UserError) as problem:
            Store.create(tmp_path / "new", {})
        assert str(problem.value) == f"{tmp_path / 'new'} {text}"
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError) as problem:
        store.writer().append(result)
    assert str(problem.value) == f"{store.cells} {text}"


# ---- the folder


@each(
    ("names", "free"),
    [
        ((), True), (("sweep.json.d", "cells"), False), (("cells",), True),
        ((".123-abc-sweep.json.part",), True), (("123-abc-sweep.json",), False), ((".hidden",), False),
        ((".123-abc-plan.jsonl.part",), False), (("mine.txt",), False), (("cells", "mine.txt"), False),
    ],
    ids=str,
)  # fmt: skip
def test_a_folder_that_another_sweep_is_filling_is_free(
    tmp_path: Path, names: tuple[str, ...], free: bool
) -> None:
    root = tmp_path / "results"
    root.mkdir()
    for name in names:
        if name == "cells":
            (root / name).mkdir()
        else:
            (root / name).write_text("")
    if free:
        assert Store.create(root, {"limit": 1}).sweep() == {"limit": 1}
    else:
        with pytest.raises(UserError) as problem:
            Store.create(root, {})
        assert str(problem.value) == (
            f"{root} exists and is not a results folder of ttabench; choose another with --out."
        )


def test_a_manifest_that_comes_while_the_folder_is_looked_at_does_not_make_it_foreign(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    assert _is_free(tmp_path)


def test_two_sweeps_that_differ_are_compared_briefly(store: Store) -> None:
    sweep = {"methods": ["tent", "sar"], "limit": 100, "order": "x" * 60, "note": "y" * 61}
    with pytest.raises(UserError) as problem:
        Store.create(store.root, sweep)
    for text in (" tent,sar;", f" {'y' * 57}…;", f" {'x' * 60}", " 100;", "--extend"):
        assert text in str(problem.value)
    assert store.sweep() == {"methods": ["tent"], "limit": 0}


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("include", "[include]"), ("exclude", "[exclude]"), ("per_method", "[per_method]"),
        ("per_dataset", "[per_dataset]"), ("settings", "--set"), ("batch_size", "--batch-size"),
    ],
)  # fmt: skip
def test_an_option_that_differs_is_named_as_it_is_given(store: Store, option: str, shown: str) -> None:
    with pytest.raises(UserError, match=re.escape(f" {shown} was not given and is now 7")):
        Store.create(store.root, {**store.sweep(), option: 7})


def test_a_folder_holds_its_options_for_people_to_read(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {"methods": ["é"]})
    assert store.cells == tmp_path / "r" / "cells"
    assert sorted(path.name for path in store.root.iterdir()) == ["cells", "sweep.json"]
    assert store.manifest.read_text() == (
        '{\n  "format": "ttabench-results",\n  "version": 3,\n'
        '  "sweep": {\n    "methods": [\n      "é"\n    ]\n  },\n'
        f'  "sum": "{checksum({"methods": ["é"]})}"\n}}\n'
    )


def test_checking_a_folder_writes_nothing_and_refuses_another_sweep(tmp_path: Path, store: Store) -> None:
    assert Store(tmp_path / "new").sweep_before({}) is None
    assert not (tmp_path / "new").exists()
    with pytest.raises(UserError, match="holds the results of another sweep"):
        store.sweep_before({"limit": 7})
    assert store.sweep_before({"limit": 7}, extend=True) == {"methods": ["tent"], "limit": 0}
    long = tmp_path / ("x" * 300)
    with pytest.raises(UserError) as problem:
        Store(long).sweep_before({})
    assert str(problem.value) == (
        f"{shortened(str(long))} cannot be read (File name too long); choose another folder with --out."
    )


def test_extending_joins_lists_and_takes_the_later_of_other_values(store: Store) -> None:
    Store.create(store.root, {"methods": ["sar", "tent"], "limit": 9, "seeds": [0]}, extend=True)
    assert store.sweep() == {"methods": ["tent", "sar"], "limit": 9, "seeds": [0]}


@pytest.mark.parametrize(
    "text", ['{"format": "other", "version": 2, "sweep": {}}', '{"format": "ttabench-results", "version": 2}']
)
def test_a_manifest_of_something_else_is_one_sentence(store: Store, text: str) -> None:
    store.manifest.write_text(text)
    with pytest.raises(UserError) as problem:
        store.sweep()
    assert str(problem.value) == (
        f"{store.manifest} is not what ttabench wrote; restore it, or choose another folder."
    )


# ---- shards


def test_a_shard_begins_with_its_environment(store: Store, result: Result) -> None:
    old = os.umask(0)
    try:
        first, second = fill(store, result), fill(store, result, device="cuda:1")
    finally:
        os.umask(old)
    assert re.fullmatch(rf"{re.escape(socket.gethostname())}-{os.getpid()}-[0-9a-f]{{8}}\.jsonl", first.name)
    assert first.stat().st_mode & 0o777 == 0o644
    for path, device, generation in ((first, "cpu", 1), (second, "cuda", 2)):
        head = lines(path)[0]
        head.pop("sum")
        assert head == {
            "kind": "environment", "generation": generation, "device": device,
            "threads": torch.get_num_threads(), "versions": dict(versions()), "machine": machine(),
            "processor": processor(device),
        }  # fmt: skip


def test_a_writer_is_one_for_the_cpu_unless_told_otherwise(store: Store, result: Result) -> None:
    writer = Writer(store.cells)
    writer.append(result)
    writer.close()
    writer.close()  # once more does nothing
    assert lines(writer.path)[0]["device"] == "cpu"
    again = Writer(store.cells)
    again.close()  # nothing was written
    assert not again.path.exists()


@pytest.mark.parametrize(
    ("shard", "generation"),
    [
        (b"", 1), (b"{", 1), (b"[1]\n", 1), (b'{"kind":"environment"}\n', 1),
        (encode({"kind": "environment"}), 1),
        (encode({"generation": "x"}), 1), (encode({"generation": [1]}), 1), (encode({"generation": 6}), 7),
        (encode({"generation": 6})[:-1], 7), (b'{"generation":6}\n', 7),
        (encode({"generation": 6}).replace(b"6", b"8", 1), 1),
    ],
)  # fmt: skip
def test_a_writer_is_one_generation_after_the_shards_that_it_can_read(
    store: Store, result: Result, shard: bytes, generation: int
) -> None:
    (store.cells / "earlier.jsonl").write_bytes(shard)
    assert lines(fill(store, result))[0]["generation"] == generation


def test_a_process_without_torch_has_no_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment("cpu")["threads"] == torch.get_num_threads() > 0
    monkeypatch.delitem(sys.modules, "torch")
    assert environment("cpu")["threads"] == 0


def test_the_number_of_a_gpu_is_no_part_of_the_environment() -> None:
    assert environment("cuda:1") == environment("cuda:0") == environment("cuda")
    assert environment("cuda")["device"] == "cuda"


def test_code_is_written_once_and_the_name_of_each_definition_too(store: Store, result: Result) -> None:
    other = replace(result, cell=replace(result.cell, dataset="cifar10-c"))
    unknown = replace(result, cell=replace(result.cell, method="no_such_method"))
    writer = store.writer()
    writer.extend([result, result, other])
    writer.append(other)
    writer.append(unknown)
    writer.close()
    written = lines(writer.path)
    assert [line["kind"] for line in written] == [
        "environment", "definitions", "code", "result", "result", "definitions", "code", "result", "result",
        "result",
    ]  # fmt: skip
    names = [{name for _, name in written[at]["names"]} for at in (1, 5)]
    assert "ttabench_methods/tent.py: Tent.adapt" in names[0]
    assert "ttabench/data/published/cifar.py: CifarC" in names[1]
    assert not names[0] & names[1]
    (branches,) = [
        count for (_, name), count in zip(written[1]["names"], written[1]["branches"], strict=True)
        if name == "ttabench/measure/scoring.py: evaluate"
    ]  # fmt: skip
    assert branches > 1
    assert {*written[6]["definitions"]} & {*written[2]["definitions"]}
    sources = [line["source"] for line in written if "source" in line]
    assert sources == [written[2]["source"]] * 3 + [written[6]["source"]] * 3 + [""]


def test_a_full_disk_and_a_deleted_shard_are_one_sentence(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.writer()
    writer.append(result)

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(UserError) as problem:
            writer.append(result)
    assert str(problem.value) == (
        f"{store.cells} cannot take another result ({os.strerror(errno.ENOSPC)}); what was stored is kept; "
        "free some space and run the same command again."
    )
    writer.path.unlink()
    with pytest.raises(UserError) as problem:
        writer.append(result)
    assert str(problem.value) == f"{writer.path} was deleted while the sweep ran; run the same command again."


def test_merged_shards_say_each_thing_once(store: Store, result: Result) -> None:
    cells = [replace(result.cell, corruption=name) for name in ("snow", "fog", "mixed", "frost")]
    stored = [replace(result, cell=cell) for cell in cells]
    unknown = replace(result, cell=replace(result.cell, method="z_unknown", label="z_unknown"))
    fill(store, *stored[:2])
    fill(store, *stored[2:], unknown)
    fill(store, replace(stored[0], cell=replace(cells[0], seed=1)), device="cuda")
    path = store.merge()
    assert path is not None
    written = lines(path)
    kinds = [line["kind"] for line in written]
    assert kinds.count("environment") == 2
    assert kinds.count("code") == 1  # of one corruption and of a mixed cell
    assert [line.get("generation") for line in written if line["kind"] == "environment"] == [4, None]
    assert [line["device"] for line in written if line["kind"] == "environment"] == ["cpu", "cuda"]
    order = [(r["cell"]["label"], r["cell"]["corruption"]) for r in written if r["kind"] == "result"]
    assert order == [
        ("tent", "fog"), ("tent", "frost"), ("tent", "mixed"), ("tent", "snow"), ("z_unknown", "fog"),
        ("tent", "snow"),
    ]  # fmt: skip
    assert path.name == f"merged-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}.jsonl"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"status": "done"}, "its status is done"), ({"written": "now"}, "its written is now"),
        ({"cell": {"extra": 1}}, "its cell has an unknown extra"),
        ({"cell": {"protocol": {"extra": 1}}}, "its cell.protocol has an unknown extra"),
    ],
    ids=str,
)  # fmt: skip
def test_a_result_of_another_form_is_no_record(
    store: Store, result: Result, changed: dict[str, Any], words: str
) -> None:
    path = fill(store, result)
    *head, record = lines(path)
    if "cell" in changed:
        changed = {"cell": {**record["cell"], **changed["cell"]}}
    for line in (*head, record):
        line.pop("sum")
    path.write_bytes(b"".join(map(encode, (*head, {**record, **changed}))))
    for quick in (False, True):
        with pytest.raises(UserError) as problem:
            store.latest(quick=quick)
        assert str(problem.value) == (
            f"{path}, line 4, is not what ttabench wrote: {words}; restore the file or move it out of the "
            "folder."
        )


def test_to_count_cells_neither_their_ids_are_computed_nor_their_images_kept(
    store: Store, result: Result
) -> None:
    failed = replace(result, cell=replace(result.cell, seed=1), status="failed", correct=b"")
    path = fill(store, result, failed)
    assert "correct" in store.latest()[result.cell.cell_id].data
    counted = store.latest(quick=True)
    assert set(counted) == {result.cell.cell_id, failed.cell.cell_id}
    assert "correct" not in counted[result.cell.cell_id].data
    *head, _, record = lines(path)
    for line in (*head, record):
        line.pop("sum")
    path.write_bytes(b"".join(map(encode, (*head, {**record, "id": "0" * 64}))))
    assert list(store.latest(quick=True)) == ["0" * 64]
    with pytest.raises(UserError) as problem:
        store.latest()
    assert str(problem.value) == (
        f"{path}, line 4, is not what ttabench wrote: its id is not that of its cell; restore the file or "
        "move it out of the folder."
    )


def test_a_record_knows_the_environment_above_it_and_its_place(store: Store, result: Result) -> None:
    path = fill(store, result)
    (record,) = store.records()
    assert set(record.environment) == {"device", "threads", "versions", "machine", "processor"}
    assert record.place == f"{path}, line 4"
    head, names, code, row = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + row)
    with pytest.raises(UserError) as problem:
        store.latest()
    assert str(problem.value) == (
        f"{path}, line 2, is not what ttabench wrote: no record of its code {record.source[:12]} stands "
        "before it; restore the file or move it out of the folder."
    )
    path.write_bytes(names + code + row)
    with pytest.raises(UserError) as problem:
        store.latest()
    assert str(problem.value) == (
        f"{path}, line 3, is not what ttabench wrote: no environment stands before it; restore the file or "
        "move it out of the folder."
    )


# ---- lines


def test_a_line_is_json_with_the_start_of_its_hash(result: Result) -> None:
    record = {"kind": "x", "a": [1, 2]}
    line = encode(record)
    head = canonical(record).encode()[:-1]
    assert line == head + b',"sum":"' + hashlib.sha256(head).hexdigest()[:16].encode() + b'"}\n'
    assert decode(line[:-1]) == {**record, "sum": hashlib.sha256(head).hexdigest()[:16]}


@each(
    ("line", "message"),
    [
        (encode({"a": 1})[:-1].replace(b"1", b"2", 1), "its checksum is not that of its content"),
        (encode({"a": 1})[:-3] + b"']", "its checksum is not that of its content"),
        (b"hello", "it is not JSON"),
        (b"[1]", "it is not a record"),
        (b'{"a":1}', "it has no checksum"),
    ],
)
def test_a_damaged_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(Damaged) as problem:
        decode(line)
    assert str(problem.value) == message


def test_a_record_may_hold_a_sum_of_its_own() -> None:
    record = {"details": {"a": 1, "sum": "x"}, "kind": "result"}
    assert decode(encode(record)[:-1])["details"] == record["details"]


def test_a_line_of_the_first_format_has_no_checksum() -> None:
    assert decode(b'{"a":1}', first_format=True) == {"a": 1}
    assert is_first_format(b'{"kind":"environment"}')
    assert not is_first_format(b'{"generation":1}')
    assert not is_first_format(encode({"kind": "environment"}))
