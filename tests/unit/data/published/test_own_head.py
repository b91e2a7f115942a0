"""A natural shift with a head for its classes alone: images, networks, settings, captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.unit import data_fakes as fakes
from tests.unit.models.test_bring import Quarters
from ttabench.corruptions.corruption_names import NATURAL, NO_SEVERITY
from ttabench.data import catalog
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.data.published.own_head import OwnHead, settled_classes
from ttabench.errors import UserError
from ttabench.models.external.clip import FrozenLinear
from ttabench.models.head_rows import HeadRows, keep_rows
from ttabench.models.resolve import resolve_model
from ttabench.models.trained_model import TrainedModel
from ttabench.provenance.roots import current_code
from ttabench.sweep.plan import find_sources
from ttabench_reports.words import naming

FACTS = replace(fakes.FAKE_IMAGENET_R, image_size=32)
THERE = [0, 2]  # the classes that the shift has, of three


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnHead:
    monkeypatch.setenv("TTABENCH_DATA", str(tmp_path))
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(PUBLISHED, "imagenet-r", FACTS)
    fakes.make_natural(tmp_path, FACTS, (fakes.WNIDS[2], fakes.WNIDS[0]))
    opened = open_dataset("imagenet-r[2-way]")
    assert isinstance(opened, OwnHead)
    return opened


def test_labels_are_counted_among_its_classes_in_all_sets(data: OwnHead) -> None:
    assert (data.num_classes, data.kept, data.scored_classes) == (2, (0, 2), ())
    shifted, whole = data.corrupted(NATURAL, NO_SEVERITY), data.whole.corrupted(NATURAL, NO_SEVERITY)
    assert (shifted.images == whole.images).all()
    assert shifted.labels.tolist() == [THERE.index(label) for label in whole.labels]
    for mine, all_classes in ((data.test(), data.whole.test()), (data.train(), data.whole.train())):
        chosen = [row for row, label in enumerate(all_classes.labels) if label in THERE]
        assert (mine.images == all_classes.images[chosen]).all()
        assert mine.labels.tolist() == [THERE.index(all_classes.labels[row]) for row in chosen]


def test_it_is_another_dataset_by_name_and_by_fingerprint(data: OwnHead) -> None:
    assert data.name == "imagenet-r[2-way]"
    assert data.fingerprint() != data.whole.fingerprint()
    assert naming.dataset("imagenet-r[200-way]") == "ImageNet-R [200-way head]"
    mine = current_code("source", "imagenet-r[200-way]").definitions
    assert any("own_head.py: OwnHead" in name for name in mine)
    assert mine.items() >= current_code("source", "imagenet-r").definitions.items()


def test_what_cannot_have_a_head_of_its_own_is_said(data: OwnHead, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"imagenet-r\[7-way\]; expected imagenet-r or imagenet-r\[2-way\]"):
        open_dataset("imagenet-r[7-way]")
    every = replace(FACTS, shifted_classes=3, shifted=6)
    monkeypatch.setitem(PUBLISHED, "imagenet-r", every)
    fakes.make_natural(data.clean_folder.parent, every, fakes.WNIDS[:3])
    with pytest.raises(UserError, match=r"imagenet-r has all classes of its networks; open it as imagenet-r"):
        open_dataset("imagenet-r[3-way]")
    assert catalog.split_subset("imagenet-v2[200-way]") == ("imagenet-v2[200-way]", "")


# ---- networks


class Net(Quarters):
    """With weights of its own for each class."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        draw = torch.Generator().manual_seed(num_classes)
        self.fc.weight = nn.Parameter(torch.randn(num_classes, 4, generator=draw))


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "headnets.py").write_text(
        "from tests.unit.data.published.test_own_head import Net\n"
        "def build(num_classes): return Net(num_classes)\n"
        "def all_classes(): return Net(3)\n"
        "def own(): return Net(2)\n"
        "def others(): return Net(5)\n"
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("callable_", ["build", "all_classes"])
def test_a_network_of_all_classes_keeps_the_rows_of_those_that_are_there(
    data: OwnHead, callable_: str
) -> None:
    loaded = resolve_model(f"headnets:{callable_}", data).load()
    x = torch.rand(3, 3, 32, 32)
    assert torch.equal(loaded.classifier(x), Net(3).eval()(x)[:, THERE])
    assert loaded.classifier.num_classes == loaded.classifier(x).shape[1] == 2
    again = resolve_model(f"headnets:{callable_}", data).recall(loaded.sha256)  # as a worker does
    assert again is not None
    assert torch.equal(again.classifier(x), loaded.classifier(x))


@pytest.mark.usefixtures("nets")
def test_a_network_with_a_head_of_its_own_is_taken_as_it_is(data: OwnHead) -> None:
    x = torch.rand(3, 3, 32, 32)
    assert torch.equal(resolve_model("headnets:own", data).load().classifier(x), Net(2).eval()(x))
    with pytest.raises(UserError, match=r"headnets:others has 5 classes, but imagenet-r has 3"):
        resolve_model("headnets:others", data).load()


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("classes", [2, 3])
def test_weights_of_all_classes_or_of_these_alone(data: OwnHead, tmp_path: Path, classes: int) -> None:
    file = tmp_path / "weights.pth"
    net = Net(classes)
    nn.init.ones_(net.fc.bias)
    torch.save(net.state_dict(), file)
    loaded = resolve_model("headnets:build", data, checkpoint=file).load()
    x = torch.rand(3, 3, 32, 32)
    logits: Tensor = net.eval()(x)
    assert torch.equal(loaded.classifier(x), logits if classes == 2 else logits[:, THERE])


def test_a_frozen_head_stays_frozen() -> None:
    from ttabench.classifier import Classifier

    net = nn.Sequential(nn.Flatten(), FrozenLinear(12, 3))
    classifier = keep_rows(Classifier(net, last="1"), THERE)
    assert [*classifier.parameters()] == []
    assert classifier(torch.rand(2, 3, 2, 2)).shape == (2, 2)


def test_what_is_trained_here_is_trained_on_these_classes(data: OwnHead) -> None:
    assert isinstance(resolve_model("resnet18_w8", data), TrainedModel)
    assert not isinstance(resolve_model("resnet18_w8", data.whole), HeadRows)


@pytest.mark.usefixtures("nets")
@pytest.mark.filterwarnings("ignore::UserWarning")  # the accuracy of a random network
def test_settings_are_those_of_the_whole_network(data: OwnHead) -> None:
    (source,) = find_sources([resolve_model("headnets:build", data)], "cpu")
    assert source.num_classes == settled_classes(data.whole) == 3
    assert source.architecture.num_classes == 2
    assert source.dataset == "imagenet-r[2-way]"
