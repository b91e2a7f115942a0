"""RobustBench: a stand-in with the faults of the package as installed, and the package where it is."""

from __future__ import annotations

import hashlib
import io
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.conftest import Run
from tests.unit.data_fakes import labels_for, write_batch
from tests.unit.models.test_bring import Squares
from tests.unit.models_by_name import bring, construct, fill, published, recall
from tests.unit.web import Mirror
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.published.cifar import CifarC
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.errors import UserError
from ttabench.models.external import robustbench
from ttabench.store import load_frame

pytestmark = pytest.mark.usefixtures("own_cache")

WRN, KIREEV = "robustbench/Hendrycks2020AugMix_WRN", "robustbench/Kireev2021Effectiveness_RLAT"

RESNEXT = "robustbench/Hendrycks2020AugMix_ResNeXt"


class Images(Squares):
    def __init__(self, num_classes: int = 10, name: str = "some-c") -> None:
        self.num_classes, self.name = num_classes, name


def forget() -> None:
    robustbench._package.cache_clear()
    for name in [n for n in sys.modules if n.partition(".")[0] in ("robustbench", "pyautoattack")]:
        del sys.modules[name]


# ---- a package with the faults of 1.1.1

FILES = {
    "pyautoattack/__init__.py": "class AutoAttack: pass",
    "pyautoattack/state.py": "class EvaluationState: pass",
    "robustbench/__init__.py": "from robustbench import data, eval",
    "robustbench/eval.py": """
        from autoattack import AutoAttack
        from autoattack.state import EvaluationState
        """,
    "robustbench/data.py": """
        import pkg_resources
        def beside(): return pkg_resources.resource_filename(__name__, "helper_files/ids.txt")
        """,
    "robustbench/model_zoo/__init__.py": """
        import torch
        from tests.unit.models.test_bring import Quarters
        from .enums import BenchmarkDataset, ThreatModel
        class Inside(Quarters):
            def __init__(self, classes=10):
                super().__init__(classes)
                self.register_buffer("mu", torch.full((1, 3, 1, 1), 0.5))
                self.register_buffer("sigma", torch.full((1, 3, 1, 1), 0.25))
            def forward(self, x): return super().forward((x - self.mu) / self.sigma)
        def entry(net, drive): return {"model": net, "gdrive_id": drive}
        corruptions = {
            "Standard": entry(lambda: Quarters(10), "std"),
            "Hendrycks2020AugMix_WRN": entry(Inside, "wrn"),
            "Kireev2021Effectiveness_RLAT": entry(Inside, "kir"),
            "Deck": entry(None, ["a", "b"]),
            "AlexNet": entry(None, None),
        }
        linf = {"Standard": entry(lambda: Quarters(10), "lin")}
        model_dicts = {
            BenchmarkDataset.cifar_10: {ThreatModel.corruptions: corruptions, ThreatModel.Linf: linf},
            BenchmarkDataset.cifar_100: {
                ThreatModel.corruptions: {"Hendrycks2020AugMix_WRN": entry(lambda: Inside(100), "hun")},
            },
        }
        """,
    "robustbench/model_zoo/enums.py": """
        from enum import Enum
        class BenchmarkDataset(Enum):
            cifar_10, cifar_100, imagenet = "cifar10", "cifar100", "imagenet"
        class ThreatModel(Enum):
            Linf, L2, corruptions = "Linf", "L2", "corruptions"
        """,
}


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FILES.items():
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    forget()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path / "site"))
        yield
    forget()


