"""``ttabench results``: published results in the cache are whole, plain and true, or they are refused."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.stored_results import CELL, filled, folder, measured
from tests.unit.web import Mirror
from ttabench.cli import _fetch_results as module
from ttabench.cli._fetch_results import fetch_results, fetched
from ttabench.data.files.fingerprint import file_sha256
from ttabench.errors import UserError
from ttabench.store import Store
from ttabench.system.checked_lines import encode
from ttabench.system.work_claims import FOLDER, WorkClaims

RIGHT = np.random.default_rng(0).random(50) < 0.7


@pytest.fixture
def cache(own_cache: Path) -> Path:
    return own_cache / "results"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A tree with two results folders, and other files."""
    root = tmp_path / "Their Results"
    folder(root / "one", {("fog", 0): RIGHT, ("snow", 0): RIGHT})
    folder(root / "deep" / "two", {("fog", 1): RIGHT})
    (root / "one" / "report").mkdir()
    (root / "one" / "report" / "table.tex").write_text("\\input{|evil}")
    (root / "one" / "run.sh").write_text("#!/bin/sh\n")
    (root / "README.md").write_text("ours")
    return root


def tar_of(tree: Path, to: Path) -> Path:
    with tarfile.open(to, "w:gz") as tar:
        tar.add(tree, "release-1.0")
    return to


def zip_of(tree: Path, to: Path) -> Path:
    return Path(shutil.make_archive(str(to).removesuffix(".zip"), "zip", tree))


def git_of(tree: Path, to: Path) -> str:
    shutil.copytree(tree, to)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(to), *command], check=True, capture_output=True)
    return f"git+file://{to}"


