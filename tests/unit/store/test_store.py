from __future__ import annotations

import errno
import itertools
import json
import os
import re
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import each
from tests.unit import other_code
from tests.unit.stored_results import fill, with_accuracy
from ttabench.cell import Result, canonical
from ttabench.errors import UserError
from ttabench.provenance import current_code
from ttabench.provenance.staleness import NOT_RECORDED, by_importance, stale_cells
from ttabench.store import Store, load_frame, new_records
from ttabench.store.columns import COLUMNS
from ttabench.store.new_records import NewRecords
from ttabench.store.sweep_options import differences
from ttabench.system.checked_lines import decode, encode

SWEEP = {"methods": ["tent"], "limit": 0}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results", SWEEP)


def test_what_is_written_comes_back(store: Store, result: Result, other: Result) -> None:
    fill(store, result)
    fill(store, other)
    latest = Store.at(store.root).latest()
    assert {r.result.cell.cell_id: r.result for r in latest.values()} == {
        result.cell.cell_id: result,
        other.cell.cell_id: other,
    }


def test_the_last_record_of_a_cell_wins(store: Store, result: Result) -> None:
    fill(store, result, with_accuracy(result, 75.0))
    assert store.latest()[result.cell.cell_id].result.accuracy == 75.0
    fill(store, with_accuracy(result, 25.0))
    assert store.latest()[result.cell.cell_id].result.accuracy == 25.0


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_torn_last_line_is_ignored_and_nothing_else(
    store: Store, result: Result, other: Result, keep: int
) -> None:
    path = fill(store, result, other)
    whole, torn = path.read_bytes().rstrip(b"\n").rsplit(b"\n", 1)
    path.write_bytes(whole + b"\n" + torn[:keep])
    assert list(store.latest()) == [result.cell.cell_id]


def test_a_folder_that_went_through_windows_holds_the_same(
    store: Store, result: Result, other: Result
) -> None:
    """Git can change the ends of lines, and an editor can leave out the last one."""
    path = fill(store, result, other)
    whole = path.read_bytes()
    crlf = whole.replace(b"\n", b"\r\n")
    generation = new_records.generation(path)
    for text in (crlf, crlf.removesuffix(b"\n"), crlf.removesuffix(b"\r\n"), whole.removesuffix(b"\n")):
        path.write_bytes(text)
        assert {key: record.result for key, record in store.latest().items()} == {
            one.cell.cell_id: one for one in (result, other)
        }
        assert new_records.generation(path) == generation
    path.write_bytes(crlf)
    new = NewRecords(store.root, {})
    assert new.has(result.cell.cell_id, other.cell.cell_id)
    for one in (result, other):
        assert new.result(one.cell.cell_id) == one
    merged = store.merge()
    assert merged is not None
    assert b"\r" not in merged.read_bytes()


@pytest.mark.parametrize("line", [b"hello", b"[1]", b'{"kind": "result"}', b"\x00\x00", b"\xff\xfe", b"7"])
def test_a_foreign_line_is_named(store: Store, result: Result, line: bytes) -> None:
    path = fill(store, result)
    path.write_bytes(line + b"\n" + path.read_bytes())
    with pytest.raises(UserError, match=rf"{path.name}, line 1, is not"):
        store.latest()


def test_a_full_disk_loses_nothing_stored(
    store: Store, result: Result, other: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.writer()
    writer.append(result)
    real = os.write
    for code, advice in (
        (errno.ENOSPC, "free some space"), (errno.EDQUOT, "quota"), (errno.EFBIG, "ulimit"), (errno.EIO, ""),
    ):  # fmt: skip
        for room in (0, 100):
            rooms = iter([room])

            def refuse(fd: int, data: bytes, code: int = code, rooms: Iterator[int] = rooms) -> int:
                if room := next(rooms, 0):
                    return real(fd, data[:room])
                raise OSError(code, os.strerror(code))

            with monkeypatch.context() as patch:
                patch.setattr(os, "write", refuse)
                says = rf"{os.strerror(code)}\);.*{advice}.*run the same command again"
                with pytest.raises(UserError, match=says):
                    writer.append(other)
    assert list(store.latest()) == [result.cell.cell_id]
    writer.append(other)  # there is room again
    assert len(store.latest()) == 2


def test_a_disk_that_takes_nothing_any_more_is_one_sentence(
    store: Store, result: Result, other: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error of the disk, the system lets nobody write, and cut no file either."""
    writer, real = store.writer(), os.write
    writer.append(result)
    room = iter([100])

    def refuse(fd: int, data: bytes | int) -> int:
        if isinstance(data, memoryview) and (some := next(room, 0)):
            return real(fd, data[:some])
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(UserError, match=r"Read-only file system\); what was stored is kept; run"):
            writer.append(other)
    assert list(store.latest()) == [result.cell.cell_id]


def test_a_write_that_comes_up_short_goes_on(
    store: Store, result: Result, other: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal or the system's limit of one write does it; the disk need not be full."""
    real = os.write
    writer = store.writer()
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:1000]))
    writer.extend([result, other])
    assert len(store.latest()) == 2


