"""Summaries of source data on disk: the same bits with and without it, computed once, never a wrong one."""

from __future__ import annotations

import copy
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.measure import source_statistics
from ttabench.measure.source_access import SourceImages
from ttabench.method import Needs
from ttabench.nn import use_batch_statistics
from ttabench.run import summary_cache as source_cache
from ttabench.run.summary_cache import SourceCache

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), np.uint8)
FEATURES = Needs(source_data="features")


def network(seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(5, 3),
    )
    net[1].running_mean += torch.rand(5)
    return Classifier(net, last="5").eval()


def provider(folder: Path | None, identity: str = "data") -> SourceImages:
    cache = None if folder is None else SourceCache(folder, (identity,))
    return SourceImages(lambda: PIXELS, FEATURES, cache=cache)


REQUESTS: dict[str, Callable[[SourceImages, Classifier], Any]] = {
    "features": lambda s, c: s.features(c),
    "some features": lambda s, c: s.features(c, 20),
    "norm statistics": lambda s, c: s.norm_statistics(c),
    "per location": lambda s, c: s.norm_statistics(c, per_location=True),
    "quantiles": lambda s, c: s.quantiles(c, (0.1, 0.5)),
    "gaussian": lambda s, c: s.gaussian(c),
    "class gaussians": lambda s, c: s.class_gaussians(c),
    "entropies": lambda s, c: s.entropies(c, temperature=2.0),
}


def leaves(value: Any) -> list[Any]:
    if isinstance(value, Tensor):
        return [(value.shape, value.stride(), value.dtype, value.contiguous().numpy().tobytes())]
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return [(key, leaf) for key, part in parts for leaf in leaves(part)]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the summaries that were computed, in order."""
    names: list[str] = []
    for name in ("features", "norm_statistics", "quantiles", "gaussian", "class_gaussians", "entropies"):
        usual = getattr(source_statistics, name)

        def noted(*given: Any, name: str = name, usual: Any = usual) -> Any:
            names.append(name)
            return usual(*given)

        monkeypatch.setattr(source_statistics, name, noted)
    return names


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_the_bits_are_the_same_without_with_and_from_the_cache(
    request_: Callable[[SourceImages, Classifier], Any], tmp_path: Path, computed: list[str]
) -> None:
    plain = request_(provider(None), network())
    first = request_(provider(tmp_path), network())
    assert len(computed) == 2
    again = request_(provider(tmp_path), network())
    assert len(computed) == 2
    assert leaves(plain) == leaves(first) == leaves(again)


def test_all_requests_share_a_folder(tmp_path: Path, computed: list[str]) -> None:
    for _ in range(2):
        for request_ in REQUESTS.values():
            request_(provider(tmp_path), network())
    assert len(computed) == len(REQUESTS)
    assert len(list(tmp_path.glob("*.summary"))) == len(REQUESTS)
    assert not list(tmp_path.glob("*.lock"))


def changed(what: str) -> Classifier:
    model = network()
    if what == "weights":
        with torch.no_grad():
            model.linear.weight[0, 0] += 1e-7
    elif what == "buffers":
        model.net[1].num_batches_tracked += 1
    elif what == "statistics":
        use_batch_statistics(model)
    elif what == "settings":
        model.net[1].eps = 0.1
    return model


@pytest.mark.parametrize("what", ["weights", "buffers", "statistics", "settings"])
def test_another_classifier_gets_its_own(what: str, tmp_path: Path, computed: list[str]) -> None:
    provider(tmp_path).entropies(network())
    model = changed(what)
    value = provider(tmp_path).entropies(copy.deepcopy(model))
    assert len(computed) == 2
    assert leaves(value) == leaves(provider(None).entropies(model))


class Times(nn.Module):
    """A layer whose factor stands neither among its weights nor in its text."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def test_two_networks_that_differ_only_in_what_they_compute_get_their_own(tmp_path: Path) -> None:
    for factor in (1.0, 2.0):
        model = network()
        model.net[2] = Times(factor)
        assert leaves(provider(tmp_path).features(model)) == leaves(provider(None).features(model))