def test_a_disk_that_gets_full_while_results_are_unpacked_is_told_with_the_cure(
    cache: Path, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ttabench.data.fetch.extract.shutil.copyfileobj", full)
    with pytest.raises(
        UserError, match=r"No space left on device\); free space there, or set TTABENCH_CACHE"
    ):
        fetch_results(str(tar_of(theirs, tmp_path / "r.tar.gz")))
    assert not fetched()


def test_results_may_be_called_like_the_folder_of_claims(cache: Path, theirs: Path) -> None:
    (cache / module.WORK).mkdir(parents=True)
    with WorkClaims(cache / module.WORK) as other:
        assert other.take("theirs")
        fetch_results(str(theirs), FOLDER)
        assert other.where("theirs")
    assert [each.name for each in fetched()] == [FOLDER]


def test_folders_archives_and_repositories_give_the_same_results(
    cache: Path, theirs: Path, tmp_path: Path, mirror: Mirror
) -> None:
    tar = tar_of(theirs, tmp_path / "r.tar.gz")
    mirror.files["r.tar.gz"] = tar.read_bytes()
    sources = {
        "folder": str(theirs), "tar": str(tar), "zip": str(zip_of(theirs, tmp_path / "r.zip")),
        "web": f"{mirror.url}/r.tar.gz", "git": git_of(theirs, tmp_path / "repo"),
    }  # fmt: skip
    for name, source in sources.items():
        found = fetch_results(source, name)
        assert len(found.stores) == 2
        assert sum(len(Store.at(path).latest()) for path in found.stores) == 3
        kept = {path.name for path in found.folder.rglob("*") if path.is_file()}
        assert not kept & {"table.tex", "run.sh", "README.md"}
        assert found.changed() == ""
    versions = {each.name: each.version for each in fetched()}
    assert versions["tar"] == versions["web"] == file_sha256(tar)
    assert (len(versions["git"]), versions["folder"]) == (40, "")
    assert {path.name for path in cache.iterdir()} - {module.WORK} == set(sources)


def test_results_stand_in_a_table_beside_ours(
    ttabench: Run, cache: Path, theirs: Path, tmp_path: Path
) -> None:
    output = ttabench("results", "fetch", theirs)
    assert output.code == 0, output.err
    assert "ttabench report MINE" in output.out
    (found,) = fetched()
    assert found.name == "their-results"
    mine = folder(tmp_path / "mine", {("fog", 0): RIGHT}, label="tent[lr=0.001]")
    both = ("report", mine, *found.stores, "--format", "csv", "--out", tmp_path / "both")
    assert ttabench(*both).code == 0
    rows = pd.read_csv(tmp_path / "both" / "cells.csv")
    assert len(rows) == 3
    listed = ttabench("results", "list")
    assert "their-results" in listed.out
    assert "as fetched" in listed.out
    shard = next(found.stores[0].glob("cells/*.jsonl"))
    shard.write_bytes(shard.read_bytes() + b"\n")
    assert "changed" in ttabench("results", "list").out


PATH = {"alone": {"fog": [8, 41.0]}, "legs": {"fog+snow": [[8, 0, 41.0], [7, 0, 44]]}}


def with_path(root: Path, text: bytes) -> Path:
    """The folder with a file of the path of a ccc stream."""
    file = root / "streams" / f"ccc-{'0a' * 8}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text)
    return file


def test_paths_of_streams_come_along_and_saved_states_do_not(cache: Path, theirs: Path) -> None:
    file = with_path(theirs / "one", encode(PATH))
    for other in ("ccc-mine.json", f"{'0' * 64}.npz"):
        file.with_name(other).write_bytes(b"other")
    found = fetch_results(str(theirs), "x")
    kept = found.folder / "one" / "streams" / file.name
    assert [path.name for path in kept.parent.iterdir()] == [file.name]
    assert (kept.read_bytes(), found.changed()) == (file.read_bytes(), "")
    added = kept.with_name(f"ccc-{'1' * 16}.json")
    added.write_bytes(encode(PATH))
    assert found.changed() == f"one/streams/{added.name}"
    added.unlink()
    kept.write_bytes(encode({**PATH, "legs": {}}))
    assert found.changed() == f"one/streams/{kept.name}"


def test_a_path_of_a_stream_that_leads_elsewhere_refuses_a_source(cache: Path, theirs: Path) -> None:
    file = with_path(theirs / "one", encode(PATH))
    file.rename(theirs / "path")
    file.symlink_to(theirs / "path")
    refused(theirs, "is a link", cache)
    file.unlink()
    file.write_bytes(encode({"alone": {}, "legs": {"fog+snow": []}}))
    refused(theirs, rf"kept of it: one/streams/{file.name} is not what .*: it has a step [^;]*\.$", cache)


def test_a_damaged_plan_refuses_a_source(cache: Path, theirs: Path) -> None:
    (theirs / "one" / "plan.jsonl").write_text('{"id":"x"}\n')
    refused(theirs, r"one/plan\.jsonl, line 1, is not what ttabench wrote: it has no checksum\.$", cache)


def test_before_anything_was_fetched_the_list_says_so(ttabench: Run, cache: Path) -> None:
    assert "No results were fetched yet; see ttabench results fetch" in ttabench("results", "list").out


def test_a_path_here_is_noted_from_the_root(
    cache: Path, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Mirror
) -> None:
    """The list is read in another folder than the source was typed in."""
    archive = tar_of(theirs, tmp_path / "r.tar.gz")
    git_of(theirs, tmp_path / "repo")
    mirror.files["r.tar.gz"] = archive.read_bytes()
    monkeypatch.chdir(theirs)
    monkeypatch.setenv("HOME", str(tmp_path))
    for source, noted in (
        (".", str(theirs)), ("../r.tar.gz", str(archive)), ("~/r.tar.gz", str(archive)),
        ("git+../repo", f"git+{tmp_path / 'repo'}"), (f"{mirror.url}/r.tar.gz", f"{mirror.url}/r.tar.gz"),
    ):  # fmt: skip
        assert fetch_results(source, "x", replace=True).source == noted


@each(
    ("source", "name"),
    [
        ("RES2.ZIP", "res2"), ("/a/Mine.Tar.GZ", "mine"), ("https://a.org/x.TGZ?raw=1", "x"), ("a.tar", "a"),
        ("git+https://a.org/them/Theirs.git", "theirs"), ("folder/v1.0", "v1.0"), ("a.zip.tar", "a.zip"),
        ("zip", "zip"),
    ],
)  # fmt: skip
def test_a_name_has_no_ending_of_an_archive(source: str, name: str) -> None:
    assert module._name(module._last_part(source)) == name


def test_an_ending_in_capitals_is_that_of_an_archive(
    cache: Path, theirs: Path, tmp_path: Path, mirror: Mirror
) -> None:
    archive = zip_of(theirs, tmp_path / "r.zip").rename(tmp_path / "RES2.ZIP")
    assert fetch_results(str(archive)).name == "res2"
    mirror.files["RES3.ZIP"] = archive.read_bytes()
    assert fetch_results(f"{mirror.url}/RES3.ZIP").name == "res3"


def test_a_name_is_taken_once(cache: Path, theirs: Path) -> None:
    first = fetch_results(str(theirs), "x")
    with pytest.raises(UserError, match="there are results called x already"):
        fetch_results(str(theirs), "x")
    shutil.rmtree(theirs / "deep")
    again = fetch_results(str(theirs), "x", replace=True)
    assert (len(first.stores), len(again.stores)) == (2, 1)
    assert not (cache / "x" / "deep").exists()


class Killed(BaseException):
    """In place of SIGKILL."""


@pytest.mark.parametrize("how", [KeyboardInterrupt, Killed])
def test_a_fetch_that_ends_while_it_replaces_loses_nothing(
    cache: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    first = fetch_results(str(theirs), "x")
    rename = Path.rename

    def ended(path: Path, to: Path) -> Path:
        if path.name == "whole":
            raise how
        return rename(path, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", ended)
        if how is Killed:  # which leaves everything as it is
            patched.setattr(module, "_clear", lambda *_: None)
        with pytest.raises(how):
            fetch_results(str(theirs), "x", replace=True)
    if how is Killed:
        with pytest.raises(UserError, match="there are results called x already"):
            fetch_results(str(theirs), "x")
    assert fetched() == [first]
    assert not first.changed()
    assert not list((cache / module.WORK).glob("x*"))
    assert len(fetch_results(str(theirs), "x", replace=True).stores) == 2


@pytest.mark.filterwarnings("ignore:x. waiting for")
def test_of_two_fetches_of_one_name_the_second_waits(
    cache: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It then finds that the name is taken."""
    second: list[Thread] = []
    said: list[str] = []

    def other() -> None:
        with pytest.raises(UserError) as problem:
            fetch_results(str(theirs), "x")
        said.append(str(problem.value))

    def obtained(*of_source: Any) -> tuple[Path, str]:
        if not second:
            second.append(Thread(target=other))
            second[0].start()
        return true(*of_source)

    true = module._obtained
    monkeypatch.setattr(module, "_obtained", obtained)
    fetch_results(str(theirs), "x")
    second[0].join()
    assert "there are results called x already" in said[0]


def refused(source: object, match: str, cache: Path, **more: str) -> None:
    with pytest.raises(UserError, match=match):
        fetch_results(str(source), **more)
    assert not [path for path in cache.rglob("*") if path.is_file()]  # nothing half-fetched


def test_a_wrong_checksum_refuses_an_archive(cache: Path, theirs: Path, tmp_path: Path) -> None:
    tar = tar_of(theirs, tmp_path / "r.tar.gz")
    refused(tar, "has the SHA-256", cache, sha256="0" * 64)
    refused(tar, "--sha256 HEX: expected 64 digits from 0 to 9 and a to f", cache, sha256="HEX")
    refused(theirs, "a repository or a folder has none", cache, sha256="0" * 64)
    assert fetch_results(str(tar), sha256=file_sha256(tar).upper()).name == "r"


def test_files_that_lead_elsewhere_refuse_a_source(cache: Path, theirs: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "slip.zip", "w") as made:
        made.writestr("../../sweep.json", "{}")
    refused(tmp_path / "slip.zip", "outside the target folder", cache)
    with tarfile.open(tmp_path / "link.tar", "w") as tar:
        info = tarfile.TarInfo("r/sweep.json")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info, io.BytesIO())
    refused(tmp_path / "link.tar", "a link", cache)
    (theirs / "one" / "cells" / "z.jsonl").symlink_to("/etc/passwd")
    refused(theirs, "is a link", cache)
    (theirs / "one" / "cells" / "z.jsonl").unlink()
    (theirs / "one" / "cells").rename(theirs / "cells")
    (theirs / "one" / "cells").symlink_to(theirs / "cells")
    refused(theirs, "is a link", cache)


def test_what_is_damaged_is_named_as_in_its_source(cache: Path, theirs: Path, tmp_path: Path) -> None:
    """The copy in which it is found is gone when the sentence is read."""
    shard = next((theirs / "one" / "cells").iterdir())
    whole = shard.read_bytes()
    shard.write_bytes(whole.replace(b'"corruption":"fog"', b'"corruption":"fig"'))
    tar = tar_of(theirs, tmp_path / "r.tar.gz")
    for source, top in ((theirs, ""), (tar, "release-1.0/"), (theirs / "one", None)):
        place = f"cells/{shard.name}" if top is None else f"{top}one/cells/{shard.name}"
        with pytest.raises(UserError) as problem:
            fetch_results(str(source))
        text = str(problem.value)
        shown = str(source) if len(str(source)) <= 80 else str(source)[:80]
        assert text.startswith(shown)
        assert f" was not fetched, and nothing is kept of it: {place}, line " in text
        assert module.WORK not in text
        assert "restore" not in text
    shard.write_bytes(whole)
    (theirs / "one" / "sweep.json").write_text("{}")
    with pytest.raises(UserError, match=r"kept of it: one/sweep\.json is not what ttabench wrote\.$"):
        fetch_results(str(theirs))
    (theirs / "one" / "sweep.json").unlink()
    (theirs / "one" / "sweep.json").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"kept of it: one/sweep\.json is a link"):
        fetch_results(str(theirs))


def test_an_archive_that_cannot_be_downloaded_gets_advice_that_can_be_followed(
    cache: Path, mirror: Mirror
) -> None:
    with pytest.raises(UserError, match=r"r\.tar\.gz could not be downloaded") as problem:
        fetch_results(f"{mirror.url}/r.tar.gz")
    assert str(problem.value).endswith("Try again later, or download it elsewhere and give its path.")
    assert module.WORK not in str(problem.value)


def test_records_must_be_whole_and_true(cache: Path, theirs: Path, tmp_path: Path) -> None:
    shard = next((theirs / "one" / "cells").iterdir())
    whole = shard.read_bytes()
    shard.write_bytes(whole.replace(b'"corruption":"fog"', b'"corruption":"fig"'))
    refused(theirs, shard.name, cache)
    for wrong, says in (
        (replace(measured(CELL, RIGHT), accuracy=99.0), "its accuracy is 99.0 %, and "),
        (replace(measured(CELL, RIGHT), n_images=500), "it has 500 images, and the correctness of another"),
    ):
        root = tmp_path / says[:8]
        filled(root, wrong)
        refused(root, says, cache)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("nothing-here", "is no folder here, no archive"),
        ("https://example.org/page", "is no folder here, no archive"),
        ("missing.zip", "does not exist"),
        ("git+file:///nowhere/at/all", "git cannot fetch"),
        ("git+ext::sh -c true", "git cannot fetch"),
    ],
)
def test_a_source_that_is_none_gets_one_sentence(
    ttabench: Run, cache: Path, source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = ttabench("results", "fetch", source, "--name", "x")
    assert output.code == 2
    assert says in output.err
    assert "Traceback" not in output.err
    assert not (cache / "x").exists()


@each(
    ("said", "shown"),
    [
        (
            "Cloning into 'x'...\nssh: Could not resolve hostname a: Name or service not known\n"
            "fatal: Could not read from remote repository.\n\n"
            "Please make sure you have the correct access rights\nand the repository exists.\n",
            "ssh: Could not resolve hostname a: Name or service not known; "
            "fatal: Could not read from remote repository.",
        ),
        (
            "git@a: Permission denied (publickey).\nfatal: Could not read from remote repository.\n\nPlease",
            "git@a: Permission denied (publickey); fatal: Could not read from remote repository.",
        ),
        ("error: RPC failed\nhint: more", "error: RPC failed."),
        ("first\nlast \x1b[31m\n", r"last \x1b[31m."),
        ("", "it says nothing."),
    ],
)
def test_of_what_git_says_the_lines_that_say_what_is_wrong_are_shown(said: str, shown: str) -> None:
    assert module._complaint(said) == shown


def test_git_answers_in_english_and_in_any_bytes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nprintf 'fatal: in %s, \\377\\nand more\\n' \"$LC_ALL\" >&2\nexit 128\n")
    git.chmod(0o755)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("PATH", str(git.parent))
    refused("git+file:///nowhere", r"git cannot fetch file:///nowhere: fatal: in C, \S+\.$", cache)


def test_an_empty_folder_and_too_much_are_refused(
    cache: Path, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "holds no results", cache)
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    refused(theirs, "have more than", cache)
    monkeypatch.setattr(module, "MOST_FOLDERS", 1)
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 30)
    refused(theirs, "more than 1 results folders", cache)
