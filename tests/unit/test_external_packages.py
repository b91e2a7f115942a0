"""torchvision and transformers, each played by a stand-in of the few functions that are used.

One test opens a network with transformers themselves, where they are installed.
"""

from __future__ import annotations

import enum
import socketserver
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.models_by_name import bring, construct, recall
from tests.unit.test_bring import Quarters, Squares
from ttabench.errors import UserError
from ttabench.models.external import hugging_face_hub
from ttabench.models.external.hugging_face_hub import check_reachable


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path / "cache"))


# ---- torchvision


class Transforms:
    def __init__(self, std: float) -> None:
        self.mean, self.std = [0.5, 0.5, 0.5], [std, std, std]


class Weights(enum.Enum):
    V1 = 0.2
    V2 = 0.25
    DEFAULT = V2

    @property
    def url(self) -> str:
        return f"https://example.org/quarters-{self.name}.pth"

    def transforms(self) -> Transforms:
        return Transforms(self.value)


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The weights that were asked for."""
    asked: list[Any] = []

    def get_model(name: str, weights: Any = None, num_classes: int = 1000) -> nn.Module:
        asked.append(weights)
        if name == "unreachable" and weights is not None:
            raise OSError("<urlopen error>\nmore")
        net = Quarters(4 if weights is not None and name != "thousand" else num_classes)
        if weights is None:
            nn.init.zeros_(net.fc.weight)
        return net

    models = types.ModuleType("torchvision.models")
    models.list_models = lambda module=None: ["quarters", "thousand", "unreachable"]  # type: ignore[attr-defined]
    models.get_model = get_model  # type: ignore[attr-defined]
    models.get_model_weights = lambda name: Weights  # type: ignore[attr-defined]
    package = types.ModuleType("torchvision")
    package.models = models  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    return asked


def test_torchvision_models_come_with_weights_and_their_normalisation(torchvision: list[Any]) -> None:
    brought = bring("torchvision/quarters", Squares())
    assert brought.clean_accuracy == 100.0
    assert Weights.V2 in torchvision
    torch.testing.assert_close(brought.classifier.normalize.std.flatten(), torch.full((3,), 0.25))
    again = recall("torchvision/quarters", Squares(), brought.sha256)
    assert again is not None
    assert again.clean_accuracy == 100.0


def test_torchvision_weights_can_be_named(torchvision: list[Any]) -> None:
    brought = bring("torchvision/quarters:V1", Squares())
    assert Weights.V1 in torchvision
    torch.testing.assert_close(brought.classifier.normalize.std.flatten(), torch.full((3,), 0.2))


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize(
    ("arch", "says"),
    [
        ("torchvision/quartres", "unknown torchvision model 'quartres'; did you mean 'quarters'"),
        ("torchvision/quarters:V3", "unknown weights of torchvision/quarters 'V3'; did you mean 'V"),
        ("torchvision/thousand", "torchvision/thousand has 1000 classes, but squares-c has 4"),
        (
            "torchvision/unreachable",
            r"weights https://example.org/quarters-V2.pth of torchvision/unreachable cannot be loaded "
            r"\(<urlopen error>\).*--archs torchvision/unreachable --checkpoint FILE",
        ),
    ],
)
def test_wrong_torchvision_models_are_one_sentence(arch: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        bring(arch, Squares())
    assert "\n" not in str(caught.value)


def test_torchvision_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UserError, match=r"pip install 'ttabench\[timm\]'"):
        construct("torchvision/resnet50", Squares())


# ---- transformers


class Answer:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class ImageClassifier(nn.Module):
    """As in transformers, the output is an object and the input has a name."""

    def __init__(self) -> None:
        super().__init__()
        self.quarters = Quarters()

    def forward(self, pixel_values: Tensor) -> Answer:
        return Answer(self.quarters(pixel_values))


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options that every fetching call was given."""
    calls: list[dict[str, Any]] = []

    def fetched(make: Any) -> Any:
        def from_pretrained(name: str, **options: Any) -> Any:
            calls.append(options)
            if name == "nobody/nothing":
                raise OSError("nobody/nothing is not a local folder\nand more")
            return make()

        return from_pretrained

    def untrained(config: Any) -> nn.Module:
        net = ImageClassifier()
        nn.init.zeros_(net.quarters.fc.weight)
        return net

    processor = types.SimpleNamespace(image_mean=[0.5, 0.5, 0.5], image_std=[0.25, 0.25, 0.25])
    package = types.ModuleType("transformers")
    package.AutoConfig = types.SimpleNamespace(from_pretrained=fetched(dict))  # type: ignore[attr-defined]
    package.AutoImageProcessor = types.SimpleNamespace(from_pretrained=fetched(lambda: processor))  # type: ignore[attr-defined]
    package.AutoModelForImageClassification = types.SimpleNamespace(  # type: ignore[attr-defined]
        from_pretrained=fetched(ImageClassifier), from_config=untrained
    )
    monkeypatch.setitem(sys.modules, "transformers", package)
    monkeypatch.setattr(hugging_face_hub, "check_reachable", lambda *names: None)
    return calls


