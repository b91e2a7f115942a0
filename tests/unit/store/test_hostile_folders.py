"""Folders of others: nothing in them writes elsewhere, steers a terminal, or ends in a traceback."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.data_fakes import clean_images
from tests.unit.stored_results import CELL, fill
from ttabench.cell import Result, stored_identity
from ttabench.data import catalog
from ttabench.errors import UNSAFE, UserError, one_line, plain, printable
from ttabench.store import Store, manifest
from ttabench.sweep.compute_ratio import FILE, Ratios
from ttabench.sweep.sweep_file import kept
from ttabench.system.checked_lines import decode, encode
from ttabench.system.work_claims import FOLDER, FolderProcesses, running
from ttabench_reports.cells.set_by_users import set_by_users

# ---- names of datasets


@each(
    "name",
    [
        "../../../../x-local", "/tmp/x-local", "..-local", ".-local", "a/b-local", "a\\b-local", "a\nb-local",
        "a\x1b[31mb-local", "A-local", "a\u202eb-local", "-local", "", "x", "~x-local", "x" * 300 + "-local",
        7, float("inf"), None, ["x-local"],
    ],
)  # fmt: skip
def test_a_name_that_generate_gives_to_none_is_refused_where_it_is_read(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    """It would become the name of a folder of the cache."""
    cache = tmp_path / "deep" / "below" / "cache"
    monkeypatch.setenv("TTABENCH_CACHE", str(cache))
    folder = tmp_path / "theirs"
    folder.mkdir()
    np.savez(folder / "test.npz", images=clean_images(8), labels=np.arange(8) % 2)
    np.save(folder / "fog-5.npy", clean_images(8))
    (folder / "ttabench.json").write_text(json.dumps({"name": name, "files": {}}))
    before = {path for path in tmp_path.rglob("*") if cache not in path.parents}
    with pytest.raises(UserError, match="Generate the folder again"):
        catalog.dataset(str(folder))
    output = ttabench("data", "verify", folder)
    assert (output.code, "ttabench.json has the name" in output.out) == (1, True), output
    assert not forbidden(output.out + output.err)
    assert {p for p in tmp_path.rglob("*") if cache not in p.parents and p != cache} - before <= {
        tmp_path / "deep", tmp_path / "deep" / "below",
    }  # fmt: skip


# ---- what is printed

EVIL = [
    "\x1b[2J\x1b]0;owned\x07", "a\n::error file=x::owned", "a\r\n::add-mask::b", "\u202eevil\u202c",
    "half \ud800 of a pair", "\udc80", "##[error]owned", "a\x9b31mb", "a\u2028::warning::b", "\u200bx",
]  # fmt: skip


ALL = " ".join(EVIL)


def forbidden(text: str) -> list[str]:
    """What of a printed text a terminal or a log obeys."""
    bad = [found for found in UNSAFE.findall(text) if found not in "\t\n"]
    bad += [line for line in text.splitlines() if line.strip().startswith(("::", "##["))]
    return bad


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_in(tmp_path)


def folder_in(tmp_path: Path) -> Path:
    Store.create(tmp_path / "r", {"methods": ["tent"], "archs": ["resnet18"], "datasets": ["digits-c"]})
    return tmp_path / "r"


def put(folder: Path, result: Result, **changes: Any) -> Path:
    """A shard with one record, written by somebody who knows the format."""
    fill(Store.at(folder), result)
    (shard,) = (folder / "cells").glob("*.jsonl")
    made = [{key: value for key, value in decode(line).items() if key != "sum"} for line in raw(shard)]
    made[-1].update(changes)
    shard.write_bytes(b"".join(map(encode, made)))
    return shard


def raw(shard: Path) -> list[bytes]:
    return shard.read_bytes().splitlines()


ok = Result(
    cell=CELL, status="ok", accuracy=50.0, n_images=8, correct=np.packbits([1, 0] * 4).tobytes(), seconds=1.0
)


@pytest.mark.parametrize("where", ["reason and details", "label"])
def test_no_text_of_a_record_steers_a_terminal_or_a_log(
    ttabench: Run, folder: Path, tmp_path: Path, where: str
) -> None:
    evil = ALL
    if where == "label":
        put(folder, replace(ok, cell=replace(CELL, label=evil)))
    else:
        details = {"traceback": f"Traceback\n{evil}", "warning": evil, "alarm": evil}
        put(folder, Result(cell=CELL, status="failed", reason=evil), details=details)
    commands = [
        ("status", folder), ("report", folder), ("verify", folder, "--workers", "0"),
        ("compare", folder, folder, "--github"), ("compare", folder, folder, "--json"),
        ("report", folder, "--format", "csv,markdown", "--out", tmp_path / "report"),
    ]  # fmt: skip
    for arguments in commands:
        output = ttabench(*arguments)
        text = output.out + output.err
        assert "Traceback (most recent" not in text, (arguments, text)
        # the gate's own commands name no cell here: nothing is compared
        assert not [bad for bad in forbidden(text) if not bad.startswith("::notice")], (arguments, text)
    for file in (tmp_path / "report").rglob("*"):
        if file.is_file():
            assert not UNSAFE.findall(file.read_text().replace("\n", ""))


@each("evil", EVIL)
@each("name", ["arch", "dataset", "corruption", "method"])
def test_a_name_that_cannot_be_printed_is_no_name(tmp_path: Path, evil: str, name: str) -> None:
    """These are part of the identity of a cell, which ttabench would not have given to it."""
    also = {"label": evil} if name == "method" else {}  # which begins with the name of the method
    folder = folder_in(tmp_path)
    shard = put(folder, replace(ok, cell=replace(CELL, **{name: evil}, **also)))
    with pytest.raises(
        UserError, match=r"line \d, is not what ttabench wrote: (its id is not that of its cell|it is called)"
    ):
        Store.at(folder).latest()
    assert shard.exists()


@pytest.mark.parametrize("name", ["[bold]b", "\x1b[2J"])
def test_the_name_of_a_folder_steers_no_terminal(ttabench: Run, folder: Path, name: str) -> None:
    put(folder, ok)
    other = Path(shutil.copytree(folder, folder.with_name(name)))
    for options in ((), ("--json",), ("--gate",)):
        output = ttabench("compare", folder, other, *options)
        assert output.code == 0, output
        assert not forbidden(output.out + output.err)
    assert one_line(name) in ttabench("compare", folder, other).out


def test_options_are_shown_as_text(ttabench: Run, folder: Path) -> None:
    evil = ALL
    written = json.loads((folder / "sweep.json").read_text())
    written["sweep"] |= {"archs": [evil], evil: evil, "note": evil}
    written["sum"] = manifest.checksum(written["sweep"])
    (folder / "sweep.json").write_text(json.dumps(written))
    put(folder, ok)
    for arguments in (
        ("status", folder),
        ("report", folder),
        ("sweep", "--methods", "source", "--out", folder),
    ):
        output = ttabench(*arguments)
        assert "Traceback" not in output.err
        assert not forbidden(output.out + output.err), output


def test_a_table_of_cells_in_csv_is_no_other_door(ttabench: Run, folder: Path, tmp_path: Path) -> None:
    evil = ALL
    put(folder, ok)
    assert ttabench("report", folder, "--format", "csv", "--out", tmp_path / "report").code == 0
    path = tmp_path / "report" / "cells.csv"
    quoted = evil.encode(errors="replace").decode().replace('"', "")
    path.write_text(path.read_text().replace("digits-c", f'"{quoted}"'))
    for arguments in (("report", path, "--out", tmp_path / "again"), ("compare", path, path)):
        output = ttabench(*arguments)
        assert not forbidden(output.out + output.err), output


def test_ordinary_text_stays_as_it_is() -> None:
    for text in ("Zürich – 猫", "tent[lr=0.001]", "std::bad_alloc", "a: b", "mynets:build", "α = 5 %", ""):
        assert one_line(text) == printable(text) == text
    assert one_line("a\n  b\tc") == "a b c"
    assert printable("a\n\tb") == "a\n\tb"
    assert plain({"a": [1, None, {"b\n": "c\x07"}], "traceback": "x\ny"}) == {
        "a": [1, None, {"b ": "c\\x07"}], "traceback": "x\ny",
    }  # fmt: skip
    assert printable("x\n  ::error::y") == "x\n  : :error::y"


# ---- files that are none, and values that are none


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
@pytest.mark.parametrize("name", ["cells/x.jsonl", "plan.jsonl", "sweep.json", f"{FOLDER}/{'a' * 16}.json"])
def test_links_and_pipes_are_one_sentence(
    ttabench: Run, folder: Path, tmp_path: Path, kind: str, name: str
) -> None:
    put(folder, ok)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    (tmp_path / "elsewhere").write_text("secret")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "elsewhere")
    for verb in ("status", "report", "verify"):
        if name.startswith((FOLDER, "plan")) and verb != "status":
            continue
        output = ttabench(verb, folder)
        assert output.code == 2, output
        assert name in output.err.replace("\n", "")
        assert "expected a file" in output.err
        assert "secret" not in output.out + output.err


@pytest.mark.parametrize("target", ["elsewhere", "nowhere", "cells"])
def test_cells_that_are_a_link_are_followed_and_no_link_means_no_results(
    ttabench: Run, folder: Path, tmp_path: Path, target: str
) -> None:
    """As where a disk is not mounted: the results are not gone, and a report said that there are none yet."""
    put(folder, ok)
    (folder / "cells").rename(tmp_path / "elsewhere")
    (folder / "cells").symlink_to(target if target == "cells" else tmp_path / target)
    for verb in ("status", "report", "verify"):
        output = ttabench(verb, folder)
        if target == "elsewhere":
            assert "holds no results" not in output.err, output
            assert verb != "status" or "1 done" in output.out
        else:
            said = "is a link that leads nowhere" if target == "nowhere" else "Too many levels of symbolic"
            assert (output.code, output.out) == (2, "")
            assert said in output.err.replace("\n", " ")
    if target != "elsewhere":
        with pytest.raises(UserError, match="link"):
            Store.at(folder).merge()


def test_a_link_in_place_of_the_folder_of_processes_deletes_nothing(
    ttabench: Run, folder: Path, tmp_path: Path
) -> None:
    """The files of dead processes are deleted, and to them belongs all that looks like a lease."""
    fill(Store.at(folder), ok, ok)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("precious.json", "notes.txt", "a!b"):
        (elsewhere / name).write_text("{}")
    (folder / FOLDER).symlink_to(elsewhere)
    sweep = ("sweep", "--methods", "source", "--archs", "resnet18", "--out", folder, "--extend")
    for arguments in (("status", folder), sweep):
        output = ttabench(*arguments)
        assert output.code == 2, output
        assert "is a link; expected a folder" in output.err.replace("\n", " ")
    with pytest.raises(UserError, match="is a link; expected a folder"):
        Store.at(folder).merge()
    assert sorted(os.listdir(elsewhere)) == ["a!b", "notes.txt", "precious.json"]


@pytest.mark.parametrize("name", ["plan.jsonl", "sweep.json", "attested.jsonl", "sweep.toml", "pace.json"])
def test_a_file_without_end_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A sparse file takes no space on a disk, and all memory where it is read."""
    put(folder, ok)
    with (folder / name).open("a") as file:
        file.truncate(1 << 40)
    if name == "sweep.toml":  # which is as good as damaged
        assert set_by_users(folder, {}) == frozenset()
        return
    store = Store(folder)
    read = {
        "plan.jsonl": store.plan, "sweep.json": store.sweep, "attested.jsonl": store.latest,
        FILE: Ratios(folder, "cpu")._read,
    }  # fmt: skip
    with pytest.raises(UserError, match=r"has more than 1,024 MB, so it is no file of ttabench"):
        read[name]()


