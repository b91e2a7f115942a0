"""Our adapters against recorded outputs of the official implementations, and the tool that says so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replay_golden
import torch
from replay import Folder, judge
from replay.each_commit import BEGINNINGS, WHOLE, beginnings, methods, whole
from replay.nets import build
from replay.registry import REPLAYS, Entry, Replayed
from replay.replay_teacher import recorded_masks
from replay.trace import Trace
from replay.verdict import departs

from ttabench.errors import UserError
from ttabench.registry import method_names
from ttabench_methods.lame import LAME

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
TRACES = {"golden": 69, "golden-more": 40}  # in each folder at least
CASES = [
    (folder, file.stem) for folder in TRACES for file in sorted((SHARED / folder / "traces").glob("*.npz"))
]


@pytest.fixture(scope="module")
def folders() -> dict[str, Folder]:
    return {name: Folder(SHARED / name) for name in {folder for folder, _ in CASES}}


@pytest.mark.parametrize("folder", TRACES)
def test_the_traces_are_there(folder: str) -> None:
    """Below, one test per trace: without this one, an empty folder would pass."""
    if not (SHARED / folder).is_dir():
        pytest.skip(f"the golden traces in ../shared/{folder} are not there")
    assert sum(case[0] == folder for case in CASES) >= TRACES[folder]


def test_the_readme_names_the_methods_without_recordings() -> None:
    names = {"bn_stats": "norm", "tca": "lineartca"}  # of traces
    prefixes = {name.partition("_")[0] for name in REPLAYS}
    without = {
        name
        for name in method_names()
        if names.get(name, name) not in REPLAYS and name not in prefixes and name not in ("source", "stack")
    }
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    sentence = readme.split("Methods without recordings: ")[1].split(".")[0].lower()
    said = set(re.split(", | and ", sentence.replace("quantile matching", "quantile")))
    assert said == {"quantile" if name.startswith("quantile") else name for name in without}


@pytest.mark.parametrize(("folder", "name"), whole(CASES))
def test_parity(folders: dict[str, Folder], folder: str, name: str) -> None:
    verdict = judge(folders[folder].trace(name), float32=name not in WHOLE)
    assert verdict.status == "ok", str(verdict)
    assert not verdict.norms > 1e-6, str(verdict)  # NaN where a trace has no parameters
    assert not verdict.decisions


@pytest.mark.parametrize(("folder", "name"), beginnings(CASES))
def test_the_beginning_is_the_traces(folders: dict[str, Folder], folder: str, name: str) -> None:
    trace = folders[folder].trace(name)
    trace.idx = trace.idx[: BEGINNINGS[name]]
    assert not departs(trace)


@pytest.mark.skipif(not CASES, reason="the golden traces in ../shared are not there")
def test_every_method_is_replayed_at_each_commit() -> None:
    assert methods(name for _, name in CASES) <= methods([*WHOLE, *BEGINNINGS])


# ---- the tool, on a folder made here: nets of other sizes, a stream of other length


def settings(**changes: Any) -> dict[str, Any]:
    made = {
        "method": "tent", "model": "wide", "batch_size": 7, "lr": 0.01, "optimizer": "SGD", "momentum": 0.9,
        "steps": 1, "episodic": False,
    }  # fmt: skip
    return {**made, **changes}


def convnet_weights(norm: str, widths: tuple[int, ...], classes: int) -> dict[str, np.ndarray]:
    draw = np.random.Generator(np.random.PCG64(0))

    def normal(*shape: int) -> np.ndarray:
        return draw.normal(0, 0.3, shape).astype(np.float32)

    weights: dict[str, np.ndarray] = {}
    for i, (narrow, wide) in enumerate(zip((3, *widths), widths, strict=False), 1):
        weights[f"conv{i}.weight"] = normal(wide, narrow, 3, 3)
        weights |= {f"{norm}{i}.weight": 1 + normal(wide), f"{norm}{i}.bias": normal(wide)}
        if norm == "bn":
            weights[f"bn{i}.running_mean"] = normal(wide)
            weights[f"bn{i}.running_var"] = 1 + normal(wide) ** 2
            weights[f"bn{i}.num_batches_tracked"] = np.array(5)
    return weights | {"fc.weight": normal(classes, widths[-1]), "fc.bias": normal(classes)}


def plain_tent(weights: dict[str, np.ndarray], x: torch.Tensor, meta: dict[str, Any]) -> np.ndarray:
    """TENT in a few lines of plain torch, on a net in training mode, which has nothing but batch norm."""
    net = build({k: torch.from_numpy(v) for k, v in weights.items()}, x.dtype).train()
    affine = [p for name, p in net.named_parameters() if ".bn" in name]
    optimizer = torch.optim.SGD(affine, meta["lr"], momentum=meta["momentum"])
    out = []
    for batch in x.split(meta["batch_size"]):
        logits = net(batch)
        optimizer.zero_grad()
        torch.distributions.Categorical(logits=logits).entropy().mean().backward()
        optimizer.step()
        out.append(logits.detach())
    return torch.cat(out).numpy()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One TENT trace, made without our adapters."""
    weights = convnet_weights("bn", (6, 10), classes=4)
    pixels = np.random.Generator(np.random.PCG64(1)).integers(0, 256, (30, 3, 16, 16), dtype=np.uint8)
    idx = np.arange(29, 5, -1)  # 24 images: three batches of 7 and one of 3
    x = torch.from_numpy(pixels[idx.copy()]).float() / 255
    meta = settings()
    (tmp_path / "traces").mkdir()
    np.savez(tmp_path / "models.npz", **{f"wide/{name}": value for name, value in weights.items()})
    np.savez(tmp_path / "inputs.npz", x=pixels, x_fisher=pixels[:4])
    write(
        tmp_path, "tent-wide-A", meta,
        idx=idx, logits=plain_tent(weights, x, meta), f64_logits=plain_tent(weights, x.double(), meta),
        probe_maxdiff_per_batch=np.full(4, 1e-4, np.float32),
    )  # fmt: skip
    return tmp_path