def test_a_disk_that_is_full_at_the_first_result(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.writer()

    def refuse(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(UserError, match="same command again"):
            writer.append(result)
    assert not store.latest()
    writer.append(result)  # there is room again, and the shard still begins with its environment
    assert list(store.latest()) == [result.cell.cell_id]


def test_a_really_full_disk(store: Store, result: Result, other: Result) -> None:
    """The same against the kernel: a file-size limit makes the write itself come up short."""
    fill(store, result)

    def fills_the_disk(said: Connection) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        writer = store.writer()
        writer.append(other)
        size = writer.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
        try:
            writer.append(other)
        except UserError as problem:
            said.send("File too large" in str(problem) and writer.path.stat().st_size == size)

    with forked(fills_the_disk) as (process, said):
        assert said.recv()
        process.join()
    assert len(store.latest()) == 2


def test_kill_9_while_writing_leaves_whole_records(store: Store, result: Result) -> None:
    def write(said: Connection) -> None:
        writer = store.writer()
        for seed in itertools.count():
            writer.append(replace(result, cell=replace(result.cell, seed=seed)))
            said.send(seed)

    for _ in range(3):
        with forked(write) as (process, said):
            last = [said.recv() for _ in range(20)][-1]
            process.kill()
            process.join()
            with suppress(EOFError, OSError):
                while True:
                    last = said.recv()
        seeds = {r.result.cell.seed for r in store.latest().values()}
        assert seeds >= set(range(last + 1)), "a record that was acknowledged is lost"


@contextmanager
def forked(work: Callable[[Connection], None]) -> Iterator[tuple[BaseProcess, Connection]]:
    """A copy of this process that does `work`, and the other end of its connection."""
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(there,), daemon=True)
    process.start()
    there.close()
    try:
        yield process, here
    finally:
        process.kill()
        process.join()
        here.close()


def test_another_sweep_is_refused_unless_extended(store: Store, result: Result) -> None:
    fill(store, result)
    with pytest.raises(UserError, match=r"another sweep: --methods was tent and is now eata\. Choose"):
        Store.create(store.root, {"methods": ["eata"], "limit": 0})
    changed = {**SWEEP, "batch_size": 50, "settings": ["tent.lr=1"], "include": [{"limit": 3}]}
    with pytest.raises(UserError) as caught:
        Store.create(store.root, changed)
    assert (
        "--batch-size was not given and is now 50; [include] was not given and is now {'limit': 3}; "
        "--set was not given and is now tent.lr=1."
    ) in str(caught.value)
    with pytest.raises(UserError, match=r"--pace-ratio was not given and is now tent=2,sar=3\.1\. Choose"):
        Store.create(store.root, {**SWEEP, "pace_ratio": [["tent", 2.0], ["sar", 3.1]]})
    near = 3.1 + 2**-50
    assert differences({"pace_ratio": [["sar", 3.1]]}, {"pace_ratio": [["sar", near]]}) == (
        f"--pace-ratio was sar=3.1 and is now sar={near}"
    )
    assert store.sweep() == SWEEP
    both = Store.create(store.root, {"methods": ["eata"], "limit": 0}, extend=True)
    assert both.sweep() == {"methods": ["tent", "eata"], "limit": 0}
    assert len(both.latest()) == 1


def test_the_same_sweep_is_welcome(store: Store) -> None:
    assert Store.create(store.root, dict(SWEEP)).sweep() == SWEEP


def test_a_folder_that_lost_its_empty_cells_goes_on(store: Store, result: Result) -> None:
    """Git and archives leave out empty folders."""
    shutil.rmtree(store.cells)
    again = Store.create(store.root, store.sweep())
    again.writer().append(result)
    assert list(Store.at(store.root).latest()) == [result.cell.cell_id]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not a results folder"):
        Store.create(tmp_path, SWEEP)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(UserError, match=r"no sweep\.json"):
        load_frame(tmp_path)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match="--out"):
        Store.create(tmp_path / "results", SWEEP)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        Store.create(tmp_path / "file" / "results", SWEEP)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', '{"format": "ttabench-results"}'])