@pytest.mark.parametrize("what", ["identity", "versions", "processor", "threads", "mkldnn", "code"])
def test_other_data_libraries_devices_and_code_get_their_own(
    what: str, tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider(tmp_path).gaussian(network())
    if what == "versions":
        monkeypatch.setattr(source_cache, "versions", lambda: {"torch": "0"})
    elif what == "processor":
        monkeypatch.setattr(source_cache, "processor", lambda device: "another")
    elif what == "threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    elif what == "mkldnn":
        monkeypatch.setattr(source_cache, "_arithmetic", lambda device: ["without"])
    elif what == "code":
        monkeypatch.setattr(source_cache, "module_hash", lambda name: "other")
    provider(tmp_path, "other" if what == "identity" else "data").gaussian(network())
    assert len(computed) == 2


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_computed_again_with_a_warning(
    damage: str, tmp_path: Path, computed: list[str]
) -> None:
    right = leaves(provider(tmp_path).features(network()))
    (file,) = tmp_path.glob("*.summary")
    data = file.read_bytes()
    for place in (0, 20, len(data) // 2, len(data) - 1) if damage == "flip" else (0,):
        broken = {"flip": bytearray(data), "cut": data[:-50], "empty": b""}[damage]
        if isinstance(broken, bytearray):
            broken[place] ^= 1
        file.write_bytes(broken)
        with pytest.warns(UserWarning, match="damaged"):
            assert leaves(provider(tmp_path).features(network())) == right
        with warnings.catch_warnings(action="error"):
            assert leaves(provider(tmp_path).features(network())) == right


def test_what_a_caller_does_with_a_summary_does_not_reach_the_cache(tmp_path: Path) -> None:
    right = leaves(provider(tmp_path).features(network()))
    provider(tmp_path).features(network()).zero_()
    one = provider(tmp_path)
    one.features(network()).zero_()
    assert leaves(one.features(network())) == leaves(provider(tmp_path).features(network())) == right


def test_the_least_recently_used_files_are_deleted_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[str]
) -> None:
    provider(tmp_path).features(network())
    (old,) = tmp_path.glob("*.summary")
    provider(tmp_path).gaussian(network())
    (other,) = set(tmp_path.glob("*.summary")) - {old}
    os.utime(other, (1, 1))
    size = sum(file.stat().st_size for file in (old, other))
    monkeypatch.setenv("TTABENCH_SOURCE_GB", str(4 * size / 1e9))
    for seed in range(1, 6):
        provider(tmp_path).features(network(seed))
    left = set(tmp_path.glob("*.summary"))
    assert sum(file.stat().st_size for file in left) <= 4 * size
    assert other not in left


def test_a_summary_that_was_read_lately_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[str]
) -> None:
    files: list[Path] = []
    for seed in range(5):
        provider(tmp_path).features(network(seed))
        (new,) = set(tmp_path.glob("*.summary")) - set(files)
        os.utime(new, (1 + seed, 1 + seed))
        files.append(new)
    provider(tmp_path).features(network(0))  # the oldest
    monkeypatch.setenv("TTABENCH_SOURCE_GB", str(sum(file.stat().st_size for file in files) / 1e9))
    provider(tmp_path).features(network(5))
    assert len(computed) == 6
    assert [file.exists() for file in files] == [True, False, True, True, True]


def test_no_room_at_all_turns_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTABENCH_SOURCE_GB", "0")
    provider(tmp_path / "new").features(network())
    assert not (tmp_path / "new").exists()
    monkeypatch.setenv("TTABENCH_SOURCE_GB", "much")
    with pytest.raises(UserError, match="expected a number of gigabytes"):
        provider(tmp_path)


def test_a_folder_that_cannot_be_written_is_only_warned_of(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with pytest.warns(UserWarning, match="cannot be written"):
        value = provider(blocked).features(network())
    assert leaves(value) == leaves(provider(None).features(network()))


def slow_worker(folder: Path, started: Any, computed: Any) -> None:
    torch.set_num_threads(1)
    started.wait()

    def compute() -> Tensor:
        with computed.get_lock():
            computed.value += 1
        time.sleep(0.5)
        return torch.arange(3)

    value = SourceCache(folder, ("x",)).get(("slow",), network(), torch.zeros(1), "cpu", compute)
    assert value.tolist() == [0, 1, 2]


def test_of_many_workers_one_computes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    started, computed = context.Barrier(4), context.Value("i", 0)
    workers = [context.Process(target=slow_worker, args=(tmp_path, started, computed)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert computed.value == 1
