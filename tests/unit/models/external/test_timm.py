"""timm itself, where it can be imported; a stand-in plays it in `test_bring`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.conftest import Run
from tests.unit.models.external.test_external_packages import or_skip
from tests.unit.models.test_bring import Squares
from tests.unit.models_by_name import bring, construct, recall
from ttabench.errors import UserError
from ttabench.store import load_frame

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def timm() -> ModuleType:
    return or_skip("timm")  # type: ignore[no-any-return]


class Large(Squares):
    image_size = 224


def made(timm: ModuleType, name: str) -> nn.Module:
    torch.manual_seed(0)
    net: nn.Module = timm.create_model(name, pretrained=False, num_classes=4)
    return net.eval()


@pytest.mark.parametrize(
    ("name", "last", "data"),
    [
        ("resnet18", "fc", Squares()),
        ("mobilenetv3_small_050", "classifier", Squares()),
        ("convnext_atto", "head.fc", Squares()),
        ("vit_tiny_patch16_224", "head", Large()),
        ("swin_tiny_patch4_window7_224", "head.fc", Large()),
    ],
)
def test_features_and_head_are_found_and_give_timms_own_logits(
    timm: ModuleType, name: str, last: str, data: Squares
) -> None:
    net = made(timm, name)
    torch.manual_seed(0)
    classifier = construct(f"timm/{name}", data)
    assert classifier.last == last
    mean, std = (torch.tensor(net.pretrained_cfg[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    x = torch.rand(2, 3, data.image_size, data.image_size)
    with torch.no_grad():
        normalised = (x - mean) / std
        wanted, before = net(normalised), net.forward_head(net.forward_features(normalised), pre_logits=True)
        features, logits = classifier.features_and_logits(x)
        assert torch.equal(logits, wanted)
        assert features.shape == (2, classifier.num_features)
        torch.testing.assert_close(features, before)
        torch.testing.assert_close(classifier.head(features), wanted)


def test_a_wrong_name_is_one_sentence(timm: ModuleType) -> None:
    says = r"model 'resnet81'; did you mean 'resnet\d+'.* See timm\.list_models\(\)\.$"
    with pytest.raises(UserError, match=says) as caught:
        construct("timm/resnet81", Squares())
    assert len(str(caught.value)) < 400


def test_a_transformer_is_built_for_the_images_of_the_dataset(timm: ModuleType) -> None:
    classifier = construct("timm/vit_tiny_patch16_224", Squares())
    with torch.no_grad():
        assert classifier(torch.rand(2, 3, 32, 32)).shape == (2, 4)
    assert classifier.net.pos_embed.shape[1] == 1 + (32 // 16) ** 2


def test_a_file_of_timms_weights_is_loaded_kept_and_recalled(timm: ModuleType, tmp_path: Path) -> None:
    net = made(timm, "resnet18")
    torch.save(net.state_dict(), tmp_path / "mine.pth")
    brought = bring("timm/resnet18", Squares(), checkpoint=tmp_path / "mine.pth")
    again = recall("timm/resnet18", Squares(), brought.sha256)
    assert again is not None
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again.classifier(x), net(again.classifier.normalize(x)))


@pytest.mark.filterwarnings("ignore:timm/resnet18 on tiny-c-local")
@pytest.mark.usefixtures("own_data")
def test_a_sweep_over_a_small_dataset(timm: ModuleType, ttabench: Run, tmp_path: Path) -> None:
    squares = Squares().test()
    np.savez(tmp_path / "tiny.npz", images=squares.images, labels=squares.labels)
    generated = ttabench(
        "data", "generate", tmp_path / "tiny.npz", "--corruptions", "fog", "--severities", "5",
        "--workers", "0",
    )  # fmt: skip
    assert generated.code == 0, generated.err
    torch.save(made(timm, "resnet18").state_dict(), tmp_path / "mine.pth")
    output = ttabench(
        "sweep", "--archs", "timm/resnet18", "--checkpoint", tmp_path / "mine.pth",
        "--datasets", "tiny-c-local", "--methods", "bn_stats", "--corruptions", "fog",
        "--workers", "0", "--out", tmp_path / "out",
    )  # fmt: skip
    assert output.code == 0, output.err
    cells = load_frame(tmp_path / "out")
    assert set(cells["arch"]) == {"timm/resnet18"}
    assert sorted(cells["method"]) == ["bn_stats", "source"]
    assert set(cells["status"]) == {"ok"}
