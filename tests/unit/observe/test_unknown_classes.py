"""Unknown classes: the figures are those of scikit-learn, and every foreign image of a stream counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor, nn

from tests.cases import each
from tests.unit.conftest import Run
from ttabench.cell.protocol import Protocol
from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.measure import scoring
from ttabench.measure.foreign_positions import foreign_of, foreign_positions
from ttabench.measure.image_stream import put_in_order
from ttabench.measure.streams.checkpoint import Checkpoint
from ttabench.measure.streams.images import Parts
from ttabench.method import Method
from ttabench.observe.unknown_classes import CERTAINTIES, FIGURES, Certainties, figures, watched
from ttabench.store import Store, load_frame
from ttabench.store.columns import UNKNOWN

ON = ("--archs", "resnet18", "--corruptions", "fog", "--limit", "30", "--batch-size", "16", "--workers", "0")


def drawn(known: int, foreign: int, seed: int, steps: int = 0) -> tuple[Any, Any, Any]:
    """Certainties of test and foreign images, and which are right; on `steps` values only, so with ties."""
    draw = np.random.default_rng(seed)
    a, b = draw.normal(1, 1, known), draw.normal(0, 1, foreign)
    if steps:
        a, b = (np.round(values * steps) / steps for values in (a, b))
    return a.astype(np.float32), b.astype(np.float32), draw.random(known) < 0.7


@each("steps", [0, 1, 4], ids=["no ties", "many ties", "ties"])
@each(("known", "foreign"), [(1, 1), (1, 7), (20, 3), (19, 40), (100, 100), (41, 1)])
def test_the_figures_are_those_of_scikit_learn(known: int, foreign: int, steps: int) -> None:
    for seed in range(5):
        a, b, right = drawn(known, foreign, seed, steps)
        truth, score = np.repeat([1, 0], [known, foreign]), np.concatenate([a, b])
        found = figures(a, b, right)
        assert found["auroc"] == pytest.approx(100 * roc_auc_score(truth, score), abs=1e-4)
        false, true, thresholds = roc_curve(truth, score, drop_intermediate=False)
        at = int(np.argmax(true >= 0.95 - 1e-12))
        assert found["fpr95"] == pytest.approx(100 * false[at], abs=1e-4)
        kept, rejected = (right & (a >= thresholds[at])).mean(), 1 - false[at]
        h = 2 * kept * rejected / (kept + rejected) if kept and rejected else 0
        assert found["h"] == pytest.approx(100 * h, abs=1e-4)


def test_one_value_for_all_images_tells_nothing() -> None:
    same = np.zeros(10, np.float32)
    assert figures(same, same, np.ones(10, bool)) == {"auroc": 50.0, "fpr95": 100.0, "h": 0.0}


def test_the_store_knows_the_figures_without_torch() -> None:
    assert tuple(f"{figure}_{name}" for name in CERTAINTIES for figure in FIGURES) == UNKNOWN


class Own(Method[Any]):
    """It adapts by calling its own predict, and its own certainty is its first logit."""

    name = "own"

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def predict(self, x: Tensor) -> Tensor:
        return x

    def known_score(self, logits: Tensor) -> Tensor:
        return logits[:, 0]

    def __init__(self) -> None:
        self.counts = {}  # type: ignore[assignment]


@pytest.mark.parametrize("classes", [(), (1, 3)])
def test_certainties_are_softmax_energy_and_the_methods_own(classes: tuple[int, ...]) -> None:
    draw = np.random.default_rng(0)
    logits = torch.from_numpy(draw.normal(size=(50, 4)) * 3).float()
    foreign, right = draw.random(50) < 0.4, draw.random(50) < 0.5
    right = right[~foreign]
    method, made = Own(), Certainties(50, classes)
    with watched(method, made.note):
        assert type(method) is not Own
        for batch in logits.split(16):
            method.adapt(batch)  # calls predict: each batch counts once
    assert type(method) is Own
    found = made.figures(foreign, right)
    z = logits[:, list(classes)] if classes else logits
    values = {"softmax": z.softmax(1).amax(1), "energy": z.logsumexp(1), "own": logits[:, 0]}
    assert found["images"] == foreign.sum()
    for name, value in values.items():
        assert found[name]["auroc"] == pytest.approx(100 * roc_auc_score(~foreign, value.numpy()), abs=1e-4)


def test_a_method_without_an_own_score_has_none() -> None:
    class Without(Own):
        known_score = Method.known_score

    method, made = Without(), Certainties(4)
    with watched(method, made.note):
        method.predict(torch.randn(4, 3))
    assert made.figures(np.array([True, False, False, True]), np.ones(2, bool))["own"] is None
    assert made.alarm() == ""


@each(
    ("score", "fault"),
    [
        (lambda z: z[:2, 0], "has shape (2,) for 4 images, not (4,)"),
        (lambda z: z[:, :1], "has shape (4, 1) for 4 images, not (4,)"),
        (lambda z: z[:, 0].numpy(), "is of type ndarray, not a tensor"),
        (lambda z: 1.0, "is of type float, not a tensor"),
        (lambda z: z[:, 0] * torch.nan, "is NaN for some images"),
        (lambda z: None if z[0, 0] > 1 else z[:, 0], "is None for some batches"),
        (lambda z: z[:, 0], ""),
    ],
)
def test_an_own_score_that_cannot_be_used_is_an_alarm(score: Callable[[Tensor], Any], fault: str) -> None:
    class Odd(Own):
        def known_score(self, logits: Tensor) -> Any:
            return score(logits)

    method, made = Odd(), Certainties(8)
    with watched(method, made.note):
        method.predict(torch.ones(4, 3))
        method.predict(torch.full((4, 3), 2.0))
    found = made.figures(np.arange(8) % 2 == 0, np.ones(4, bool))
    assert (found["own"] is None) == bool(fault)
    assert found["energy"] is not None
    said = f"the method's known_score() {fault}, so unknown classes are not judged by it"
    assert made.alarm() == (said if fault else "")


def test_watching_leaves_no_trace_in_a_method() -> None:
    """Its attributes are what is saved and restored."""
    method = Own()
    before = {**vars(method)}

    def stopped() -> None:
        with watched(method, lambda method, logits: None):
            assert vars(method) == before
            assert type(method).__qualname__ == Own.__qualname__
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stopped()
    assert vars(method) == before
    assert type(method) is Own


def test_memory_is_taken_once() -> None:
    method, made = Own(), Certainties(64)
    made.note(method, torch.randn(16, 3))
    kept = made._values.data_ptr()
    for _ in range(3):
        made.note(method, torch.randn(16, 3))
    assert made._values.data_ptr() == kept
    assert made._values.nbytes == 64 * 3 * 4
    assert len(vars(made)["_rows"]) <= 128


def test_what_the_scorer_refuses_is_not_noted_and_some_of_the_images_give_no_figures() -> None:
    method, made = Own(), Certainties(4)
    for logits in (None, torch.randn(3), torch.randn(5, 3), torch.randn(2, 3)):
        made.note(method, logits)
    assert made.figures(np.arange(4) < 2, np.ones(2, bool)) == {}
    made.note(method, torch.randn(2, 3))
    assert made.figures(np.arange(4) < 2, np.ones(2, bool))["images"] == 2


@each("share", ["0.2", "0.5", "0.04"])
@each("order", ["iid", "dirichlet(0.3)"])
def test_foreign_positions_are_those_of_the_stream(share: str, order: str) -> None:
    labels = np.arange(40) % 4
    data = Labelled(np.zeros((40, 8, 8, 3), np.uint8), labels)
    protocol = Protocol(contamination=f"noise({share})", order=order, limit=33)
    for seed in range(3):
        positions = put_in_order(data, protocol, seed).scored
        assert np.array_equal(foreign_positions(protocol, 33, seed), positions >= 33)
    stream = Parts(2, lambda part: data, protocol, 7)
    assert np.array_equal(foreign_of(stream, protocol, 7), stream.read(0, stream.total).labels < 0)


@pytest.mark.parametrize("after", [1, 4])
def test_a_stopped_stream_has_the_figures_of_a_whole_one(tmp_path: Path, after: int) -> None:
    draw = np.random.default_rng(0)
    data = Labelled(draw.integers(0, 256, (20, 8, 8, 3), np.uint8), np.arange(20) % 4)
    protocol = Protocol(stream="recurring(2)", reset="continual", contamination="noise(0.5)", batch_size=16)

    def follow(stop: int, file: Path) -> Any:
        stream = Parts(2, lambda part: data, protocol, 0)
        method = Means(Classifier.wrap(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))))
        method.prepare()
        made, seen = Certainties(stream.total), []

        def report(position: int, scored: int, right: int) -> None:
            seen.append(position)
            if len(seen) == stop:
                raise KeyboardInterrupt

        with watched(method, made.note):
            saved = Checkpoint(file, {"cell": "c"}, 0.0)
            saved.beside = {"collected": made}
            done = scoring.evaluate(
                method, stream, protocol, 0, on_batch=report, on_logits=made.add, saved=saved
            )
        return made.figures(foreign_of(stream, protocol, 0), done.correct), seen

    whole, batches = follow(0, tmp_path / "whole.npz")
    assert len(batches) == 5
    with pytest.raises(KeyboardInterrupt):
        follow(after + 1, tmp_path / "stopped.npz")
    again, rest = follow(0, tmp_path / "stopped.npz")
    assert len(rest) == 5 - after
    assert again == whole


class Means(Method[Any]):
    """Its logits are the means of the pixels of four rows: the same for any weights."""

    name = "means"

    def adapt(self, x: Tensor) -> Tensor:
        return x[:, :, :4].mean(dim=(1, 3))


def swept(ttabench: Run, to: Path, *more: str, limit: int = 30) -> pd.DataFrame:
    output = ttabench("sweep", *(str(limit) if word == "30" else word for word in ON), *more, "--out", to)
    assert output.code == 0, output.err
    return load_frame(to).set_index("base")


def test_a_contaminated_cell_has_the_figures_of_its_logits(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Source, the logits that `predict` and `adapt` gave are enough to compute them again."""
    seen: list[Tensor] = []
    note = Certainties.note

    def noted(self: Certainties, method: Any, logits: Tensor) -> None:
        seen.append(logits.detach())
        note(self, method, logits)

    monkeypatch.setattr(Certainties, "note", noted)
    found = swept(ttabench, tmp_path / "r", "--methods", "source", "--contamination", "noise(0.25)")
    logits = torch.cat(seen)
    assert len(logits) == 40
    foreign = foreign_positions(Protocol(contamination="noise(0.25)"), 30, 0)
    energy = logits.logsumexp(1).numpy()
    row = found.loc["source"]
    assert row["auroc_energy"] == pytest.approx(100 * roc_auc_score(~foreign, energy), abs=1e-3)
    assert row["foreign_images"] == 10
    known = energy[~foreign]
    threshold = np.sort(known)[30 - 29]  # 29 of 30 are the first that are at least 95 %
    rejected = (energy[foreign] < threshold).mean()
    result = next(iter(Store.at(tmp_path / "r").latest().values())).result
    assert row["fpr95_energy"] == pytest.approx(100 * (1 - rejected), abs=1e-3)
    assert 0 <= row["h_energy"] <= 100
    assert result.details["unknown"]["own"] is None