def test_a_foreign_manifest(store: Store, text: str) -> None:
    store.manifest.write_text(text)
    with pytest.raises(UserError, match=r"sweep\.json"):
        Store.at(store.root)


def test_what_cannot_be_read_is_not_said_to_be_missing(store: Store, result: Result) -> None:
    shard = fill(store, result)
    shard.rename(store.root / shard.name)
    store.cells.rmdir()
    assert store.latest() == {}
    store.cells.write_text("")
    with pytest.raises(UserError, match=rf"{store.cells} cannot be read \(Not a directory\)\."):
        store.latest()
    store.manifest.unlink()
    store.manifest.mkdir()
    with pytest.raises(UserError, match=rf"{store.manifest} cannot be read \(Is a directory\)\."):
        Store.at(store.root)


def test_a_newer_store_is_not_misread(store: Store) -> None:
    manifest = json.loads(store.manifest.read_text())
    store.manifest.write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(UserError, match="newer"):
        Store.at(store.root)


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest["sweep"].update(methods=["other"]),
        lambda manifest: manifest["sweep"].update(more=1),
        lambda manifest: manifest.pop("sum"),
    ],
)
def test_options_that_somebody_changed_are_refused(store: Store, edit: Callable[[Any], Any]) -> None:
    manifest = json.loads(store.manifest.read_text())
    edit(manifest)
    store.manifest.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="was changed after ttabench wrote it; restore it"):
        Store.at(store.root)


def test_options_of_the_time_without_checksums_are_read(store: Store) -> None:
    manifest = json.loads(store.manifest.read_text())
    del manifest["sum"]
    store.manifest.write_text(json.dumps({**manifest, "version": 2}))
    assert Store.at(store.root).sweep() == manifest["sweep"]


def test_frame_and_bitmap(store: Store, result: Result, other: Result) -> None:
    failed = replace(other, status="failed", reason="NaN", accuracy=None, correct=b"", n_images=0)
    fill(store, result, failed)
    frame = store.frame().set_index("corruption")
    assert [*COLUMNS] == [name for name in store.frame() if name != "increase"]
    assert frame.loc["fog", "accuracy"] == 62.5
    assert np.isnan(frame.loc["snow", "accuracy"])
    assert frame.loc["snow", "reason"] == "NaN"
    stored = store.latest()[result.cell.cell_id].result.correct
    correct = np.unpackbits(np.frombuffer(stored, np.uint8))
    assert correct.tolist() == [1, 0, 1, 1, 0, 1, 1, 0]
    assert 100 * correct.mean() == result.accuracy


def test_every_flipped_bit_is_noticed(store: Store, result: Result, other: Result) -> None:
    path = fill(store, result, other)
    whole = path.read_bytes()
    draw = np.random.default_rng(0)
    for place in draw.choice(len(whole) - 1, 400, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(bytes(damaged))
        with pytest.raises(UserError, match=rf"{path.name}, line \d+, is not"):
            store.latest()
    for bit in range(8):  # of the last newline: the line is not taken for one that is being written
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1 << bit]))
        with pytest.raises(UserError, match=rf"{path.name}, line 5, is not"):
            store.latest()
    path.write_bytes(whole)
    assert len(store.latest()) == 2


