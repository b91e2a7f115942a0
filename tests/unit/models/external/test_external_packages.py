"""torchvision and transformers, each played by a stand-in of the few functions that are used.

One test opens a network with transformers themselves, where they are installed.
"""

from __future__ import annotations

import enum
import re
import socketserver
import sys
import threading
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.conftest import Run
from tests.unit.models.test_bring import Quarters, Squares
from tests.unit.models_by_name import bring, construct, recall
from ttabench.errors import UserError
from ttabench.models.external import hugging_face_hub, packages
from ttabench.models.external.hugging_face_hub import check_reachable

pytestmark = pytest.mark.usefixtures("own_cache")


def or_skip(package: str) -> Any:
    """The package itself, where it can be imported."""
    try:
        return packages.imported(package, "this test")
    except UserError as problem:
        pytest.skip(str(problem))


class Photos(Squares):
    """As many classes as ImageNet, and images that are large enough for every network."""

    num_classes = 1000
    image_size = 96


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


class Inception(Quarters):
    """As in torchvision, the builder has other options with pretrained weights than without."""

    def __init__(
        self,
        name: str,
        pretrained: bool,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool | None = None,
    ) -> None:
        super().__init__()
        self.transform_input = transform_input or pretrained
        if aux_logits and not (pretrained and name == "googlenet"):
            self.aux = nn.Linear(1, 4)
        if not pretrained:
            assert init_weights is False, "this takes a minute, and the builder warns"
            nn.init.zeros_(self.fc.weight)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x if self.transform_input else x)


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The weights that were asked for."""
    asked: list[Any] = []

    def get_model(name: str, weights: Any = None, num_classes: int = 1000, **options: bool) -> nn.Module:
        asked.append(weights)
        if name in ("googlenet", "inception_v3"):
            return Inception(name, weights is not None, **options)
        if options:
            raise TypeError(f"unexpected keyword arguments {options}")
        if name == "unreachable" and weights is not None:
            raise OSError("<urlopen error>\nmore")
        net = Quarters(4 if weights is not None and name != "thousand" else num_classes)
        if weights is None:
            nn.init.zeros_(net.fc.weight)
        return net

    models = types.ModuleType("torchvision.models")
    names = ["googlenet", "inception_v3", "quarters", "thousand", "unreachable"]
    models.list_models = lambda module=None: names  # type: ignore[attr-defined]
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
    assert brought.note["origin"] == f"torchvision/quarters:V1 (V1, {Weights.V1.url.rpartition('/')[2]})"
    torch.testing.assert_close(brought.classifier.normalize.std.flatten(), torch.full((3,), 0.2))


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_torchvision_networks_are_made_again_as_the_pretrained_ones(name: str) -> None:
    brought = bring(f"torchvision/{name}", Squares())
    assert brought.clean_accuracy == 100.0
    again = recall(f"torchvision/{name}", Squares(), brought.sha256)
    assert again is not None
    assert again.classifier.net.transform_input is True


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_torchvision_itself_makes_them_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = or_skip("torchvision").models
    torch.manual_seed(0)
    random = models.get_model(name, init_weights=False).state_dict()
    monkeypatch.setattr(models.get_model_weights(name), "get_state_dict", lambda *_, **__: random)
    images = Photos()
    pretrained = construct(f"torchvision/{name}", images, pretrained=True)
    again = construct(f"torchvision/{name}", images)
    assert again.net.transform_input is pretrained.net.transform_input is True
    again.net.load_state_dict(pretrained.net.state_dict())
    x = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        torch.testing.assert_close(again(x), pretrained(x))


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
    with pytest.raises(
        UserError, match=r"^torchvision/resnet50 needs torchvision \(.*: pip install torchvision\.$"
    ):
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
def processor() -> types.SimpleNamespace:
    """The image processor of every repository."""
    return types.SimpleNamespace(
        do_normalize=True, image_mean=[0.5, 0.5, 0.5], image_std=[0.25, 0.25, 0.25],
        do_flip_channel_order=False, include_top=False, rescale_offset=None,
    )  # fmt: skip


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch, processor: types.SimpleNamespace) -> list[dict[str, Any]]:
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
@pytest.mark.parametrize("says", [False, None])
def test_a_processor_that_does_not_normalise_leaves_the_pixels_as_they_are(
    processor: types.SimpleNamespace, says: bool | None
) -> None:
    processor.do_normalize = says
    for net in (
        construct("hf/someone/quarters", Squares()),
        bring("hf/someone/quarters", Squares()).classifier,
    ):
        assert net.normalize.mean.flatten().tolist() == [0, 0, 0]
        assert net.normalize.std.flatten().tolist() == [1, 1, 1]
    del processor.image_mean, processor.image_std
    assert construct("hf/someone/quarters", Squares()).normalize.mean.flatten().tolist() == [0, 0, 0]


@pytest.mark.usefixtures("transformers")
def test_one_mean_is_that_of_all_channels(processor: types.SimpleNamespace) -> None:
    processor.image_mean, processor.image_std = 0.5, 2
    normalize = construct("hf/someone/quarters", Squares()).normalize
    assert normalize.mean.flatten().tolist() == [0.5, 0.5, 0.5]
    assert normalize.std.flatten().tolist() == [2, 2, 2]


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize(
    ("changes", "multiplier"),
    [
        ({"do_rescale": True, "rescale_factor": 1 / 255}, 1),
        ({"do_rescale": True, "rescale_factor": 2 / 255}, 2),
        ({"do_rescale": False, "rescale_factor": 1 / 255}, 255),
        ({"do_rescale": None}, 255),  # the default of the fast image processors
        ({"do_rescale": False, "do_normalize": False}, 255),
    ],
)
def test_the_scale_of_the_pixels_is_that_of_the_processor(
    processor: types.SimpleNamespace, changes: dict[str, Any], multiplier: float
) -> None:
    vars(processor).update(changes)
    pixels = torch.rand(2, 3, 4, 4)
    expected = pixels * multiplier
    if processor.do_normalize:
        expected = (expected - 0.5) / 0.25
    normalize = construct("hf/someone/quarters", Squares()).normalize
    torch.testing.assert_close(normalize(pixels), expected, rtol=1e-5, atol=1e-5 * multiplier)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"include_top": True}, r"normalises twice \(include_top\)"),
        ({"include_top": True, "do_normalize": False}, r"normalises twice \(include_top\)"),
        ({"rescale_offset": True}, r"shifts the pixels \(rescale_offset\)"),
        ({"image_mean": None}, "states no image_mean and image_std"),
        ({"image_std": None}, "states no image_mean and image_std"),
    ],
)
def test_a_processor_that_does_not_say_one_normalisation_needs_one_by_name(
    transformers: list[dict[str, Any]], processor: types.SimpleNamespace, changes: dict[str, Any], says: str
) -> None:
    vars(processor).update(changes)
    needs = rf"the image processor of hf/someone/quarters {says}; .* with --normalize: imagenet, cifar10, "
    with pytest.raises(UserError, match=needs):
        bring("hf/someone/quarters", Squares())
    assert not any("use_safetensors" in options for options in transformers)  # the weights may be large
    named = bring("hf/someone/quarters", Squares(), normalize="half")
    assert named.classifier.normalize.mean.flatten().tolist() == [0.5, 0.5, 0.5]
    again = recall("hf/someone/quarters", Squares(), named.sha256)  # as workers do, who do not know the name
    assert again is not None
    assert again.classifier.normalize.mean.flatten().tolist() == [0.5, 0.5, 0.5]


@pytest.mark.usefixtures("transformers")
def test_a_processor_without_means_needs_a_normalisation_by_name(processor: types.SimpleNamespace) -> None:
    """As that of timm's networks."""
    vars(processor).clear()
    with pytest.raises(UserError, match=r"states no image_mean and image_std; .* --normalize"):
        bring("hf/someone/quarters", Squares())
    assert bring("hf/someone/quarters", Squares(), normalize="none").clean_accuracy == 100.0


