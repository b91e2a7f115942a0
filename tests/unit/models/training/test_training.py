"""Training and checkpoints: determinism, resuming, identity, damaged files."""

from __future__ import annotations

import copy
import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.cases import each
from tests.unit.models_by_name import find, load, plan, train, trained
from ttabench.data.dataset import Dataset, Labelled
from ttabench.errors import UserError
from ttabench.models.checkpoints import cache as checkpoints
from ttabench.models.checkpoints.weights import content_hash
from ttabench.models.clean_accuracy import clean_accuracy
from ttabench.models.resolve import resolve_model
from ttabench.models.training import recipes
from ttabench.models.training import train as training
from ttabench.models.training.recipes import Recipe, recipe_for
from ttabench.models.training.train import TrainingProgress, learning_rate
from ttabench.run.executors import inline
from ttabench.sweep.plan import find_sources
from ttabench.sweep.progress.training import train_all
from ttabench.sweep.train_sources import TrainJob

TINY = Recipe(
    name="fast", epochs=3, batch_size=16, optimizer="adamw", lr=2e-3, weight_decay=0.05, clip=1.0,
    label_smoothing=0.1, shift=1, flip=True, randaugment=5, mixup=0.5, cutmix=0.5, mix_until=0.5,
    threads=1,
)  # fmt: skip