def test_transformers_classifiers_come_with_weights_and_normalisation(
    transformers: list[dict[str, Any]],
) -> None:
    brought = bring("hf/someone/quarters", Squares())
    assert brought.clean_accuracy == 100.0
    torch.testing.assert_close(brought.classifier.normalize.std.flatten(), torch.full((3,), 0.25))
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        features, logits = brought.classifier.features_and_logits(x)
        torch.testing.assert_close(brought.classifier.head(features), logits)
    assert recall("hf/someone/quarters", Squares(), brought.sha256) is not None
    assert all(options["trust_remote_code"] is False for options in transformers)  # nobody's code is run
    assert any(options.get("use_safetensors") for options in transformers)


@pytest.mark.usefixtures("transformers")
def test_a_repository_that_cannot_be_had_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"hf/nobody/nothing cannot be loaded .*give its folder: hf/FOLDER\.$"
    ):
        bring("hf/nobody/nothing", Squares())


def test_a_hub_out_of_reach_is_told_at_once(
    transformers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers itself tries for half a minute."""
    monkeypatch.setattr(hugging_face_hub, "check_reachable", check_reachable)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(
        UserError, match=r"hf/someone/quarters cannot be loaded \(.*give its folder: hf/FOLDER"
    ):
        bring("hf/someone/quarters", Squares())
    assert transformers == []


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 404 Not Found\r\n\r\n"])
def test_a_space_in_a_name_and_an_answer_that_is_no_http_are_one_sentence(
    transformers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(hugging_face_hub, "check_reachable", check_reachable)
    monkeypatch.setenv("no_proxy", "*")
    asked: list[bytes] = []

    class Server(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.request.recv(1000))
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Server) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        if answer.startswith(b"HTTP"):  # there is a hub; what it lacks is said by the package
            check_reachable("some one/quarters", "config.json")
        else:
            with pytest.raises(UserError, match=r"hf/some one/quarters cannot be loaded \(no hub .*SSH-2"):
                bring("hf/some one/quarters", Squares())
        thread.join()
    assert asked[0].startswith(b"HEAD /some%20one/quarters/resolve/main/config.json ")
    assert transformers == []
    monkeypatch.setenv("HF_ENDPOINT", "http://a hub")
    with pytest.raises(UserError, match=r"cannot be loaded \(no hub answers at http://a hub/"):
        bring("hf/someone/quarters", Squares())


def test_a_folder_needs_no_hub(
    transformers: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hugging_face_hub, "check_reachable", lambda *names: pytest.fail("the hub was asked"))
    assert bring(f"hf/{tmp_path}", Squares()).clean_accuracy == 100.0


def test_transformers_themselves_open_a_folder(tmp_path: Path) -> None:
    package = pytest.importorskip("transformers")
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = package.ViTConfig(**size, image_size=32, patch_size=8, num_labels=4)
    net = package.ViTForImageClassification(config).eval()
    net.save_pretrained(tmp_path)
    processor = package.ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.1, 0.2, 0.3])
    processor.save_pretrained(tmp_path)
    classifier = bring(f"hf/{tmp_path}", Squares()).classifier
    torch.testing.assert_close(classifier.normalize.mean.flatten(), torch.tensor([0.1, 0.2, 0.3]))
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(classifier(x), net(classifier.normalize(x)).logits)


def test_transformers_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'ttabench\[hf\]'"):
        construct("hf/google/vit-base-patch16-224", Squares())