def write(folder: Path, name: str, meta: dict[str, Any], **arrays: np.ndarray) -> None:
    np.savez(folder / "traces" / f"{name}.npz", meta_json=np.array(json.dumps(meta)), **arrays)


def rewrite(folder: Path, name: str = "tent-wide-A", **changes: Any) -> None:
    """The trace again under this name: changed settings, or arrays."""
    with np.load(folder / "traces" / "tent-wide-A.npz") as stored:
        arrays = {key: stored[key] for key in stored.files}
    meta = json.loads(str(arrays.pop("meta_json")))
    new = {key: changes.pop(key) for key in list(changes) if isinstance(changes[key], np.ndarray)}
    write(folder, name, {**meta, **changes}, **{**arrays, **new})


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["replay_golden.py", *arguments])
    return replay_golden.main()


def test_another_folder_is_ok(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(folder)) == 0
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith("tent-wide-A")
    assert line.endswith("f32 bound  4.0e-04  ok")
    assert summary == "ok=1 FAIL=0 unsupported=0"


@pytest.mark.parametrize(
    "change", [{"lr": 0.011}, {"momentum": 0.8}, {"steps": 2}, {"episodic": True}, {"batch_size": 8},
               {"optimizer": "Adam"}, {"nesterov": True}, {"weight_decay": 0.01}],
)  # fmt: skip
def test_every_setting_is_read(folder: Path, change: dict[str, Any]) -> None:
    """A trace made with another setting fails: no setting is taken for granted."""
    rewrite(folder, **change)
    verdict = judge(Folder(folder).trace("tent-wide-A"), float32=False)
    assert verdict.status == "FAIL"
    assert verdict.float64 > 1e-6


def test_failures_are_told_and_do_not_stop_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(folder / "traces" / "tent-wide-A.npz") as stored:
        logits = stored["f64_logits"]
    off = logits.copy()
    off[-1, -1] += 2e-6
    rewrite(folder, "tent-wide-B", f64_logits=off)
    rewrite(folder, "tent-wide-C", f64_logits=np.full_like(logits, np.nan))
    rewrite(folder, "tent-wide-D", f64_logits=logits[:-1])
    rewrite(folder, "tent-wide-E", model="absent")
    rewrite(folder, "novel-wide-A")
    rewrite(folder, "sottarepo_novel-wide-A")
    np.savez(folder / "traces" / "tent-wide-F.npz", idx=np.array([{}], dtype=object))
    (folder / "traces" / "tent-wide-G.npz").write_text("not a zip file")
    assert run(monkeypatch, str(folder)) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    output = {line.split()[0]: line for line in lines}
    assert "logits differ by 2.0e-06, more than 1e-06" in output["tent-wide-B"]
    assert all("FAIL" in output[f"tent-wide-{letter}"] for letter in "BCDEFG")
    assert "allow_pickle" in output["tent-wide-F"]
    assert "FAIL (no replay for a method called 'novel')" in output["novel-wide-A"]
    assert "unsupported (no replay" in output["sottarepo_novel-wide-A"]
    assert output["tent-wide-A"].endswith("ok")
    assert summary == "ok=1 FAIL=7 unsupported=1"


def test_a_wrong_number_of_steps_fails_though_the_probabilities_are_close(folder: Path) -> None:
    """One step more or less of LAME can stay under 1e-6."""
    trace = Folder(folder).trace("tent-wide-A")
    method = LAME(trace.classifier(torch.float64), LAME.Config(affinity="linear"))
    method.prepare()
    with torch.no_grad():
        runs = [method.iterate(x) for x in trace.batches(torch.float64)]
    result = torch.cat([log_z for log_z, _ in runs]).exp().numpy()
    meta = {"method": "lame", "affinity": "linear", "knn": 5, "max_steps": 100, "bound_lambda": 1}
    for more, status in ((0, "ok"), (1, "FAIL")):
        steps = np.array([steps + more for _, steps in runs])
        rewrite(folder, "lame-wide-A", f64_logits=result, f64_iterations=steps, iterations=steps, **meta)
        verdict = judge(Folder(folder).trace("lame-wide-A"), float32=False)
        assert verdict.status == status
        assert ("iterations differ" in verdict.reason) is bool(more)