def test_a_result_whose_code_was_deleted_is_refused(store: Store, result: Result) -> None:
    path = fill(store, result)
    lines = path.read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["kind"] for line in lines[1:3]] == ["definitions", "code"]
    path.write_bytes(lines[0] + lines[1] + lines[3])
    with pytest.raises(UserError, match=r"line 3, is not .* no record of its code \w{12} stands before it"):
        store.latest()
    with pytest.raises(UserError, match=r"line 3, is not"):
        store.latest(quick=True)
    path.write_bytes(lines[0] + lines[2] + lines[3])
    with pytest.raises(UserError, match=r"line 2, is not .*: names of its definitions do not stand before"):
        store.latest()


def test_code_of_an_earlier_version_is_not_known_by_definition(store: Store, result: Result) -> None:
    head, _, code, row = map(json.loads, fill(store, result).read_bytes().splitlines())
    old = {"kind": "code", "source": code["source"], "modules": {"ttabench.nn": "1"}}
    for line in (head, row):
        line.pop("sum")
    (shard,) = store.cells.glob("*.jsonl")
    shard.write_bytes(b"".join(map(encode, (head, old, row))))
    (record,) = store.records()
    assert record.changes == (NOT_RECORDED,)


def test_a_shard_without_checksums_is_of_the_first_format_and_all_of_it_is_stale(
    store: Store, result: Result
) -> None:
    """That format recorded no code, so code that stands in such a file is not believed."""
    path = fill(store, result)
    text = re.sub(r',"sum":"\w+"\}', "}", path.read_text()).replace('"generation":1,', "")
    path.write_text(text)
    (record,) = store.records()
    assert record.changes == (NOT_RECORDED,)


def test_versions_of_further_libraries_are_stored_where_a_result_needs_them(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"resnet18": (), "timm/resnet50": ("pytest",)}
    monkeypatch.setattr("ttabench.store.writer.libraries", lambda method, arch: needed[arch])
    cells = [replace(result.cell, arch=arch, seed=seed) for seed in (0, 1) for arch in needed]
    fill(store, *(replace(result, cell=cell) for cell in cells))
    versions = [record.environment["versions"].get("pytest", "") for record in store.records()]
    assert versions == ["", pytest.__version__] * 2
    kept = {key: record.environment for key, record in store.latest().items()}
    store.merge()
    assert {key: record.environment for key, record in store.latest().items()} == kept


def test_a_method_that_is_not_installed_is_one_reason(store: Store, result: Result) -> None:
    fill(store, result)
    (record,) = store.records()
    data = {**record.data, "cell": {**record.data["cell"], "method": "nobody"}}
    assert replace(record, data=data).changes == ("nobody is not installed",)


@each(
    ("count", "texts", "sentence"),
    [
        (1, ["a.py changed"], "1 stale cell of tent: a.py changed since it was measured"),
        (2, ["a.py changed", "b.py is gone"],
         "2 stale cells of tent: a.py changed, b.py is gone since they were measured"),
        (1, [NOT_RECORDED],
         "1 stale cell of tent: it was stored by a version that did not record its code by definition"),
        (3, [NOT_RECORDED],
         "3 stale cells of tent: they were stored by a version that did not record its code by definition"),
        (2, ["tent is not installed"], "2 stale cells of tent: tent is not installed"),
    ],
)  # fmt: skip
def test_each_reason_of_stale_cells_is_a_sentence(count: int, texts: list[str], sentence: str) -> None:
    assert stale_cells(count, "tent", texts) == sentence


def test_a_record_that_was_edited_by_hand_is_refused_with_its_place(store: Store, result: Result) -> None:
    path = fill(store, result)
    path.write_text(path.read_text().replace('"accuracy":62.5', '"accuracy":92.5'))
    with pytest.raises(UserError, match=rf"{path.name}, line 4, .* checksum is not that of its content"):
        store.frame()


def test_an_id_of_another_cell_is_refused_even_with_a_checksum(store: Store, result: Result) -> None:
    path = fill(store, result)
    *head, line = path.read_bytes().splitlines()
    data = decode(line)
    data.pop("sum")
    data["cell"]["seed"] = 7
    path.write_bytes(b"\n".join([*head, encode(data)]))
    with pytest.raises(UserError, match="its id is not that of its cell"):
        store.latest()


def test_a_line_without_its_checksum_is_refused_in_a_shard_of_this_format(
    store: Store, result: Result
) -> None:
    path = fill(store, result)
    text = re.sub(r',"sum":"\w+"\}\n$', "}\n", path.read_text())
    path.write_text(text)
    with pytest.raises(UserError, match="it has no checksum"):
        store.latest()