# At each commit offline, and online on a long stream: one corruption is followed as a stream of one part.
@pytest.mark.parametrize("how", [pytest.param((), marks=pytest.mark.slow), ("--mode", "offline"),
                                 pytest.param(("--reset", "episodic"), marks=pytest.mark.slow),
                                 ("--stream", "recurring(2)")], ids=str)  # fmt: skip
def test_watching_changes_no_number(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    grid = ("--methods", "come,rotta", "--contamination", "noise(0.25)", *how)
    watching = swept(ttabench, tmp_path / "r", *grid, limit=15)
    assert watching[["auroc_softmax", "auroc_energy", "foreign_images"]].notna().all().all()
    assert watching["auroc_own"].notna().tolist() == [base == "come" for base in watching.index]
    # −ln u grows with the energy, so that both give one order.
    assert watching.loc["come", "auroc_own"] == pytest.approx(watching.loc["come", "auroc_energy"], abs=0.4)
    monkeypatch.setattr("ttabench.run.worker.watched", lambda method, note: note_nothing())
    blind = swept(ttabench, tmp_path / "b", *grid, limit=15)
    assert blind["auroc_softmax"].isna().all()
    assert (blind["accuracy"] == watching["accuracy"]).all()


def note_nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_a_clean_stream_has_no_figures(ttabench: Run, tmp_path: Path) -> None:
    found = swept(ttabench, tmp_path / "r", "--methods", "source")
    assert found[["foreign_images", *UNKNOWN]].isna().all().all()


def pictures(folder: Path, count: int, size: int = 16) -> Path:
    draw = np.random.default_rng(3)
    for k in range(count):
        place = folder / f"some-{k % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (size, size, 3), np.uint8)).save(place / f"{k}.png")
    return folder


def test_a_folder_of_images_is_a_foreign_set(ttabench: Run, tmp_path: Path) -> None:
    """A folder may have a dot in its name, and its images need no classes."""
    from ttabench.data.catalog import dataset

    size = dataset("digits-c").image_size
    folder = pictures(tmp_path / "Textures v1.2", 6, size)
    more = ("--methods", "source", "--contamination", f"{folder}(0.25)")
    found = swept(ttabench, tmp_path / "r", *more)
    assert found["contamination"].tolist() == ["textures-v1.2-images-local(0.25)"]
    assert found["foreign"].str.len().tolist() == [64]
    assert found["foreign_images"].tolist() == [10]
    again = ttabench("sweep", *ON, *more, "--out", tmp_path / "r")
    assert "0 to run, 1 done" in again.err
    assert ttabench("verify", tmp_path / "r", "--workers", "0").code == 0
    wrong = pictures(tmp_path / "large", 2, 8 * size)
    output = ttabench("sweep", *ON, "--contamination", f"{wrong}(0.25)", "--out", tmp_path / "w")
    assert output.code == 2
    assert f"pixels wide, those of the stream {size}" in output.err
    (tmp_path / "empty").mkdir()
    output = ttabench("sweep", *ON, "--contamination", f"{tmp_path / 'empty'}(0.25)", "--out", tmp_path / "w")
    assert (output.code, "holds no images" in output.err) == (2, True)


def test_own_images_are_no_foreign_ones(ttabench: Run, tmp_path: Path) -> None:
    output = ttabench("sweep", *ON, "--contamination", "digits-c(0.25)", "--out", tmp_path / "w")
    assert output.code == 2
    assert "are not foreign for a network" in output.err
    assert not (tmp_path / "w").exists()
