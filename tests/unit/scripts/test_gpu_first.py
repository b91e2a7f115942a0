"""The script for the first half hour of a GPU, rehearsed on a CPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import gpu_first as script
import gpu_probe
import numpy as np
import pytest
from gpu_probe import METHODS

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.data_fakes import clean_images, make_frost
from tests.unit.scripts.test_real_cifar import save_mosaic
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_npz, save_npz
from ttabench.errors import UserError
from ttabench.store import Store

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def frost(tmp_path: Path) -> None:
    make_frost(tmp_path / "frost")


def test_the_rows_of_the_first_two_networks_come_first() -> None:
    order = list(script.worth(["resnet18", "cct", "cvt"]))
    assert [arch for arch, _ in order] == ["resnet18", "cct", "resnet18", "cct", "cvt"]
    assert script.PAPER in order[0][1].split(",")
    assert "quantile" not in order[0][1].split(",")
    assert "quantile" in order[2][1].split(",")


def test_a_command_has_ended_without_an_error_or_it_has_not(tmp_path: Path) -> None:
    runner = script.Runner(Namespace(seconds=600.0, state=tmp_path))
    for code in (0, 1):
        assert runner.run([sys.executable, "-c", f"raise SystemExit({code})"]) == (code == 0)
        assert runner.failed == (code != 0)


FEW = "source,tent,quantile_paper"


@pytest.mark.usefixtures("forked_workers", "frost")
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds of methods, with such a network
@pytest.mark.parametrize("methods", [FEW, pytest.param(METHODS, marks=pytest.mark.slow)], ids=["few", "all"])
def test_all_steps_are_rehearsed_without_a_gpu(
    methods: str, ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 1/100, on a narrow network; all methods take a minute or two on one core."""

    def here(runner: script.Runner, command: Sequence[str], share: float = 1.0) -> bool:
        if command[1] == str(script.PROBE):
            monkeypatch.setattr(sys, "argv", [*command[1:]])
            return gpu_probe.main() == 0
        done = ttabench(*command[len(script.TTABENCH) :])
        assert done.code == 0, done
        return True

    def call(state: Path, *more: str) -> int:
        monkeypatch.setenv("TTABENCH_CACHE", str(state / "cache"))
        where = ["--state", str(state), "--out", str(out), "--device", "cpu", "--per-gpu", "1"]
        monkeypatch.setattr(sys, "argv", ["script", *images, *where, "--archs", "resnet18_w8", *more])
        return script.main()

    state, out = tmp_path / "state", tmp_path / "out"
    for split, count in (("test", 2_000), ("train", 6_400)):
        save_npz(tmp_path / f"{split}.npz", Labelled(clean_images(count), np.arange(count) // (count // 10)))
    images = [each for split in ("test", "train") for each in (f"--{split}", str(tmp_path / f"{split}.npz"))]
    images += ["--frost", str(tmp_path / "frost"), "--scale", "0.01"]
    monkeypatch.setattr(script.Runner, "run", here)
    monkeypatch.setattr(gpu_probe, "METHODS", methods)
    if methods == FEW:
        monkeypatch.setattr(script, "worth", lambda archs: [(archs[0], FEW)])
    assert call(state, "--steps", f"{','.join(script.STEPS)},weights") == 0
    probed = json.loads((out / "probe.json").read_text())
    assert [row["method"] for row in probed["methods"]] == methods.split(",")
    assert not any("error" in row for row in probed["methods"])
    cells = Store.at(state / "results").latest()
    assert {record.result.status for record in cells.values()} == {"ok"}
    assert {record.result.n_images for record in cells.values()} == {20}
    assert len(cells) == 2 * len(methods.split(","))
    with tarfile.open(out / "results.tgz") as archive:
        assert "results/sweep.json" in archive.getnames()
    monkeypatch.setattr(gpu_probe, "row", lambda *_: pytest.fail("measured again"))
    another = tmp_path / "another machine"
    assert call(another, "--before", str(shutil.copytree(out, tmp_path / "before"))) == 0
    again = Store.at(another / "results").latest()
    assert {name: record.written for name, record in again.items()} == {
        name: record.written for name, record in cells.items()
    }
    trained, brought = (  # each description has the seconds of its training
        {file.name: file.read_bytes() for file in (of / "cache" / "models").rglob("*.json")}
        for of in (state, another)
    )
    assert brought == trained


def test_what_is_packed_in_parts_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PART", 100)
    out, content = tmp_path / "o", {"a.safetensors": os.urandom(1000), "b.json": b"{}"}
    given = Namespace(seconds=600.0, state=tmp_path / "s", out=out, before=out)
    models = given.state / "cache" / "models" / "digits-c"
    models.mkdir(parents=True)
    for name, value in {**content, "c.training.pt": b"half"}.items():
        (models / name).write_bytes(value)
    (given.state / "probe.json").write_text("{}")
    runner = script.Runner(given)
    runner.pack()
    runner.weights()
    assert len([*out.glob("weights.tgz.*")]) > 10
    for _ in range(2):  # what the state has stays
        new = script.Runner(Namespace(seconds=600.0, state=tmp_path / "new", out=out, before=out))
        new.given.state.mkdir(exist_ok=True)
        new.restore()
        found = {file.name: file.read_bytes() for file in (tmp_path / "new").rglob("digits-c/*")}
        assert found == content
        assert (tmp_path / "new" / "probe.json").exists()
        assert not (tmp_path / "new" / "results").exists()
    shutil.rmtree(tmp_path / "new" / "cache")
    for lost in sorted(out.glob("weights.tgz.*"))[::-5]:
        lost.unlink()
        with pytest.raises(UserError, match=r"weights\.tgz in .* is not whole"):
            new.restore()
        assert not (tmp_path / "new" / "cache" / "models").exists()


def test_results_that_come_back_without_their_classifiers_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others are trained then, and the results of these have no use for the cells that came back."""
    state, out = tmp_path / "s", tmp_path / "o"
    for folder in ("results", "cache/models"):
        (state / folder).mkdir(parents=True)
        (state / folder / "a.json").write_text("{}")
    there = script.Runner(Namespace(seconds=600.0, state=state, out=out))
    there.pack()
    for told in (True, False):
        here = script.Runner(Namespace(seconds=600.0, state=tmp_path / f"{told}", out=out, before=out))
        here.given.state.mkdir()
        here.restore()
        assert ("trained again" in capsys.readouterr().out) == told
        there.weights()


@each("problem", ["full", "nothing to pack"])
def test_what_was_packed_stays_until_there_is_something_new(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, out = tmp_path / "s", tmp_path / "o"
    (state / "results").mkdir(parents=True)
    (state / "results" / "a.jsonl").write_text("{}")
    runner = script.Runner(Namespace(seconds=600.0, state=state, out=out))
    runner.pack()
    before = (out / "results.tgz").read_bytes()

    def full(*rest: object, **more: object) -> None:
        raise OSError("No space left on device")

    if problem == "full":
        monkeypatch.setattr(script.tarfile.TarFile, "add", full)
    else:
        shutil.rmtree(state / "results")
    runner.tried(runner.pack)
    assert (out / "results.tgz").read_bytes() == before
    assert [file.name for file in out.iterdir()] == ["results.tgz"]


def test_nothing_starts_after_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--state", str(tmp_path / "s"), "--out", str(tmp_path / "o")]
    images = ["--test", "test.npz", "--train", "train.npz", "--frost", "frost"]  # the data is not made
    monkeypatch.setattr(sys, "argv", ["script", *where, *images, "--seconds", "1"])
    monkeypatch.setattr(script.subprocess, "Popen", lambda command: pytest.fail(f"started {command}"))
    assert script.main() == 0
    assert capsys.readouterr().out.count("not enough time left") == len(script.STEPS)


def test_the_time_includes_the_imports_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--state", str(tmp_path / "s"), "--out", str(tmp_path / "o"), "--datasets", "digits-c"]
    monkeypatch.setattr(sys, "argv", ["script", *where, "--seconds", "600"])
    monkeypatch.setattr(script.subprocess, "Popen", lambda command: pytest.fail(f"started {command}"))
    assert script.main(began=time.monotonic() - 600) == 0
    assert "not enough time left" in capsys.readouterr().out


def test_the_time_begins_before_torch_is_imported() -> None:
    imported = "import sys; sys.path.append(sys.argv[1]); import gpu_first; print(*sys.modules)"
    command = [sys.executable, "-c", imported, str(Path(script.__file__).parent)]
    modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert modules.index("began") < modules.index("torch")


def test_a_command_that_is_stopped_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = script.Runner(Namespace(seconds=600.0, state=tmp_path))
    assert not runner.run([sys.executable, "-c", "import time; time.sleep(600)"], share=0.0)
    assert not runner.failed
    assert "the time of this command is over" in capsys.readouterr().out


def test_a_probe_that_hangs_leaves_time_for_the_steps_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    class Hangs:
        def __init__(self, command: Sequence[str]) -> None:
            pass

        def send_signal(self, signal: int) -> None:
            pass

        def wait(self, timeout: float) -> int:
            waited.append(timeout)
            if len(waited) == 1:
                raise subprocess.TimeoutExpired("command", timeout)
            return 143

    monkeypatch.setattr(script.subprocess, "Popen", Hangs)
    where = ["--state", str(tmp_path / "s"), "--out", str(tmp_path / "o"), "--datasets", "digits-c"]
    monkeypatch.setattr(sys, "argv", ["script", *where, "--steps", "probe", "--seconds", "600"])
    assert script.main() == 0
    assert waited[0] < 300


def test_a_command_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    class Deaf:
        def __init__(self, command: Sequence[str]) -> None:
            pass

        def send_signal(self, number: int) -> None:
            sent.append(signal.Signals(number).name)

        def kill(self) -> None:
            sent.append("SIGKILL")

        def wait(self, timeout: float | None = None) -> int:
            if "SIGKILL" in sent:
                return -9
            assert timeout is not None
            raise subprocess.TimeoutExpired("command", timeout)

    monkeypatch.setattr(script.subprocess, "Popen", Deaf)
    runner = script.Runner(Namespace(seconds=600.0, state=tmp_path))
    assert not runner.run(["a command"])
    assert sent == ["SIGTERM", "SIGKILL"]
    assert not runner.failed


@each(
    ("given", "sentence"),
    [
        (("--datasets", "nosuch"), "unknown dataset 'nosuch'"),
        (("--datasets", "digits-c", "--archs", "resnet81,cvt"), "cvt is not trained; the step train"),
        (("--datasets", "digits-c", "--archs", "resnet81,cvt"), "did you mean"),
    ],
)
def test_a_mistake_is_a_sentence_and_the_exit_code_tells(
    given: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    where = ["--state", str(tmp_path / "s"), "--out", str(tmp_path / "o"), "--recipe", "", "--device", "cpu"]
    monkeypatch.setattr(script.subprocess, "Popen", lambda command: pytest.fail(f"started {command}"))
    monkeypatch.setattr(sys, "argv", ["script", *where, *given, "--steps", "sweep"])
    assert script.main() == 1
    assert sentence in capsys.readouterr().out


@each("problem", [ValueError("no such shape"), OSError("no space left"), UserError("no data.")])
def test_the_steps_after_one_that_fails_go_on(
    problem: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def fail(runner: script.Runner) -> None:
        raise problem

    monkeypatch.setattr(script.Runner, "data", fail)
    monkeypatch.setattr(script.Runner, "pack", fail)
    monkeypatch.setattr(script.Runner, "sweep", lambda runner: done.append("sweep"))
    where = ["--state", str(tmp_path / "s"), "--out", str(tmp_path / "o"), "--datasets", "digits-c"]
    monkeypatch.setattr(sys, "argv", ["script", *where, "--steps", "data,sweep"])
    assert script.main() == 1
    assert done == ["sweep"]
    assert str(problem) in "".join(capfd.readouterr())


def test_a_transformer_runs_in_tf32_on_any_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trained:
        def weights(self) -> Path:
            return tmp_path

    commands: list[list[str]] = []
    monkeypatch.setattr(script, "resolve_trainable", lambda *rest, **more: Trained())
    monkeypatch.setattr(script.Runner, "run", lambda self, command, **_: commands.append([*command]))
    where = ["--state", str(tmp_path / "s"), "--out", str(tmp_path / "o"), "--device", "cuda:1"]
    monkeypatch.setattr(sys, "argv", ["script", *where, "--datasets", "digits-c", "--steps", "sweep"])
    assert script.main() == 0
    found = {command[command.index("--archs") + 1]: "tf32" in command for command in commands}
    assert found == {"resnet18": False, "cct": True}


def test_the_probe_measures_every_method_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "probe.json"
    small = ["--repeats", "1", "--images", "8", "--side", "32", "--device", "cpu"]
    wanted = ["--archs", "resnet18_w8", "--methods", "source,tent,quantile_paper,foa"]
    monkeypatch.setattr(sys, "argv", ["probe", "--out", str(out), *small, *wanted])
    assert gpu_probe.main() == 0
    found = json.loads(out.read_text())
    assert found["ceilings"].keys() == {"copy", "bf16", "tf32", "fp32"}
    rows = {row["method"]: row for row in found["methods"]}
    assert all(rows[name]["ms"] > 0 for name in ("source", "tent", "quantile_paper"))
    assert "ms" not in rows["foa"]
    assert rows["foa"]["n/a"]


def test_an_error_leaves_no_warnings_of_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(gpu_probe.torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(gpu_probe.torch.cuda, "set_sync_debug_mode", modes.append)

    def step() -> None:
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        gpu_probe.on_gpu(step, 1)
    assert modes == ["warn", "default"]


def test_a_probe_that_was_stopped_goes_on_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "state.json", tmp_path / "out" / "probe.json"]
    tried: list[str] = []
    measured: list[int] = []
    ends = {"source": None, "tent": ValueError("no kernel"), "eata": KeyboardInterrupt()}

    def row(arch: str, name: str, *rest: object) -> dict[str, float]:
        tried.append(name)
        if (problem := ends.get(name)) is not None:
            raise problem
        return {"ms": 1.0}

    def probe(*more: str) -> int:
        tried.clear()
        what = ["--archs", "resnet18_w8", "--methods", "source,tent,eata,sar", "--device", "cpu", *more]
        monkeypatch.setattr(sys, "argv", ["probe", "--out", *map(str, files), *what])
        return gpu_probe.main()

    monkeypatch.setattr(gpu_probe, "row", row)
    monkeypatch.setattr(gpu_probe, "ceilings", lambda *_: measured.append(1) or {"copy": 1.0})
    with pytest.raises(KeyboardInterrupt):
        probe()
    assert tried == ["source", "tent", "eata"]
    ends["eata"] = None
    assert probe() == 1
    assert tried == ["eata", "sar", "tent"]
    ends["tent"] = None
    assert probe() == 0
    assert tried == ["tent"]
    assert len(measured) == 1
    assert files[0].read_text() == files[1].read_text()
    rows = {row["method"]: row for row in json.loads(files[0].read_text())["methods"]}
    assert [row["ms"] for row in rows.values()] == 4 * [1.0]
    assert probe("--repeats", "2") == 0
    assert tried == ["source", "tent", "eata", "sar"]


def test_the_step_probe_is_started_again_although_it_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(script.Runner, "run", lambda self, command, **_: commands.append([*command]))
    state, out = tmp_path / "s", tmp_path / "o"
    state.mkdir()
    (state / "probe.json").write_text("{}")
    where = ["--state", str(state), "--out", str(out), "--datasets", "digits-c", "--steps", "probe"]
    monkeypatch.setattr(sys, "argv", ["script", *where])
    assert script.main() == 0
    ((_, name, *options),) = commands
    assert Path(name) == script.PROBE
    assert options[:3] == ["--out", str(state / "probe.json"), str(out / "probe.json")]


CLEAN, TRAIN = clean_images(4), clean_images(8, seed=1)


def carry(folder: Path, *files: str) -> Path:
    """A folder with some of the shards of four test and eight training images."""
    folder.mkdir()
    for file in files:
        if file == "labels.npz":
            np.savez(
                folder / file, test=np.array([0, 0, 1, 1], np.uint8), train=np.arange(8, dtype=np.uint8) % 2
            )
        elif file == "exact.npz":
            np.savez(
                folder / file, test_index=[1], test_images=CLEAN[:1], train_index=[7], train_images=CLEAN[:1]
            )
        else:
            parts = {"test.webp": CLEAN, "train-1.webp": TRAIN[:4], "train-2.webp": TRAIN[4:]}
            save_mosaic(folder / file, parts[file])
    return folder


def test_shards_may_come_in_several_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(script.Runner, "run", lambda self, command, **_: commands.append([*command]))
    state = tmp_path / "s"
    where = ["--state", str(state), "--out", str(tmp_path / "o"), "--frost", "frost", "--steps", "probe,data"]

    def call(shards: Path) -> int:
        commands.clear()
        monkeypatch.setattr(sys, "argv", ["script", *where, "--shards", str(shards)])
        return script.main()

    assert call(carry(tmp_path / "a", "test.webp", "train-2.webp", "labels.npz", "exact.npz")) == 0
    assert "4 train images are in shards that have not come yet" in capsys.readouterr().out
    assert len(commands) == 1  # the probe needs no images
    assert call(carry(tmp_path / "b", "train-1.webp")) == 0
    assert str(state / "test.npz") in commands[1]
    assert str(state / "train.npz") in commands[1]
    test, train = open_npz(state / "test.npz"), open_npz(state / "train.npz")
    assert (test.images == CLEAN[[0, 0, 2, 3]]).all()
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert (train.images == [*TRAIN[:7], CLEAN[0]]).all()
    assert train.labels.tolist() == 4 * [0, 1]
    assert call(tmp_path / "nothing is carried any more") == 0
    assert len(commands) == 2


@each(
    ("files", "sentence"),
    [
        (("test.webp", "train-1.webp", "train-2.webp"), "labels.npz has not come with the shards"),
        (("labels.npz", "test.webp", "broken"), "cannot identify image file"),
    ],
)
def test_shards_that_cannot_be_read_are_a_sentence(
    files: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shards = carry(tmp_path / "shards", *(name for name in files if name != "broken"))
    if "broken" in files:
        (shards / "train-1.webp").write_bytes(b"RIFF")
    where = ["--state", str(tmp_path / "s"), "--out", str(tmp_path / "o"), "--frost", "frost"]
    monkeypatch.setattr(sys, "argv", ["script", *where, "--shards", str(shards), "--steps", "data"])
    monkeypatch.setattr(script.subprocess, "Popen", lambda command: pytest.fail(f"started {command}"))
    assert script.main() == 1
    assert sentence in capsys.readouterr().out