def test_an_endless_line_is_one_sentence(
    ttabench: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = put(folder, ok)
    monkeypatch.setattr("ttabench.store.read_results.LONGEST", 1 << 20)
    with shard.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.truncate(file.tell() + (1 << 40))  # a sparse file: it takes no space
    for verb in ("status", "report", "verify"):
        start = time.process_time()  # a busy machine may take long
        output = ttabench(verb, folder)
        assert time.process_time() - start < 20
        assert output.code == 2
        assert "has more than 1 MB, so it is not a record of ttabench" in output.err


DEEP = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
HUGE = b'{"a":' + b"9" * 10_000 + b"}"
OPEN = b"[" * 100_000


@pytest.mark.parametrize("text", [DEEP, HUGE, OPEN], ids=["deep", "huge", "open"])
@pytest.mark.parametrize("name", ["plan.jsonl", "sweep.json", "cells/x.jsonl"])
def test_deep_nesting_and_huge_numbers_are_one_sentence(
    ttabench: Run, folder: Path, name: str, text: bytes
) -> None:
    put(folder, ok)
    head = text[:-1]
    summed = head + b',"sum":"' + hashlib.sha256(head).hexdigest()[:16].encode() + b'"}'
    path = folder / name
    path.write_bytes((text if name == "sweep.json" else summed) + b"\n")
    for verb in ("status",) if name == "plan.jsonl" else ("status", "verify"):
        output = ttabench(verb, folder)
        assert output.code == 2, output
        assert path.name in output.err
        assert "Traceback" not in output.err


@each("text", [DEEP, HUGE, OPEN])
def test_ratios_of_deep_nesting_or_huge_numbers_are_one_sentence(folder: Path, text: bytes) -> None:
    path = folder / FILE
    path.write_bytes(text)
    with pytest.raises(UserError, match=f"{re.escape(str(path))} is not what ttabench wrote"):
        Ratios(folder, "cpu")(CELL)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 50_000, "limit = " + "9" * 10_000, "x = " + "{a=" * 5_000, "limit = 1e999",
        "limit = 0x" + "f" * 5_000, "set.tent.steps = [0x" + "f" * 5_000 + "]", 'scores = "a\\nb"',
        'workers = "a\\nb"', 'methods = "a\\nb"',
    ],
)  # fmt: skip
def test_a_sweep_file_of_another_kind_is_one_sentence(ttabench: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.toml").write_text(text)
    output = ttabench("sweep", "--config", tmp_path / "sweep.toml", "--out", tmp_path / "o")
    assert output.code == 2, output
    assert output.err.startswith("ttabench: ")
    assert output.err.count("\n") == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy": 1e999}, {"accuracy": 101.0}, {"accuracy": -1.0}, {"accuracy": "50"},
        {"n_images": 10**30}, {"n_images": -1}, {"n_images": "8"}, {"seconds": 1e999}, {"seconds": "fast"},
        {"seconds": -5.0}, {"seconds": None}, {"written": 1e308}, {"written": -1e308}, {"reason": ["x"]},
        {"details": "x"}, {"status": 7},
    ],
)  # fmt: skip
def test_a_value_that_ttabench_never_writes_is_named_with_its_place(
    ttabench: Run, folder: Path, changes: dict[str, Any]
) -> None:
    shard = put(folder, ok)
    text = raw(shard)
    data = {key: value for key, value in decode(text[-1]).items() if key != "sum"} | changes
    head = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()[:-1]
    text[-1] = head + b',"sum":"' + hashlib.sha256(head).hexdigest()[:16].encode() + b'"}'
    shard.write_bytes(b"\n".join(text) + b"\n")
    for verb in ("status", "verify"):
        output = ttabench(verb, folder)
        assert output.code == 2, (verb, output)
        assert f"{shard.name}, line {len(text)}" in output.err.replace("\n", "")