def test_a_clock_that_went_back_pins_no_old_result(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour, accuracy in ((3, 10.0), (2, 20.0), (1, 30.0)):
        monkeypatch.setattr("ttabench.store.writer.time.time", lambda hour=hour: 3600.0 * hour)
        fill(store, with_accuracy(result, accuracy), with_accuracy(result, accuracy + 1))
        assert store.latest()[result.cell.cell_id].result.accuracy == accuracy + 1


def test_between_writers_side_by_side_the_later_result_wins(
    store: Store, result: Result, other: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first_hour in (1, 3):
        one, two = store.writer(), store.writer()
        one.append(other)
        two.append(other)  # both are open: of one generation, or neighbours
        monkeypatch.setattr("ttabench.store.new_records.generation", lambda shard: 1)
        for writer, hour, accuracy in ((one, first_hour, 1.0), (two, 2, 2.0)):
            monkeypatch.setattr("ttabench.store.writer.time.time", lambda hour=hour: 3600.0 * hour)
            writer.append(with_accuracy(result, accuracy))
            writer.close()
        winner = store.latest()[result.cell.cell_id].result.accuracy
        assert winner == (2.0 if first_hour < 2 else 1.0)
        for shard in store.cells.glob("*.jsonl"):
            shard.unlink()


def test_records_know_code_versions_device_and_threads(store: Store, result: Result) -> None:
    fill(store, result)
    (record,) = store.records()
    assert record.definitions["ttabench_methods/tent.py: Tent.adapt"]
    assert record.source == current_code("tent", "digits-c").source
    assert record.definitions == current_code("tent", "digits-c").definitions
    assert record.environment["versions"]["numpy"] == np.__version__
    assert record.environment["device"] == "cpu"
    assert not record.stale


def test_a_record_of_other_code_is_stale_and_says_what_changed(
    store: Store, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        other_code.changed(patch)
        fill(store, result)
    (row,) = store.frame().to_dict("records")
    assert row["stale"]
    assert row["stale_because"] == f"{other_code.CHANGED} changed"


def test_of_all_that_changed_new_modules_are_named_last() -> None:
    texts = {"b.py is new", "a.py is new", "d.py is gone", "c.py changed", "tent is not installed"}
    last = ["a.py is new", "b.py is new"]
    assert by_importance(texts) == ["c.py changed", "d.py is gone", "tent is not installed", *last]


def test_results_of_the_first_format_still_load_and_are_stale(store: Store, result: Result) -> None:
    lines = [
        {"kind": "environment", "versions": {"python": "3.11.7"}, "machine": "Linux x86_64"},
        {"kind": "result", "written": 1.0, "source": "e" * 64, **result.to_json()},
    ]
    text = "".join(canonical(line) + "\n" for line in lines)
    (store.cells / "old.jsonl").write_text(text)
    (record,) = store.records()
    assert record.result == result
    assert record.changes == (NOT_RECORDED,)


def test_a_folder_of_results_folders_may_stand_in_a_results_folder(tmp_path: Path) -> None:
    """A clone of the repository has results/reference/NAME, and sweeps write to results by default."""
    Store.create(tmp_path / "results" / "reference" / "digits-c", {"methods": ["tent"]})
    assert Store.create(tmp_path / "results", {"methods": ["sar"]}).sweep() == {"methods": ["sar"]}
    assert Store.at(tmp_path / "results" / "reference" / "digits-c").sweep() == {"methods": ["tent"]}
    (tmp_path / "thesis" / "drafts").mkdir(parents=True)
    for wrong, near in (("results/reference", "results/reference/digits-c"), ("results/cells", "results")):
        with pytest.raises(UserError, match=rf"\(no sweep\.json\); name one, such as \S*/{near}\.$"):
            Store.at(tmp_path / wrong)
    with pytest.raises(UserError, match=r"\(no sweep\.json\)\.$"):
        Store.at(tmp_path / "thesis")
    with pytest.raises(UserError, match="nowhere does not exist; expected a results folder"):
        Store.at(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a results folder of ttabench"):
        Store.create(tmp_path / "thesis", {"methods": ["sar"]})