class Bars(Dataset):
    """Two classes that differ in where a bright bar lies."""

    name = "bars-c"
    num_classes = 2
    image_size = 32
    mean = (0.5, 0.5, 0.5)
    std = (0.25, 0.25, 0.25)
    corruptions = ()

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def _images(self, count: int, seed: int) -> Labelled:
        draw = np.random.default_rng(seed)
        labels = np.arange(count, dtype=np.int64) % 2
        images: NDArray[np.uint8] = draw.integers(0, 60, (count, 32, 32, 3), dtype=np.uint8)
        images[labels == 0, 12:20] += 150
        images[labels == 1, :, 12:20] += 150
        return Labelled(images, labels)

    def fingerprint(self) -> str:
        return f"{self.seed:064d}"

    def train(self) -> Labelled:
        return self._images(48, self.seed)

    def test(self) -> Labelled:
        return self._images(20, self.seed + 1)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _tiny_recipe(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttabench.models.training.weights_identity.recipe_for", lambda *_: TINY)


def with_recipe(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    monkeypatch.setattr(
        "ttabench.models.training.weights_identity.recipe_for", lambda *_: replace(TINY, **changes)
    )  # type: ignore[arg-type]


def stop_in(epoch: int) -> Callable[[TrainingProgress], None]:
    def on_progress(progress: TrainingProgress) -> None:
        if progress.epoch == epoch:
            raise KeyboardInterrupt

    return on_progress


def test_training_learns_and_what_it_returns_is_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    with_recipe(monkeypatch, epochs=6, flip=False, mixup=0.0, cutmix=0.0, randaugment=0)
    bars = Bars()
    assert find("resnet18_w8", bars) is None
    trained = train("resnet18_w8", bars)
    loaded = load("resnet18_w8", bars)
    assert trained.clean_accuracy == clean_accuracy(loaded.classifier, bars.test()) == 100.0
    assert trained.sha256 == loaded.sha256 == content_hash(loaded.classifier)
    assert loaded.note["warning"] == ""
    assert find("resnet18_w8", bars) == loaded.path
    assert not loaded.classifier.training
    assert [point["epoch"] for point in loaded.note["curve"]] == [1, 2, 3, 4, 5, 6]
    assert loaded.recipe["epochs"] == 6


@each("batch_size, threads", [(17, 1), (18, 3), (16, 4)])
def test_threads_divide_the_batch_where_torch_would_overwrite_memory(
    batch_size: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(TINY, batch_size=batch_size, threads=4, epochs=1)
    monkeypatch.setattr("ttabench.models.training.weights_identity.recipe_for", lambda *_: recipe)
    assert train("resnet18_w8", Bars()).note["threads"] == threads
    assert train("resnet20", Bars()).note["threads"] == 4  # it has no such layer


def test_a_network_that_guesses_after_training_is_told_as_a_brought_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_recipe(monkeypatch, lr=0.0, epochs=1)
    monkeypatch.setattr("ttabench.data.catalog.dataset", lambda name: Bars())
    job = TrainJob("resnet18_w8", "bars-c", "cpu")
    with pytest.warns(UserWarning, match=r"^resnet18_w8 on bars-c: clean accuracy is .* of guessing\b"):
        train_all([job], inline.run, 0)
    with pytest.warns(UserWarning, match=r"^resnet18_w8 on bars-c: clean accuracy is .* of guessing\b"):
        find_sources([resolve_model("resnet18_w8", Bars())], "cpu")


# No transformer at each commit: it draws in other layers, but from the same generators.
@pytest.mark.parametrize("arch", ["resnet18_w8", pytest.param("cvt_2_4", marks=pytest.mark.slow)])
def test_training_depends_on_its_seed_and_on_no_global_state(arch: str) -> None:
    bars = Bars()
    torch.manual_seed(1)
    first = train(arch, bars, epochs=1).sha256
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert train(arch, bars, epochs=1).sha256 == first
    load(arch, bars, epochs=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert train(arch, bars, seed=1, epochs=1).sha256 != first


@pytest.mark.parametrize(("arch", "optimizer"), [("resnet18_w8", "sgd"), ("cvt_2_4", "adamw")])
def test_a_killed_training_continues_bit_for_bit(
    arch: str, optimizer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_recipe(monkeypatch, optimizer=optimizer)
    bars = Bars()
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "uninterrupted"))
    expected = train(arch, bars)

    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "killed"))
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        train(arch, bars, on_progress=stop_in(epoch=3))
    assert find(arch, bars) is None
    epochs: list[int] = []
    continued = train(arch, bars, on_progress=lambda progress: epochs.append(progress.epoch))
    assert set(epochs) == {3}
    assert continued.sha256 == expected.sha256
    same = ("epoch", "loss", "train_accuracy")
    assert [[p[k] for k in same] for p in continued.note["curve"]] == [
        [p[k] for k in same] for p in expected.note["curve"]
    ]
    left = {file.suffix for file in (tmp_path / "killed/models/bars-c").iterdir()}
    assert left == {".json", ".md", ".safetensors"}


NO_MEMORY = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


def without_memory(*_: object, **more: object) -> NoReturn:
    raise RuntimeError(NO_MEMORY)


def test_a_training_without_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttabench.data.catalog.dataset", lambda name: Bars())
    monkeypatch.setattr(training, "make_optimizer", without_memory)
    with pytest.raises(UserError) as raised:
        train_all([TrainJob("resnet18_w8", "bars-c", "cpu")], inline.run, 0)
    assert str(raised.value) == (
        f"training resnet18_w8 on bars-c: out of memory ({NO_MEMORY}); --workers 1 trains one classifier at "
        "a time."
    )


def test_a_training_state_that_finds_no_memory_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained("resnet18_w8", Bars())
    state = model.plan.path.with_suffix(".training.pt")
    state.parent.mkdir(parents=True, exist_ok=True)
    state.touch()
    try:
        monkeypatch.setattr(torch, "load", without_memory)
        with pytest.raises(RuntimeError, match="CUBLAS_STATUS_ALLOC_FAILED"):
            train("resnet18_w8", Bars())
    finally:
        state.unlink()


def test_a_damaged_training_state_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = Bars()
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        train("resnet18_w8", bars, on_progress=stop_in(epoch=2))
    state = plan("resnet18_w8", bars).path.with_suffix(".training.pt")
    whole = torch.load(state)
    state.write_bytes(state.read_bytes()[:1000])
    says = r"^the interrupted training in .*\.training\.pt cannot be continued: it is damaged; delete this"
    for damaged in (None, [whole], {**whole, "net": {}}, {**whole, "optimizer": 1}):
        if damaged:
            torch.save(damaged, state)
        with pytest.raises(UserError, match=says):
            train("resnet18_w8", bars)


def test_an_interrupted_training_is_not_continued_in_another_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        train("resnet18_w8", Bars(), on_progress=stop_in(epoch=2))
    with pytest.raises(UserError, match="it is in float32, not bfloat16"):
        train("resnet18_w8", Bars(), precision="bfloat16")


def test_progress_counts_up_to_the_end() -> None:
    seen: list[TrainingProgress] = []
    train("resnet18_w8", Bars(), on_progress=seen.append)
    assert [p.epoch for p in seen if p.step % 3 == 0] == [1, 2, 3]
    assert (seen[-1].step, seen[-1].seconds_left) == (9, 0.0)
    assert all(p.loss > 0 for p in seen)


def test_bfloat16_is_used_where_asked_for_and_recorded() -> None:
    full = train("cvt_2_4", Bars(), epochs=1)
    half = train("cvt_2_4", Bars(), epochs=1, precision="bfloat16")
    assert (full.note["precision"], half.note["precision"]) == ("float32", "bfloat16")
    assert half.sha256 != full.sha256


def test_a_loss_that_is_not_finite_stops_training() -> None:
    bars = Bars()
    bars.std = (0.0, 0.0, 0.0)
    with pytest.raises(UserError, match="loss of resnet18_w8 is nan in epoch 1"):
        train("resnet18_w8", bars)
    assert find("resnet18_w8", bars) is None


# ---- what is found, and what is not


def test_another_recipe_split_seed_or_normalisation_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    train("resnet18_w8", Bars())
    assert find("resnet18_w8", Bars()) is not None
    assert find("resnet18_w8", Bars(), seed=1) is None
    assert find("resnet18_w8", Bars(), epochs=4) is None
    assert find("resnet18_w8", Bars(seed=7)) is None  # other images under the same name
    shifted = Bars()
    shifted.mean = (0.4, 0.5, 0.5)
    assert find("resnet18_w8", shifted) is None
    with_recipe(monkeypatch, lr=1e-3)
    assert find("resnet18_w8", Bars()) is None
    with pytest.raises(UserError, match="has not been trained on bars-c; run ttabench train"):
        load("resnet18_w8", Bars())


def test_the_identity_covers_weights_and_normalisation_but_not_layout() -> None:
    classifier = train("resnet18_w8", Bars()).classifier
    identity = content_hash(classifier)
    assert content_hash(classifier.to(memory_format=torch.contiguous_format)) == identity
    with torch.no_grad():
        classifier.linear.bias[0] = torch.nextafter(classifier.linear.bias[0], torch.tensor(9.0))
    assert (moved := content_hash(classifier)) != identity
    classifier.normalize.mean[0, 0] += 0.01
    assert content_hash(classifier) not in (identity, moved)


# ---- damaged and foreign files


@pytest.fixture(scope="module")
def cache_with_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ttabench.models.training.weights_identity.recipe_for", lambda *_: TINY)
        patch.setenv("TTABENCH_CACHE", str(cache))
        train("resnet18_w8", Bars(), epochs=1)
    return cache


@pytest.fixture
def stored(cache_with_weights: Path, tmp_path: Path) -> Path:
    """Weights in the cache of this test, which were trained once for all."""
    shutil.copytree(cache_with_weights, tmp_path / "cache")
    return load("resnet18_w8", Bars(), epochs=1).path


def load_stored() -> None:
    load("resnet18_w8", Bars(), epochs=1)


def test_truncated_weights_are_refused(stored: Path) -> None:
    stored.write_bytes(stored.read_bytes()[:-100])
    with pytest.raises(UserError, match="truncated or no safetensors file; delete it, and train"):
        load_stored()


def test_one_flipped_bit_is_noticed(stored: Path) -> None:
    data = bytearray(stored.read_bytes())
    data[-1000] ^= 1
    stored.write_bytes(data)
    with pytest.raises(UserError, match="holds other weights"):
        load_stored()


def test_weights_of_another_architecture_are_refused(stored: Path) -> None:
    stored.write_bytes(train("cvt_2_4", Bars(), epochs=1).path.read_bytes())
    with pytest.raises(UserError, match=r"is of another architecture: it lacks conv1\.weight"):
        load_stored()


def test_weights_of_another_width_are_refused(stored: Path) -> None:
    stored.write_bytes(train("resnet18_w16", Bars(), epochs=1).path.read_bytes())
    with pytest.raises(UserError, match=r"conv1\.weight has shape \(16, 3, 3, 3\)"):
        load_stored()


@each("text", ["", "{", "[]", '{"weights": "../x", "sha256": "", "clean_accuracy": 1}'])
def test_a_damaged_description_is_named(stored: Path, text: str) -> None:
    plan("resnet18_w8", Bars(), epochs=1).path.write_text(text)
    with pytest.raises(UserError, match=r"\.json is damaged; delete it and train again"):
        find("resnet18_w8", Bars(), epochs=1)


def test_weights_deleted_by_hand_are_missing_not_damaged(stored: Path) -> None:
    stored.unlink()
    assert find("resnet18_w8", Bars(), epochs=1) is None


def test_a_full_disk_leaves_what_was_there(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file: file.read_bytes() for file in stored.parent.iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        train("resnet18_w8", Bars(), epochs=1, precision="bfloat16")
    assert {file: file.read_bytes() for file in stored.parent.iterdir()} == before


def test_two_trainings_at_once_never_mix_their_files(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second writes everything between the first's weights and the first's description."""
    what = plan("resnet18_w8", Bars(), epochs=1)
    write = checkpoints.write_atomically
    ours, theirs = what.build(), what.build()

    def interrupted(path: Path, data: bytes) -> None:
        if path == what.path:
            monkeypatch.setattr(checkpoints, "write_atomically", write)
            checkpoints.save_trained(what, theirs, facts)
        write(path, data)

    facts = {k: v for k, v in json.loads(what.path.read_text()).items() if k not in ("weights", "sha256")}
    monkeypatch.setattr(checkpoints, "write_atomically", interrupted)
    checkpoints.save_trained(what, ours, facts)
    loaded = load("resnet18_w8", Bars(), epochs=1)
    assert loaded.sha256 == content_hash(ours) != content_hash(theirs)


def test_of_two_trainings_of_the_same_classifier_the_weights_of_the_first_stay(stored: Path) -> None:
    """On a GPU the second weights differ, and the cells of a sweep that has begun would miss the first."""
    what = plan("resnet18_w8", Bars(), epochs=1)
    facts = {k: v for k, v in json.loads(what.path.read_text()).items() if k not in ("weights", "sha256")}
    what.path.unlink()
    theirs = what.build()

    def the_other_ends(progress: TrainingProgress) -> None:
        if not what.path.exists():
            checkpoints.save_trained(what, theirs, facts)

    assert train("resnet18_w8", Bars(), epochs=1, on_progress=the_other_ends).sha256 == content_hash(theirs)
    assert train("resnet18_w8", Bars(), epochs=1).sha256 != content_hash(theirs)  # begun later: trained again


def test_a_training_is_stored_where_the_weights_before_it_were_deleted_meanwhile(stored: Path) -> None:
    described = plan("resnet18_w8", Bars(), epochs=1).path
    train("resnet18_w8", Bars(), epochs=1, on_progress=lambda _: described.unlink(missing_ok=True))
    assert described.exists()


@pytest.mark.filterwarnings("ignore:.* of guessing")
def test_a_job_does_not_train_what_another_process_has_just_trained(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_again: list[str] = []
    monkeypatch.setattr("ttabench.data.catalog.dataset", lambda name: Bars())
    monkeypatch.setattr(training, "train", lambda plan, *_, **__: trained_again.append(plan.path.name))
    job = TrainJob("resnet18_w8", "bars-c", "cpu", epochs=1)
    train_all([job], inline.run, 0)
    assert trained_again == []
    train_all([replace(job, force=True)], inline.run, 0)
    assert trained_again == [plan("resnet18_w8", Bars(), epochs=1).path.name]


# ---- for people


def test_card_and_curve_tell_what_was_trained(stored: Path) -> None:
    loaded = load("resnet18_w8", Bars(), epochs=1)
    card = plan("resnet18_w8", Bars(), epochs=1).path.with_suffix(".md").read_text()
    assert loaded.sha256 in card
    assert f"{loaded.clean_accuracy:.2f} % of 20 test images" in card
    assert trained("resnet18_w8", Bars(), epochs=1).plot_learning_curve().read_bytes().startswith(b"\x89PNG")


def test_a_card_states_the_least_steps_where_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = replace(TINY, least_steps=9)
    monkeypatch.setattr("ttabench.models.training.weights_identity.recipe_for", lambda *_: recipe)
    for epochs, stated in ((0, True), (1, False)):
        made = plan("resnet18_w8", Bars(), epochs=epochs)
        train("resnet18_w8", Bars(), epochs=epochs)
        assert ("least_steps 9" in made.path.with_suffix(".md").read_text()) == stated
        assert made.digest == replace(made, recipe=replace(made.recipe, least_steps=9)).digest


# ---- schedules and recipes


def test_learning_rate_rises_to_its_peak_and_falls_to_its_end() -> None:
    recipe = replace(TINY, lr=1.0, final_lr=0.1, warmup=0.25)
    rates = [learning_rate(recipe, step, 100) for step in range(100)]
    assert max(rates) == rates[25] == 1.0
    assert rates[:26] == sorted(rates[:26])
    assert rates[25:] == sorted(rates[25:], reverse=True)
    assert 0 < rates[0] < 0.05
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)


def test_a_recipe_is_identified_by_what_it_sets() -> None:
    assert "cutmix" not in replace(TINY, cutmix=0.0).identity()
    assert TINY.identity()["cutmix"] == 0.5
    assert TINY.identity()["name"] == "fast"


def test_every_architecture_has_its_recipes() -> None:
    from ttabench.models.architectures.arch_names import MEMBERS

    for member in MEMBERS.values():
        for dataset in ("digits-c", "cifar10-c", "cifar100-c", "tinyimagenet-c"):
            assert recipe_for(member, dataset).name == recipes.FAST
        assert recipe_for(member, "cifar10-c", "paper").epochs > 100
        assert not recipe_for(member, "digits-c").flip  # a mirrored 2 is no 2
    with pytest.raises(UserError, match="did you mean 'paper'"):
        recipe_for(MEMBERS["resnet20"], "cifar10-c", "papre")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["resnet18", "cct", "cvt", "vit_lite"])
def test_digits_are_learnt_to_95_percent(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttabench.data.digits import Digits

    monkeypatch.setattr("ttabench.models.training.weights_identity.recipe_for", recipe_for)
    assert train(arch, Digits()).clean_accuracy >= 95.0


def test_where_torch_cannot_compile_training_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[torch.Tensor] = []

    def compiled(x: torch.Tensor) -> torch.Tensor:
        tried.append(x)
        raise RuntimeError("Failed to find C compiler.\nmore")

    monkeypatch.setattr(torch, "compile", lambda net: compiled)
    net = torch.nn.Linear(2, 2)
    forward, x = training.Compiled(net), torch.ones(1, 2)
    with pytest.warns(
        UserWarning, match=r"torch\.compile does not work here \(Failed to find C compiler\.\);"
    ):
        assert torch.equal(forward.attempt(lambda: forward(x)), net(x))
    assert torch.equal(forward.attempt(lambda: forward(x)), net(x))
    assert len(tried) == 1


def test_where_the_compiler_fails_backwards_the_first_step_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def fails(*_: object) -> None:
        raise RuntimeError("no kernel")

    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=fails
    )  # fmt: skip
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda net: real(net, backend=backend))
    x = torch.arange(6.0).view(3, 2)
    plain = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    net = copy.deepcopy(plain)
    forward = training.Compiled(net)

    def step() -> torch.Tensor:
        net.zero_grad()
        loss = forward(x).square().sum()
        torch.autograd.backward(loss)
        return loss

    with pytest.warns(UserWarning, match=r"torch\.compile does not work here \(.*no kernel"):
        forward.attempt(step)
    torch.autograd.backward(plain(x).square().sum())
    for ours, expected in zip(net.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert expected.grad is not None
        assert torch.equal(ours.grad, expected.grad)
    for mine, other in zip(net.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, other)


def test_what_a_compiled_network_raises_later_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 5:
            raise RuntimeError("out of memory")
        return 2 * x

    monkeypatch.setattr(torch, "compile", lambda net: compiled)
    forward = training.Compiled(torch.nn.Identity())
    assert forward.attempt(lambda: forward(torch.ones(1))).item() == 2
    with pytest.raises(RuntimeError, match="out of memory"):
        forward.attempt(lambda: forward(torch.full((1,), 6.0)))