@pytest.mark.usefixtures("transformers")
def test_a_file_for_a_network_whose_processor_says_no_normalisation_needs_one_too(
    processor: types.SimpleNamespace, tmp_path: Path
) -> None:
    processor.include_top = True
    file = tmp_path / "mine.pt"
    torch.save(ImageClassifier().state_dict(), file)
    with pytest.raises(UserError, match="normalises twice"):
        bring("hf/someone/quarters", Squares(), checkpoint=file)
    assert bring("hf/someone/quarters", Squares(), checkpoint=file, normalize="half").clean_accuracy == 100.0


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("normalize", ["", "imagenet"])
def test_a_network_for_bgr_is_refused(processor: types.SimpleNamespace, normalize: str) -> None:
    processor.do_flip_channel_order, processor.do_normalize = True, None
    with pytest.raises(
        UserError, match=r"blue before red \(do_flip_channel_order .*\), but ttabench gives RGB;"
    ):
        bring("hf/someone/quarters", Squares(), normalize=normalize)


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "\nAutoImageProcessor requires the PIL library but it was not found in your environment. You can "
            "install it with pip:\n`pip install pillow`.\n",
            r"\(AutoImageProcessor requires the PIL library but it was not found in your environment\)",
        ),
        ("No module named 'torchvision'", r"\(No module named 'torchvision'\)"),
    ],
)
def test_a_package_that_a_processor_lacks_is_one_sentence(text: str, says: str) -> None:
    """transformers raises as soon as the class is asked for a method."""

    class Dummy(type):
        def __getattr__(cls, name: str) -> Any:
            try:
                raise ImportError(text)
            except ImportError as problem:
                raise ImportError("Could not import module 'AutoImageProcessor'") from problem

    package = sys.modules["transformers"]
    package.AutoImageProcessor = Dummy("AutoImageProcessor", (), {})  # type: ignore[attr-defined]
    sentence = f"^hf/someone/quarters needs a package that is missing or broken {says}: install it\\.$"
    with pytest.raises(UserError, match=sentence):
        bring("hf/someone/quarters", Squares())


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
    asked: list[bytes] = []

    class Server(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.request.recv(1000))
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Server) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.handle_request, daemon=True)
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