def check_refused(ttabench: Run, shard: Path, line: int, words: str) -> None:
    """Each command names the line, and says what is wrong with it. The shard is gone afterwards."""
    folder = shard.parents[1]
    for verb, *options in (("status",), ("report",), ("verify", "--workers", "0"), ("attest", "--dry-run")):
        output = ttabench(verb, folder, *options)
        text = output.err.replace("\n", "")
        assert output.code == 2, (verb, output)
        assert f"{shard.name}, line {line}, is not what ttabench wrote: {words}" in text, (verb, text)
    shard.unlink()


@each(
    ("name", "value"),
    [
        ("cost", 3), ("cost", {"images": "x"}), ("cost", {"images": 0}), ("unlabelled", [1]),
        ("calibration", [1]), ("calibration", {"count": [1]}), ("windows", "x"), ("windows", {"length": 0}),
        ("windows", {"length": 1, "accuracy": []}),
        ("unknown", {"softmax": 3}), ("alarm", 7), ("source_warning", [1]), ("adapted", {"a": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_details_of_another_type_are_named_with_their_place(
    ttabench: Run, folder: Path, name: str, value: object
) -> None:
    shard = put(folder, ok, details={name: value})
    check_refused(ttabench, shard, len(raw(shard)), f"its details.{name}")


@each(
    ("name", "value"),
    [
        ("history", ["fog"]), ("history", "fog-5"), ("history", ["fog-x"]), ("config", [1]),
        ("config", {"lr": [1]}), ("severity", None), ("seed", 1.5), ("baseline", 3), ("foreign", [1]),
        ("image_files", "tar"), ("image_files", False),
    ],
    ids=str,
)  # fmt: skip
def test_a_cell_with_values_of_another_type_is_named_with_its_place(
    ttabench: Run, folder: Path, name: str, value: object
) -> None:
    shard = put(folder, ok, cell={**CELL.to_json(), name: value})
    check_refused(ttabench, shard, len(raw(shard)), f"its cell.{name} is ")


@each(
    ("name", "value", "words"),
    [
        ("order", 1.5, "its cell.protocol.order is 1.5"), ("limit", "x", "its cell.protocol.limit is x"),
        ("stream", None, "its cell.protocol.stream is None"),
        ("mode", "x", "its protocol is none (mode is 'x'"),
        ("held_out", 1.5, "its protocol is none (held_out is 1.5"),
        ("stream", "x", "its protocol is none (stream is 'x'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_protocol_that_is_none_is_named_with_its_place(
    ttabench: Run, folder: Path, name: str, value: object, words: str
) -> None:
    shard = put(folder, ok, cell={**CELL.to_json(), "protocol": {"mode": "online", name: value}})
    check_refused(ttabench, shard, len(raw(shard)), words)


@each(
    ("name", "value"),
    [
        ("versions", 3), ("versions", {"torch": [1]}), ("device", 7), ("machine", [1]), ("processor", {}),
        ("threads", "x"), ("threads", -1), ("threads", 10**30),
    ],
    ids=str,
)  # fmt: skip
def test_an_environment_of_another_kind_is_named_with_its_place(
    ttabench: Run, folder: Path, name: str, value: object
) -> None:
    shard = put(folder, ok)
    made = [{key: of for key, of in decode(line).items() if key != "sum"} for line in raw(shard)]
    made[0][name] = value
    shard.write_bytes(b"".join(map(encode, made)))
    noun = "are" if name == "versions" else "is"
    check_refused(ttabench, shard, 1, f"its {name} {noun} ")


# ---- leases

LEASE = {"host": "h", "pid": 1, "machine": "m", "started": 1, "since": 1.0, "progress": {"role": "sweep"}}


@pytest.mark.parametrize(
    "change",
    [
        {"pid": "x"}, {"pid": [1]}, {"pid": 1e999}, {"pid": 10**40}, {"started": None}, {"since": "soon"},
        {"since": 1e999}, {"host": "h\x1b[2J\n::error::x"}, {"host": {"a": 1}}, {"progress": 7},
        {"progress": {"total": "x", "seen": [], "scored": 3}}, {"progress": {"total": 10**400}},
        {"progress": {"total": 5, "seen": 2, "scored": 2}}, {"progress": {"cell": 7, "doing": ["\x1b"]}},
        {"progress": {"total": -5, "seen": 2, "scored": 1.5, "right": "1"}}, {"progress": {"role": []}},
        {"progress": {"cell": "x\n::error::y", "doing": "\u202e"}},
    ],
)  # fmt: skip
def test_a_lease_with_other_fields_neither_ends_a_command_nor_steers_it(
    ttabench: Run, folder: Path, change: dict[str, Any]
) -> None:
    put(folder, ok)
    there = folder / FOLDER
    there.mkdir(exist_ok=True)
    (there / f"{'b' * 16}.json").write_text(json.dumps(LEASE | change))
    (there / f"{'c' * 64}@{'b' * 16}").touch()
    FolderProcesses(folder).leases()
    running(folder)
    output = ttabench("status", folder)
    assert output.code == 0, output
    assert not forbidden(output.out + output.err)


@pytest.mark.parametrize("text", [b"", b"[" * 100_000, b"7", b"null", b"[]", b"\xff"])
def test_a_lease_that_is_none_is_left_out(folder: Path, text: bytes) -> None:
    there = folder / FOLDER
    there.mkdir(exist_ok=True)
    (there / "b.json").write_bytes(text)
    assert FolderProcesses(folder).leases() == []


# ---- long names

LONG = "x" * 20_000


@each(
    "arguments",
    [
        ("sweep", "--methods", LONG), ("sweep", "--archs", LONG), ("sweep", "--datasets", LONG),
        ("sweep", "--corruptions", LONG), ("sweep", "--set", f"tent.{LONG}=1"), ("sweep", "--order", LONG),
        ("sweep", "--methods", f"tent[{LONG}=1]"), ("list", "settings", LONG), ("list", LONG), (LONG,),
        ("sweep", f"--{LONG}"), ("sweep", "--stream", f"ccc({LONG})"), ("sweep", "--contamination", LONG),
        ("conform", LONG), ("figure", LONG), ("train", "--recipe", LONG), ("report", "x", "--format", LONG),
        ("sweep", "--archs", f"{LONG}:build"), ("sweep", "--archs", f"timm/{LONG}"), ("sweep", "--log", LONG),
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)  # fmt: skip
def test_long_names_end_in_seconds(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    start = time.process_time()  # a busy machine may take long
    output = ttabench(*arguments)
    assert time.process_time() - start < 20
    assert output.code == 2
    assert "Traceback" not in output.err
    assert len(output.err) < 2000


@pytest.mark.parametrize("name", ["label", "arch", "dataset"])
def test_a_name_longer_than_any_is_one_sentence(folder: Path, name: str) -> None:
    put(folder, replace(ok, cell=replace(CELL, **{name: LONG})))
    with pytest.raises(UserError, match=rf"its cell.{name} is x{{20}}… \(20,000 characters\)"):
        Store.at(folder).latest()


def test_a_long_reason_is_cut_where_it_is_read(folder: Path) -> None:
    put(folder, Result(cell=CELL, status="failed", reason=LONG))
    (record,) = Store.at(folder).latest().values()
    assert len(record.result.reason) < 5000
    assert record.result.reason.endswith("(20,000 characters)")


OFFLINE = {**CELL.to_json(), "protocol": {"mode": "offline"}}


@each(
    "changes",
    [
        {"cell": {**OFFLINE, "config": {"epochs": "all"}}}, {"cell": {**OFFLINE, "config": {"epochs": 2.5}}},
        {"details": {"source_used": "features (, images)"}},
        {"details": {"source_used": f"features ({'9' * 5000} images)"}},
        {"details": {"resets": 10**400}}, {"details": {"resets": "x"}},
    ],
    ids=lambda changes: str(changes)[:60],
)  # fmt: skip
def test_what_a_method_means_by_a_name_of_a_report_is_its_own_affair(
    ttabench: Run, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Settings and details may have any name, and any value."""
    folder = folder_in(tmp_path / str(len(list(tmp_path.iterdir()))))
    if "cell" in changes:
        changes = {**changes, "id": stored_identity(changes["cell"])}
    put(folder, ok, **changes)
    output = ttabench("report", folder, "--format", "csv,markdown")
    assert output.code == 0, output


# ---- what was planned and asked for

PLANNED: dict[str, Any] = {
    "id": "a" * 64, "method": "tent", "base": "tent", "arch": "resnet18", "dataset": "digits-c",
    "corruption": "fog", "severity": 5, "seed": 0, "reason": "",
}  # fmt: skip


@each(
    ("name", "value", "words"),
    [
        ("id", [1], "its id is"), ("method", None, "its method is None"), ("dataset", 3, "its dataset is 3"),
        ("corruption", [1], "its corruption is"), ("severity", "x", "its severity is x"),
        ("reason", 3, "its reason is 3"), ("arch", LONG, "its arch is xxx"), ("fixed", 3, "its fixed is 3"),
        ("protocol", 3, "its protocol is 3"), ("protocol", {"x": 1}, "its protocol has an unknown x"),
        ("protocol", {"mode": "x"}, "its protocol is none"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_a_planned_cell_with_values_of_another_type_is_named(
    ttabench: Run, folder: Path, name: str, value: object, words: str
) -> None:
    path = folder / "plan.jsonl"
    path.write_bytes(encode(PLANNED) + encode({**PLANNED, name: value}))
    for verb in ("status", "report"):
        output = ttabench(verb, folder)
        assert output.code == 2, output
        assert f"plan.jsonl, line 2, is not what ttabench wrote: {words}" in output.err.replace("\n", "")
    path.unlink()


WRONG: list[dict[str, Any]] = [
    {"methods": 3}, {"corruptions": 3}, {"settings": [3]}, {"include": 3}, {"include": [3]},
    {"include": [{"methods": 3}]}, {"per_method": 3}, {"per_dataset": {"digits-c": 3}},
]  # fmt: skip


@each("options", WRONG, ids=str)
def test_options_of_another_type_are_none_of_ttabench(
    ttabench: Run, folder: Path, options: dict[str, Any]
) -> None:
    before = (folder / "sweep.json").read_text()
    written = json.loads(before)
    written["sweep"] |= options
    written["sum"] = manifest.checksum(written["sweep"])
    (folder / "sweep.json").write_text(json.dumps(written))
    for verb in ("status", "report"):
        output = ttabench(verb, folder)
        assert output.code == 2, output
        assert "sweep.json is not what ttabench wrote" in output.err.replace("\n", " ")
    (folder / "sweep.json").write_text(before)


@each(
    "text",
    [
        "methods = 3",
        "set = 3",
        "include = 3",
        "include = [3]",
        "per_method = 3",
        "x = " + "[" * 5000,
        "link",
        "pipe",
    ],
    ids=lambda text: text[:20],
)
def test_a_sweep_file_that_cannot_be_read_asks_for_nothing(folder: Path, text: str) -> None:
    path = folder / "sweep.toml"
    if text == "pipe":
        os.mkfifo(path)
    elif text == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_text(text)
    assert set_by_users(folder, {"methods": ["tent[lr=1]"]}) == {("tent", "lr")}
    if "[[" not in text:
        assert not [sweep for sweep in kept(folder) if "include" in sweep]
    path.unlink()


@each("ratio", ["0", "-1", "NaN", "Infinity", "1e300", '"x"', "1" + "0" * 400])
def test_a_stored_compute_ratio_that_is_none_is_named(folder: Path, ratio: str) -> None:
    (folder / "pace.json").write_text(f'{{"a": {{"ratio": {ratio}}}}}')
    with pytest.raises(UserError, match=r"pace\.json is not what ttabench wrote"):
        Ratios(folder, "cpu")._read()