def test_a_float32_run_that_stops_decides_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, rounding may part from the recorded draws."""
    entry = REPLAYS["tent"]

    def stops(trace: Trace, dtype: torch.dtype) -> Replayed:
        if dtype == torch.float32:
            raise ValueError("left the trace")
        return entry.replay(trace, dtype)

    monkeypatch.setitem(REPLAYS, "tent", Entry(stops))
    verdict = judge(Folder(folder).trace("tent-wide-A"))
    assert verdict.status == "ok"
    assert verdict.reason == "float32 stopped: ValueError: left the trace"


def test_a_memory_that_was_never_full_needs_no_draws(folder: Path) -> None:
    """No image is as certain as 1, so that nothing is learned: the groups of the source net remain."""
    trace = Folder(folder).trace("tent-wide-A")
    net = trace.classifier(torch.float64)
    with torch.no_grad():
        logits = torch.cat([net(x) for x in trace.batches(torch.float64)])[:21].numpy()
    rewrite(
        folder, "sotta-wide-A", f64_logits=logits, optimizer="SAM(Adam)", update_every_x=7, memory_size=5,
        high_threshold=1.0, rho=0.05, bn_momentum=0.2, epoch=1, loader_batch_size=4,
    )  # fmt: skip
    verdict = judge(Folder(folder).trace("sotta-wide-A"))
    assert verdict.status == "ok", str(verdict)


def test_recorded_masks_may_come_in_any_order(folder: Path) -> None:
    draw = np.random.Generator(np.random.PCG64(2))
    masks = {"b": draw.random((3, 5)) < 0.5, "a": draw.random((3, 6)) < 0.5}  # of three batches
    bits = np.concatenate([masks[name][batch] for batch in range(3) for name in masks])
    rewrite(
        folder, "cotta-wide-A", mask_order=np.array(list(masks)),
        mask_bits=np.packbits(bits), mask_total=np.array(len(bits)),
    )  # fmt: skip
    result = recorded_masks(Folder(folder).trace("cotta-wide-A"), {"net.a": 6, "net.b": 5})
    for name, drawn in masks.items():
        assert np.array_equal(list(result[f"net.{name}"]), drawn)


def test_t3a_keeps_all_supports_where_filter_k_is_negative(folder: Path) -> None:
    rewrite(folder, "t3a-wide-A", filter_K=-1)
    trace = Folder(folder).trace("t3a-wide-A")
    run = REPLAYS["t3a"].replay(trace, torch.float64)
    assert sum(run.decisions["support_count"][-1]) == len(trace.idx) + 4  # and one row of W per class


@pytest.mark.skipif(not CASES, reason="the golden traces in ../shared are not there")
def test_the_optimiser_settings_of_sotta_repositorys_rotta_are_read() -> None:
    trace = Folder(SHARED / "golden").trace("sottarepo_rotta-bn_cnn-A")
    trace.meta["beta1"] = 0.5
    assert departs(trace)


def test_a_folder_without_traces_is_the_callers_mistake(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(folder / "nowhere")) == 2
    assert run(monkeypatch, str(folder), "--only", "eata") == 2
    (folder / "models.npz").unlink()
    assert run(monkeypatch, str(folder)) == 2
    out, err = capsys.readouterr()
    assert not out
    absent, unmatched, half = err.splitlines()  # one sentence each
    assert "holds no golden traces" in absent
    assert "'eata…'" in unmatched
    assert "no models.npz" in half
    with pytest.raises(UserError, match=r"models\.npz"):
        Folder(folder)


def test_nets_take_their_sizes_from_the_weights() -> None:
    weights = {k: torch.from_numpy(v) for k, v in convnet_weights("gn", (4, 8, 12, 16), 7).items()}
    assert build(weights, torch.float64)(torch.rand(2, 3, 16, 16).double()).shape == (2, 7)
    with pytest.raises(ValueError, match="no known net"):
        build({"body.weight": torch.zeros(1)}, torch.float32)


def test_the_attention_of_the_vit_is_torchs() -> None:
    from replay.nets import Attention

    ours, x = Attention(24, 4), torch.randn(2, 9, 24)
    reference = torch.nn.MultiheadAttention(24, 4, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(ours.qkv.weight)
        reference.in_proj_bias.copy_(ours.qkv.bias)
    reference.out_proj = ours.proj  # type: ignore[assignment]
    torch.testing.assert_close(ours(x), reference(x, x, x, need_weights=False)[0])
    assert ours(x[:0]).shape == (0, 9, 24)  # no image passes a filter
