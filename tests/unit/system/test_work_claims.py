"""Claims of work: no cell is computed by two processes, and what a killed process had is free again."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cases import each
from tests.unit.sweep_processes import wait_for
from ttabench.errors import UserError
from ttabench.system import work_claims
from ttabench.system.work_claims import FolderProcesses, WorkClaims, machine, process_start

HOLDER = """
import sys, time
from pathlib import Path
from ttabench.system.work_claims import WorkClaims
mine = WorkClaims(Path(sys.argv[1]))
print(all([mine.take(key) for key in sys.argv[2:]]), flush=True)
time.sleep(600)
"""

COMPETITOR = """
import sys, time
from pathlib import Path
from ttabench.system.work_claims import WorkClaims
root = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
with WorkClaims(root) as mine:
    left = list(range(300))
    while left:  # a cell that two asked for at once may be left to the next round
        for i in left:
            done = root / "done" / str(i)
            if not done.exists() and mine.take(f"cell{i}"):
                if not done.exists():
                    (root / "count").open("a").write(f"{i}\\n")
                    done.touch()
                mine.release(f"cell{i}")
        left = [i for i in left if not (root / "done" / str(i)).exists()]
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def elsewhere(root: Path, name: str, beats: int = 1) -> None:
    """The lease of a process on another machine."""
    about = {"host": "far", "pid": 7, "machine": "far/boot/1", "started": 5, "since": 0.0, "progress": {}}
    (root / "running").mkdir(exist_ok=True)
    (root / "running" / f"{name}.json").write_text(json.dumps({**about, "beats": beats}))


def test_a_claim_holds_until_it_is_released(tmp_path: Path) -> None:
    with WorkClaims(tmp_path) as one, WorkClaims(tmp_path) as two:
        assert one.take("a")
        assert not two.take("a")
        assert two.take("b")
        one.release("a")
        assert two.take("a")
        assert [(claim.key, claim.lease.name) for claim in two.claims()] == [("a", two.name), ("b", two.name)]
    assert os.listdir(tmp_path / "running") == []


def test_of_two_that_claim_at_the_same_moment_none_computes_beside_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds the cell free, and makes its claim before it looks again."""
    with WorkClaims(tmp_path) as one, WorkClaims(tmp_path) as two:
        touch = Path.touch

        def both(path: Path) -> None:
            touch(path)
            touch(tmp_path / "running" / f"a@{two.name}")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "touch", both)
            assert not one.take("a")
        assert one.where("a") == two.where("a")
        assert not (tmp_path / "running" / f"a@{one.name}").exists()
        two.release("a")
        assert one.take("a")


def test_what_a_killed_process_had_is_free_at_once_on_its_machine(tmp_path: Path) -> None:
    holder = start(HOLDER, tmp_path, "a", "b")
    assert holder.stdout
    assert holder.stdout.readline() == "True\n"
    with WorkClaims(tmp_path) as mine:
        assert not mine.take("a")
        os.kill(holder.pid, signal.SIGSTOP)  # it stands still and yet lives
        assert not mine.take("a")
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped
        assert mine.take("a")
        assert mine.take("b")
        assert {claim.lease.name for claim in mine.claims()} == {mine.name}
        assert len(mine.leases()) == 1
    holder.communicate()


def test_a_process_id_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    with WorkClaims(tmp_path) as other, WorkClaims(tmp_path) as mine:
        assert other.take("a")
        path = tmp_path / "running" / f"{other.name}.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "started": process_start(os.getpid()) - 1})
        )
        assert mine.take("a")


def test_a_process_that_the_system_hides_lives_while_its_lease_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of other users on machines that mount /proc with hidepid."""
    now = [1000.0]
    monkeypatch.setattr(work_claims, "BEAT", 1e6)

    def hidden(pid: int, signal: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with WorkClaims(tmp_path) as other, WorkClaims(tmp_path) as mine:
        assert other.take("a")
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: now[0])
            patch.setattr(work_claims, "process_start", lambda pid: 0)
            patch.setattr(os, "kill", hidden)
            assert not mine.take("a")
            for _ in range(3):
                now[0] += 0.9 * work_claims.SILENT
                other._beat()
                assert not mine.take("a")
            now[0] += 1.1 * work_claims.SILENT
            assert mine.take("a")


