"""Code in the form of public repositories runs unchanged: conform, sweep, verify, tables, compare-code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.conformance.test_plugin_package import unpacked
from tests.unit.conftest import Run
from ttabench.store import load_frame

PACKAGE = Path(__file__).resolve().parents[1] / "official_package"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "official-code.md"
LONGEST = 25  # lines of the class that a user writes
NAMES = ("official_tent", "official_norm", "official_teacher")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    return unpacked(PACKAGE, folder)


@pytest.mark.parametrize("name", ["tent", "norm", "teacher"])
def test_the_official_files_know_no_ttabench(name: str) -> None:
    text = (PACKAGE / "ttabench_official" / f"{name}.py").read_text()
    assert not re.search(r"^\s*(import|from) ttabench", text, flags=re.MULTILINE)


def test_the_class_of_the_page_is_short_and_the_one_that_the_tests_run() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(block.splitlines()) <= LONGEST
    run = (PACKAGE / "ttabench_official" / "methods.py").read_text()
    for line in block[block.index("    def build") :].splitlines()[:-1]:
        assert line in run


@pytest.mark.slow
@pytest.mark.usefixtures("seen")
def test_two_conform_and_the_third_has_dropout_on(ttabench: Run) -> None:
    done = ttabench("conform", *NAMES)
    failed = re.findall(r"^(\w+): FAIL (.*?) \(", done.out, flags=re.MULTILINE)
    assert failed == [("official_tent", "independent of dropout and stochastic depth")]
    assert done.code == 1


@pytest.mark.slow
@pytest.mark.usefixtures("seen")
def test_they_are_swept_verified_and_marked(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    what = ["--methods", ",".join(("tent", "bn_stats", *NAMES)), "--archs", "resnet18"]
    images = ("--corruptions", "fog", "--limit", "200")
    done = ttabench("sweep", *what, *images, "--workers", "0", "--out", out)
    assert done.code == 0, done.err
    assert "Official code, unchanged: official_norm, official_teacher, official_tent." in " ".join(
        done.out.split()
    )
    rows = load_frame(out).set_index("method")
    assert set(rows["status"]) == {"ok"}
    # 0.5 % is one of 200 images.
    assert rows.loc["official_tent", "accuracy"] == pytest.approx(rows.loc["tent", "accuracy"], abs=0.5)
    assert rows.loc["official_norm", "accuracy"] == pytest.approx(rows.loc["bn_stats", "accuracy"], abs=0.5)
    again = ttabench("verify", out, "--workers", "0")
    assert again.code == 0, again.out + again.err
    report = ttabench("report", out, "--format", "markdown")
    assert report.code == 0, report.err
    written = "".join(path.read_text() for path in out.rglob("*.md"))
    assert re.search(r"official\\_tent \| official code", written)


@pytest.mark.usefixtures("seen")
def test_ours_and_theirs_agree_batch_by_batch(ttabench: Run) -> None:
    done = ttabench("compare-code", "tent", "official_tent")
    assert done.code == 0, done.out + done.err
    assert len(re.findall(r"^batch +\d+:", done.out, flags=re.MULTILINE)) == 3
    assert "agree on 600 images" in done.out


@pytest.mark.usefixtures("seen")
def test_the_first_difference_is_named(ttabench: Run) -> None:
    rate = ttabench("compare-code", "tent[lr=0.002]", "official_tent", "--batches", "2")
    assert rate.code == 1
    assert "first difference: in batch 1, the logits agree; after the update," in rate.out
    trained = ttabench("compare-code", "tent", "official_teacher", "--batches", "1")
    assert trained.code == 1
    assert "first difference: before the first batch, official_teacher trains net." in trained.out
    logits = ttabench("compare-code", "source", "official_norm", "--batches", "1")
    assert logits.code == 1
    assert "first difference: in batch 1, logits of image" in logits.out


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("tent", "official_tnt"), "unknown method 'official_tnt'; did you mean 'official_tent'"),
        (("tent", "official_tent", "--corruption", "fogg"), "did you mean 'fog'?"),
        (("tent", "official_tent", "--arch", "cct"), "official_tent cannot run on cct: no batch norm"),
    ],
)
def test_mistakes_are_sentences(ttabench: Run, arguments: tuple[str, ...], sentence: str) -> None:
    done = ttabench("compare-code", *arguments)
    assert done.code == 2
    assert sentence in done.err


@pytest.mark.usefixtures("seen")
def test_a_file_from_elsewhere_is_warned_of() -> None:
    from ttabench_official.methods import OfficialNorm

    from ttabench.classifier import Classifier
    from ttabench.conformance.nets import nets

    class Elsewhere(OfficialNorm):
        def build(self, model: torch.nn.Module, source: object) -> torch.nn.Module:
            return torch.nn.Sequential(model)

    net: Classifier = nets()["BN CNN"]
    with pytest.warns(UserWarning, match=r"in the module torch\.nn\..*do not become stale"):
        Elsewhere(net).prepare(None)


@pytest.mark.usefixtures("seen")
def test_code_that_returns_no_logits_says_so() -> None:
    from ttabench_official.methods import OfficialNorm

    from ttabench.conformance.nets import images, nets

    method = OfficialNorm(nets()["BN CNN"])
    method.prepare(None)
    method.code.forward = lambda x: (x, x)
    with pytest.raises(TypeError, match="returned tuple; expected logits"):
        method.adapt(images(2, seed=0))
    method.code = None  # as after a build() without its return
    with pytest.raises(TypeError, match=r"build\(\) returned NoneType; return the official object"):
        method.adapt(images(2, seed=0))