@pytest.fixture
def drive(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Google Drive, played by a server."""
    monkeypatch.setattr(robustbench, "DRIVES", (f"{mirror.url}/uc?confirm=t&id=", f"{mirror.url}/old?id="))
    return mirror


def saved(what: object) -> bytes:
    file = io.BytesIO()
    torch.save(what, file)
    return file.getvalue()


def good(classes: int = 10) -> dict[str, torch.Tensor]:
    """Weights with which all squares are told apart."""
    return {"fc.weight": torch.eye(classes, 4), "fc.bias": torch.zeros(classes)}


@pytest.mark.usefixtures("stand_in")
def test_the_package_is_imported_despite_its_faults_and_nothing_stays_lent() -> None:
    lent = ("autoattack", "autoattack.state", "pkg_resources")
    before = {name: sys.modules.get(name) for name in lent if find_spec(name.partition(".")[0]) is None}
    data = robustbench._package("robustbench.data")
    assert Path(data.beside()) == Path(str(data.__file__)).parent / "helper_files" / "ids.txt"
    assert {name: sys.modules.get(name) for name in before} == before


@pytest.mark.usefixtures("stand_in")
def test_the_leaderboards_names_are_found_for_the_data_they_are_for() -> None:
    for arch, classes, file in (
        ("robustbench/Standard", 10, "cifar10-corruptions-Standard.pt"),
        (WRN, 10, "cifar10-corruptions-Hendrycks2020AugMix_WRN.pt"),
        (WRN, 100, "cifar100-corruptions-Hendrycks2020AugMix_WRN.pt"),
        ("robustbench/Linf/Standard", 10, "cifar10-Linf-Standard.pt"),
    ):
        there = published(arch, Images(classes))
        assert there is not None
        assert there.file.file == file
        assert construct(arch, Images(classes)).num_classes == classes
    drives = [robustbench.weights_file(WRN, Images(n)).urls[0].rpartition("=")[2] for n in (10, 100)]
    assert drives == ["wrn", "hun"]


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("arch", "classes", "says"),
    [
        ("robustbench/standrad", 10, "of cifar10 'standrad'; did you mean 'Standard'? Valid: Hendrycks"),
        ("robustbench/Standard", 100, "unknown RobustBench network of cifar100 'Standard'. Valid: Hendrycks"),
        ("robustbench/L3/Standard", 10, "unknown RobustBench leaderboard 'L3'; did you mean 'L2'?"),
        ("robustbench/Deck", 10, "robustbench/Deck is an ensemble of 2 networks, which has no last linear"),
        ("robustbench/AlexNet", 10, "is a network of timm or torchvision; use it as timm/NAME."),
        ("robustbench/Standard", 4, "(10, 100 and 1000 classes), but some-c has 4."),
    ],
)
def test_wrong_names_are_explained(arch: str, classes: int, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        bring(arch, Images(classes))


@pytest.mark.parametrize(
    ("broken", "cure"),
    [
        (ImportError("no"), "(no): pip install 'ttabench[robustbench]'."),
        (
            RuntimeError("operator torchvision::nms does not exist\n…"),
            "torchvision was made for another torch; install both from one index: pip install "
            "--force-reinstall torch torchvision.",
        ),
    ],
)
def test_a_missing_package_says_how_to_get_it(
    broken: Exception, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise broken

    forget()
    monkeypatch.setattr(robustbench.importlib, "import_module", fail)
    monkeypatch.setattr(robustbench, "_missing", lambda name: False)
    with pytest.raises(UserError, match=f"^[^\n]*{re.escape(cure)}$"):
        construct("robustbench/Standard", Images())


# ---- its files


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("arch", "drive_id", "content"),
    [
        ("robustbench/Standard", "std", good()),
        (
            WRN,
            "wrn",
            {"epoch": 9, "state_dict": {f"module.{k}": v for k, v in good().items()}, "best_acc": 0.9},
        ),
        (WRN, "wrn", {"mu": torch.zeros(1, 3, 1, 1), "sigma": torch.ones(1, 3, 1, 1), **good()}),
        (KIREEV, "kir", {"last": good(), "best": {k: -v for k, v in good().items()}}),
    ],
)
def test_files_in_its_formats_are_downloaded_loaded_and_measured(
    arch: str, drive_id: str, content: dict[str, object], drive: Mirror
) -> None:
    drive.files[f"uc?confirm=t&id={drive_id}"] = saved(content)
    brought = bring(arch, Images())
    assert brought.clean_accuracy == 100.0
    assert brought.note["claimed"] == robustbench.CLAIMS["cifar10"][arch.rpartition("/")[2]]
    assert drive.asked == [f"uc?confirm=t&id={drive_id}"]
    assert brought.classifier.normalize.std.flatten().tolist() == [1, 1, 1]  # it is inside the network
    constants = dict(brought.classifier.net.named_buffers())
    if "mu" in constants:  # out of the file where it has them, else the network's own
        assert constants["mu"].unique().tolist() == [0.0 if "mu" in content else 0.5]
    again = recall(arch, Images(), brought.sha256)
    assert again is not None


@pytest.mark.usefixtures("stand_in")
def test_weights_far_from_the_leaderboard_are_warned_about(drive: Mirror) -> None:
    drive.files["uc?confirm=t&id=std"] = saved({k: 0 * v for k, v in good().items()})
    assert "is 25.00 %, but 94.78 % is claimed" in bring("robustbench/Standard", Images()).note["warning"]


@pytest.mark.usefixtures("stand_in")
def test_a_sweep_warns_and_stores(drive: Mirror, ttabench: Run, tmp_path: Path) -> None:
    content = saved({k: 0 * v for k, v in good().items()})
    drive.files["uc?confirm=t&id=wrn"] = content
    command = ("sweep", "--archs", WRN, "--methods", "source", "--corruptions", "fog", "--limit", "20")
    output = ttabench(*command, "--workers", "0", "--out", tmp_path / "out")
    assert output.code == 0, output.err
    assert f"{WRN} on digits-c: clean accuracy is 10.00 %, but 95.08 % is claimed" in output.err
    assert load_frame(tmp_path / "out")["arch"].tolist() == [WRN]
    report = ttabench("report", tmp_path / "out", "--format", "csv")
    assert f"{WRN} on digits-c: clean accuracy is 10.00 %, but 95.08 % is claimed" in report.err
    (card,) = (tmp_path / "cache" / "models" / "digits-c").glob("*.md")
    assert hashlib.sha256(content).hexdigest() in card.read_text()


@pytest.mark.usefixtures("stand_in")
def test_a_file_of_ones_own_is_held_to_the_same_claim(tmp_path: Path) -> None:
    (tmp_path / "Standard.pt").write_bytes(saved(good()))
    brought = bring("robustbench/Standard", Images(), checkpoint=tmp_path / "Standard.pt")
    assert brought.note["claimed"] == 94.78
    assert brought.note["origin"] == "Standard.pt"


@pytest.mark.usefixtures("stand_in")
def test_the_page_that_drive_sends_instead_of_a_file_is_recognised(drive: Mirror) -> None:
    page = b"<!DOCTYPE html><html><title>Google Drive - Quota exceeded</title></html>"
    drive.files |= {"uc?confirm=t&id=std": page, "old?id=std": page}
    with pytest.raises(UserError, match=r"it sent a web page .*put it at .*corruptions-Standard\.pt,"):
        bring("robustbench/Standard", Images())


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("owned"),))


@pytest.mark.usefixtures("stand_in")
def test_a_hostile_file_is_not_run(drive: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drive.files["uc?confirm=t&id=std"] = saved({"state_dict": Hostile()})
    with pytest.raises(UserError, match="could run unknown code"):
        bring("robustbench/Standard", Images())
    assert not (tmp_path / "owned").exists()


@pytest.mark.usefixtures("stand_in")
def test_a_normalisation_is_the_only_thing_a_file_may_lack(drive: Mirror) -> None:
    drive.files["uc?confirm=t&id=wrn"] = saved({"fc.weight": torch.eye(10, 4)})
    with pytest.raises(UserError, match=r"it lacks fc\.bias"):
        bring(WRN, Images())


def test_names_behind_a_normalising_layer_get_its_prefix() -> None:
    net = nn.ModuleDict({"normalize": nn.Identity(), "model": nn.Linear(2, 2)})
    result = robustbench.renamed(net, {"module.weight": torch.zeros(2), "model.bias": torch.zeros(2)})
    assert set(result) == {"model.weight", "model.bias"}


# ---- the real package


@pytest.fixture(scope="module")
def real() -> str:
    """Its version, where it can be imported."""
    forget()
    try:
        robustbench._package("robustbench")
    except UserError as problem:
        pytest.skip(f"RobustBench is not here: {problem}")
    return metadata.version("robustbench")


@pytest.mark.usefixtures("real")
def test_the_claims_are_those_of_the_leaderboard_in_the_package() -> None:
    text = re.sub("<[^>]*>|\\*", "", str(metadata.metadata("robustbench").get_payload()))
    for title, benchmark in (("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100"), ("ImageNet", "imagenet")):
        board = re.split(r"\n### ", text.split(f"\n### {title}\n")[1])[0]
        board = re.split(r"\n####.*Corruptions", board)[1]
        rows = re.findall(r"^\| *\d+ *\| *(\S+) *\|.*?\| *([\d.]+)% *\|", board, re.MULTILINE)
        assert len(rows) >= 12
        stated = {name: float(clean) for name, clean in rows}
        assert robustbench.CLAIMS[benchmark].items() <= stated.items()


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "arch", ["robustbench/Standard", WRN, "robustbench/Hendrycks2020AugMix_ResNeXt", KIREEV]
)
def test_a_file_gives_the_logits_that_robustbench_makes_of_it(arch: str, tmp_path: Path) -> None:
    name, data = arch.rpartition("/")[2], Images()
    torch.manual_seed(0)
    net = robustbench.network(arch, data)
    for value in net.state_dict().values():
        if value.is_floating_point() and value.ndim < 4:
            value.add_(torch.rand_like(value) / 10)
    tensors = {k: v for k, v in net.state_dict().items() if k not in robustbench.CONSTANTS}
    content = {"Standard": tensors, "Kireev2021Effectiveness_RLAT": {"last": tensors, "best": {}}}.get(
        name, {"epoch": 1, "state_dict": {f"module.{k}": v for k, v in tensors.items()}}
    )
    file = tmp_path / "models" / "cifar10" / "corruptions" / f"{name}.pt"
    file.parent.mkdir(parents=True)
    torch.save(content, file)
    theirs = robustbench._package("robustbench.utils").load_model(
        name, model_dir=tmp_path / "models", dataset="cifar10", threat_model="corruptions"
    )
    constants = [k for k in net.state_dict() if k in robustbench.CONSTANTS]
    for k in constants:  # ours keeps those of the architecture, as theirs does
        assert torch.equal(theirs.state_dict()[k], robustbench.network(arch, data).state_dict()[k])
    classifier = construct(arch, data)
    fill(arch, classifier, file, data)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(classifier(x), theirs(x))
        features, logits = classifier.features_and_logits(x)
        torch.testing.assert_close(classifier.head(features), logits)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("board", sorted(robustbench.CLAIMS["cifar10"]))
def test_every_claimed_network_is_in_the_zoo(board: str) -> None:
    for classes in (10, 100):
        if board in robustbench.CLAIMS[robustbench.DATASETS[classes]]:
            assert robustbench.weights_file(f"robustbench/{board}", Images(classes)).urls[0]


@pytest.mark.usefixtures("real")
def test_both_loaders_read_the_same_images(tmp_path: Path) -> None:
    facts = PUBLISHED["cifar10-c"]
    with pytest.raises(UserError, match=r"there is no .*labels\.npy; run ttabench data fetch cifar10-c"):
        robustbench.cifar_c(Images(name="cifar10-c"), tmp_path, "fog", 1)
    labels = labels_for(10_000, 10)
    write_batch(tmp_path / facts.clean_folder / "test_batch", np.zeros((10_000, 32, 32, 3), np.uint8), labels)
    folder = tmp_path / facts.corrupted_folder
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    images = np.lib.format.open_memmap(folder / "fog.npy", "w+", np.uint8, (50_000, 32, 32, 3))
    stamps = np.arange(50_000)
    images[:, 0, 0, 0], images[:, 9, 3, 2] = stamps // 256, stamps % 256  # every image says which it is
    images.flush()
    data = CifarC(facts, tmp_path)
    for severity in (1, 5):
        theirs, ours = robustbench.cifar_c(data, tmp_path, "fog", severity), data.corrupted("fog", severity)
        assert (
            len(np.unique(theirs.images[:, 0, 0, 0].astype(int) * 256 + theirs.images[:, 9, 3, 2])) == 10_000
        )
        assert np.array_equal(theirs.images, ours.images)
        assert np.array_equal(theirs.labels, ours.labels)


@pytest.mark.usefixtures("real")
def test_the_corruptions_have_the_same_names() -> None:
    assert set(robustbench._package("robustbench.data").CORRUPTIONS) == set(CORRUPTIONS)