def test_of_competing_processes_each_cell_has_one(tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    competitors = [start(COMPETITOR, tmp_path) for _ in range(4)]
    for one in competitors:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    for one in competitors:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in competitors:
        one.communicate(timeout=300)
        assert one.returncode == 0
    assert Counter((tmp_path / "count").read_text().split()) == {str(i): 1 for i in range(300)}


def test_a_process_of_another_machine_is_dead_when_its_lease_no_longer_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    elsewhere(tmp_path, "far")
    (tmp_path / "running" / "a@far").touch()
    with WorkClaims(tmp_path) as mine:
        assert not mine.take("a")
        for beats in (2, 3):
            now[0] += 0.9 * work_claims.SILENT
            elsewhere(tmp_path, "far", beats)
            assert not mine.take("a")
        now[0] += 0.9 * work_claims.SILENT
        assert not mine.take("a")
        now[0] += 0.2 * work_claims.SILENT
        assert mine.take("a")
        assert not (tmp_path / "running" / "far.json").exists()


@pytest.mark.parametrize("jump", [-1e7, 1e7])
def test_a_clock_that_jumps_kills_nobody_and_keeps_nobody_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    with WorkClaims(tmp_path) as one, WorkClaims(tmp_path) as two:
        assert one.take("a")
        for path in (tmp_path / "running").iterdir():
            os.utime(path, (time.time() + jump, time.time() + jump))
        monkeypatch.setattr(time, "time", lambda: 1.7e9 + jump)
        assert not two.take("a")
        elsewhere(tmp_path, "far")
        (tmp_path / "running" / "b@far").touch()
        assert not two.take("b")
        monkeypatch.setattr(work_claims, "SILENT", 0.0)
        assert two.take("b")


def test_a_lease_changes_while_its_process_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_claims, "BEAT", 0.05)
    with WorkClaims(tmp_path) as mine:
        mine.report(cell="tent", seen=10, total=20)
        before = (tmp_path / "running" / f"{mine.name}.json").read_bytes()
        file = tmp_path / "running" / f"{mine.name}.json"
        wait_for(lambda: file.read_bytes() != before)
        wait_for(lambda: "cell" in FolderProcesses(tmp_path).leases()[0].progress)
        (lease,) = FolderProcesses(tmp_path).leases()
        assert lease.progress == {"role": "worker", "cell": "tent", "seen": 10, "total": 20}
        assert (lease.pid, lease.machine) == (os.getpid(), machine())


def test_files_of_the_dead_are_swept_up_and_those_of_the_living_stay(tmp_path: Path) -> None:
    holder = start(HOLDER, tmp_path, "a")
    assert holder.stdout
    assert holder.stdout.readline() == "True\n"
    holder.kill()
    holder.communicate()
    elsewhere(tmp_path, "far")
    (tmp_path / "running" / "b@far").touch()
    (tmp_path / "running" / "c@gone").touch()
    with WorkClaims(tmp_path) as mine:
        assert mine.take("d")
        mine.sweep_up()
        left = set(os.listdir(tmp_path / "running"))
        assert left == {"far.json", "b@far", f"{mine.name}.json", f"d@{mine.name}"}


def test_deaths_at_a_cell_are_counted_and_forgotten_by_the_next_sweep(tmp_path: Path) -> None:
    key, folder = "c" * work_claims.ID, tmp_path / "running"
    with WorkClaims(tmp_path) as mine:
        for death in range(2):
            (folder / f"{key}@dead{death}").touch()
            (folder / f"plan@dead{death}").touch()
            assert mine.take(key)
            assert mine.losses(key) == death + 1
            mine.release(key)
        (folder / f"{key}@killed-on-purpose").touch()
        mine.sweep_up(lost=False)
        assert mine.losses(key) == 2
        mine.forget_losses()
        assert mine.losses(key) == 0
    assert os.listdir(folder) == []


@each("text", ["", "{", "[]", '{"host": 1}', "null", '{"pid": "x"}'])
def test_a_damaged_lease_is_that_of_a_dead_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "running").mkdir()
    (tmp_path / "running" / "broken.json").write_text(text)
    (tmp_path / "running" / "a@broken").touch()
    with WorkClaims(tmp_path) as mine:
        assert mine.take("a")
        assert mine.claims()[0].lease.name == mine.name


@pytest.mark.parametrize(("failures", "lives"), [(0, True), (3, True), (10**6, None)])
def test_a_lease_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, lives: bool | None
) -> None:
    """NFS then says that the file handle is stale."""
    elsewhere(tmp_path, "far")
    reads, read_bytes = Counter[str](), Path.read_bytes

    def stale(path: Path) -> bytes:
        reads[path.name] += 1
        if path.name == "far.json" and reads[path.name] <= failures:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", stale)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    watch = FolderProcesses(tmp_path)
    if lives is None:
        with pytest.raises(UserError, match=r"running cannot be read .*; run the same command again"):
            watch.alive("far")
    else:
        assert watch.alive("far") is lives
    assert reads["far.json"] == min(failures + 1, work_claims.TRIES)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        WorkClaims(tmp_path)
    (tmp_path / "results").mkdir()
    with WorkClaims(tmp_path / "results") as mine:
        shutil.rmtree(tmp_path / "results" / "running")
        with pytest.raises(UserError, match="run the same command again"):
            mine.take("a")


def test_a_folder_that_can_no_longer_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an error of the disk, while a cell runs."""

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with WorkClaims(tmp_path) as mine:
        assert mine.take("a")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            with pytest.raises(UserError, match=r"Read-only file system\); what was stored is kept; run"):
                mine.release("a")
