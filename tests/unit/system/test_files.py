"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.cases import each
from ttabench.errors import UserError
from ttabench.system.cores import available_cores
from ttabench.system.files import bytes_below, replace_file, replacing, user_path, writing


def test_the_folder_is_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    replace_file(tmp_path / "a" / "b", b"1")
    replace_file(tmp_path / "a" / "b", b"22")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "a").iterdir()] == [("b", b"22")]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError, OSError])
def test_an_error_while_writing_keeps_the_old_content(tmp_path: Path, problem: type[BaseException]) -> None:
    def interrupted() -> None:
        with replacing(tmp_path / "b") as part:
            part.write_bytes(b"half")
            raise problem

    replace_file(tmp_path / "b", b"old")
    with pytest.raises(problem):
        interrupted()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("b", b"old")]


def test_the_bytes_are_on_the_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    replace_file(tmp_path / "b", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as problem:
        replace_file(tmp_path / "b", b"new")
    assert problem.value.filename == str(tmp_path / "b")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("b", b"old")]


def test_readers_see_the_old_or_the_new_content_never_half(tmp_path: Path) -> None:
    replace_file(tmp_path / "b", b"old")
    with replacing(tmp_path / "b") as part:
        part.write_bytes(b"half")
        assert (tmp_path / "b").read_bytes() == b"old"
        part.write_bytes(b"whole")
    assert (tmp_path / "b").read_bytes() == b"whole"


def test_who_looks_for_files_of_a_kind_does_not_find_one_that_is_half_written(tmp_path: Path) -> None:
    with replacing(tmp_path / "note.json") as part:
        part.write_bytes(b"half")
        assert list(tmp_path.glob("*.json")) == []


def test_what_a_killed_process_left_is_deleted_after_a_day(tmp_path: Path) -> None:
    no_process = 1 << 30
    mine, killed, new, of_user = (
        tmp_path / name
        for name in (
            f".{os.getpid()}-01234567-a.json.part", f".{no_process}-01234567-a.json.part",
            f".{no_process}-89abcdef-a.json.part", ".12-notes",
        )
    )  # fmt: skip
    for path in (mine, killed, new, of_user):
        path.touch()
    for path in (mine, killed, of_user):
        os.utime(path, (0, 0))
    replace_file(tmp_path / "b", b"1")
    assert {*tmp_path.iterdir()} == {mine, new, of_user, tmp_path / "b"}


@each(("link", "what"), [(False, "no folder"), (True, "a link that leads nowhere")])
def test_what_stands_in_the_place_of_a_folder_is_named(tmp_path: Path, link: bool, what: str) -> None:
    place = tmp_path / "out"
    place.symlink_to("nowhere") if link else place.touch()
    with pytest.raises(UserError) as problem, writing(place / "a"):
        replace_file(place / "a", b"")
    assert str(problem.value) == f"{place / 'a'} cannot be written ({place} is {what})."


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/x") == tmp_path / "x"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken away here")
def test_cores_that_are_taken_away_do_not_count() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_folder_is_counted_once_whatever_links_to_it(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    for place, size in ((folder / "a", 10), (elsewhere, 5)):
        place.mkdir(parents=True)
        (place / "file").write_bytes(bytes(size))
    for name, target in (
        ("loop", folder),
        ("again", folder / "a"),
        ("linked", elsewhere),
        ("gone", "nowhere"),
    ):
        (folder / name).symlink_to(target)
    (folder / "self").symlink_to(folder / "self")
    assert bytes_below(folder) == 15


@each(
    ("limits", "cores"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"a/b/cpu.max": "150000 100000"}, 2),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000", "cpu.max": "max 100000"}, 3),
        ({"a/b/cpu.max": "1000 100000"}, 1),
        ({"other/cpu.max": "100000 100000"}, 64),
        ({"cpu,cpuacct/c/cpu.cfs_quota_us": "400000", "cpu,cpuacct/c/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu,cpuacct/c/cpu.cfs_quota_us": "-1", "cpu,cpuacct/c/cpu.cfs_period_us": "100000"}, 64),
    ],
)
def test_a_container_has_as_many_cores_as_it_has_time_of(
    limits: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr("ttabench.system.cores.CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr("ttabench.system.cores.MINE", tmp_path / "mine")
    assert available_cores() == 64
    (tmp_path / "mine").write_text("4:memory:/m\n3:cpu,cpuacct:/c\n0::/a/b\n")
    for name, text in limits.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(f"{text}\n")
    assert available_cores() == cores