@pytest.mark.parametrize(
    "says", [{}, {"do_rescale": False}, {"rescale_factor": 1 / 127.5}, {"do_normalize": False}]
)
def test_transformers_themselves_open_a_folder(tmp_path: Path, says: dict[str, Any]) -> None:
    or_skip("torchvision")  # which it imports
    package = or_skip("transformers")
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = package.ViTConfig(**size, image_size=32, patch_size=8, num_labels=4)
    net = package.ViTForImageClassification(config).eval()
    net.save_pretrained(tmp_path)
    processor = package.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.4, 0.6], **says
    )
    processor.save_pretrained(tmp_path)
    classifier = bring(f"hf/{tmp_path}", Squares()).classifier
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    processed = processor(images=list(pixels), return_tensors="pt").pixel_values.float()
    x = pixels / 255
    torch.testing.assert_close(classifier.normalize(x), processed)
    with torch.no_grad():
        torch.testing.assert_close(classifier(x), net(pixel_values=processed).logits)


def test_transformers_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'ttabench\[hf\]'"):
        construct("hf/google/vit-base-patch16-224", Squares())


# ---- a torchvision that was made for another torch


@pytest.fixture
def of_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision as it fails beside a torch of another build, and packages that import it."""
    fails = {"torchvision": 'raise RuntimeError("operator torchvision::nms does not exist")'}
    for name in ("torchvision", "timm", "open_clip"):
        (tmp_path / f"{name}.py").write_text(fails.get(name, "import torchvision"))
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


OF_ANOTHER_TORCH = (
    "(operator torchvision::nms does not exist): torchvision was made for another torch; install both from "
    "one index: pip install --force-reinstall torch torchvision."
)


@pytest.mark.usefixtures("of_another_torch")
@pytest.mark.parametrize("arch", ["timm/resnet18", "torchvision/resnet18", "clip/ViT-B-32.openai"])
def test_a_torchvision_of_another_torch_is_one_sentence_with_the_cure(arch: str) -> None:
    with pytest.raises(UserError, match=rf"^{arch} needs \w+ {re.escape(OF_ANOTHER_TORCH)}$"):
        construct(arch, Squares())


@pytest.mark.usefixtures("of_another_torch")
@pytest.mark.parametrize(
    "lines", [("import torchvision", "def build(): ..."), ("def build():", "    import torchvision")]
)
def test_a_network_of_ones_own_that_imports_it_says_the_cure(lines: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "takes_torchvision.py").write_text("\n".join(lines))
    try:
        with pytest.raises(UserError, match=r"nms does not exist: torchvision was made .* torchvision\.$"):
            construct("takes_torchvision:build", Squares())
    finally:
        sys.modules.pop("takes_torchvision", None)


def test_list_and_doctor_say_it_and_all_else_is_well(ttabench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "made_for_another_torch", lambda: "torchvision does not fit")
    output = ttabench("list", "archs")
    assert output.code == 0
    assert (
        "Not usable here: timm/, torchvision/, robustbench/, clip/. torchvision does not fit." in output.out
    )
    output = ttabench("doctor")
    assert output.code == 0
    assert (
        " torchvision does not fit; networks of timm, torchvision, RobustBench and open_clip " in output.out
    )
    assert output.out.endswith("\nall is well otherwise\n")


@pytest.mark.parametrize(
    ("torch_here", "torchvision_here", "asks", "fits"),
    [
        ("2.13.0+cpu", "0.28.0+cu130", "torch (==2.13.0)", False),
        ("2.13.0+cu130", "0.28.0+cpu", "torch==2.13.0", False),
        ("2.12.1", "0.28.0+cu130", "torch (==2.13.0)", False),
        ("2.13.0", "0.28.0+cu130", "torch (==2.13.0)", True),  # the index's own build states none
        ("2.13.0+cpu", "0.28.0+cpu", "torch==2.13.0", True),
        ("2.13.0+cpu", "0.28.0a0+8fb8771", "torch==2.13.0", True),  # made here from source: nothing is known
    ],
)
def test_a_torchvision_that_does_not_fit_is_told_without_an_import(
    torch_here: str, torchvision_here: str, asks: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages.metadata, "version", {"torch": torch_here}.__getitem__)
    monkeypatch.setattr(packages.metadata, "requires", lambda name: ["numpy", "torchdata>=1", asks])
    monkeypatch.setattr(packages, "_version_with_build", lambda: torchvision_here)
    says = packages.made_for_another_torch()
    assert (says == "") is fits
    if not fits:
        assert says.startswith(
            f"torchvision {torchvision_here} does not fit torch {torch_here}: install both"
        )


# ---- the plain install


def test_the_plain_install_brings_timm_and_torchvision_and_pins_them() -> None:
    """RobustBench is apart: it asks for exact versions."""
    root = Path(__file__).resolve().parents[4]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    assert {"torch", "torchvision", "timm"} <= names
    assert "robustbench" not in names
    assert "robustbench" in project["optional-dependencies"]
    for file in ("constraints.txt", "constraints-external.txt"):
        pinned = {line.partition("==")[0].lower() for line in (root / file).read_text().splitlines()}
        assert names <= pinned, file
