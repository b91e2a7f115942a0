"""Models from outside: weight files, Python paths, timm names, and the guard on clean accuracy."""

from __future__ import annotations

import importlib
import json
import pickle
import re
import sys
import tomllib
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.cases import each
from tests.unit import other_code
from tests.unit.models_by_name import bring, construct, load, recall
from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset, Labelled
from ttabench.errors import UserError
from ttabench.models import clean_accuracy, input_trials
from ttabench.models.architectures.build import build
from ttabench.models.checkpoints import cache
from ttabench.models.checkpoints.read_weights import read_weights
from ttabench.models.checkpoints.weights import load_weights
from ttabench.models.clean_accuracy import accuracy_warning
from ttabench.models.external import external_model, hugging_face_hub
from ttabench.models.external.checkpoint_model import CLAIMS
from ttabench.models.external.external_model import ExternalModel
from ttabench.sweep.options_to_grid import arch_spelling
from ttabench.sweep.train_sources import without_normalize

pytestmark = pytest.mark.usefixtures("own_cache")


class Squares(Dataset):
    """Four classes: which quarter of the image is bright."""

    name = "squares-c"
    num_classes = 4
    image_size = 32
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)
    corruptions = ()

    def fingerprint(self) -> str:
        return "0" * 64

    def train(self) -> Labelled:
        return self.test()

    def test(self) -> Labelled:
        labels = np.arange(40, dtype=np.int64) % 4
        images = np.zeros((40, 32, 32, 3), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[16 * (label // 2) :, 16 * (label % 2) :][:16, :16] = 200
        return Labelled(images, labels)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        raise NotImplementedError


class Quarters(nn.Module):
    """Averages each quarter; classes are told apart exactly."""

    def __init__(self, num_classes: int = 4) -> None:
        super().__init__()
        self.fc = nn.Linear(4, num_classes)
        with torch.no_grad():
            self.fc.weight.copy_(torch.eye(num_classes, 4))
            self.fc.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(nn.functional.adaptive_avg_pool2d(x.mean(1, keepdim=True), 2).flatten(1))
        return logits


class OwnSquares(Squares):
    name = "squares-c-local"


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user's module ``mynets`` in the folder the command is run from."""
    (tmp_path / "mynets.py").write_text(
        "from ttabench.classifier import Classifier\n"
        "from test_bring import Quarters\n"
        "def build(num_classes): return Quarters(num_classes)\n"
        "def wrapped(): return Classifier(Quarters(), last='fc', mean=(.1,) * 3, std=(.2,) * 3)\n"
        "def wide(**facts): return Quarters(num_classes=facts['num_classes'] + 1)\n"
        "def narrow(): return Quarters(num_classes=3)\n"
        "def rows():\n    import torch\n"
        "    net = Quarters(num_classes=6)\n"
        "    few = torch.nn.Linear(4, 4)\n"
        "    few.load_state_dict({name: value[:4] for name, value in net.fc.state_dict().items()})\n"
        "    net.fc = few\n"
        "    return net\n"
        "def cut():\n    import torch\n"
        "    net = Quarters(num_classes=6)\n"
        "    net.fc.weight = torch.nn.Parameter(net.fc.weight.data[:4])\n"
        "    net.fc.bias = torch.nn.Parameter(net.fc.bias.data[:4])\n"
        "    return net\n"
        "def guesses():\n"
        "    net = Quarters()\n"
        "    net.fc.weight.data.zero_()\n"
        "    return net\n"
        "def headless(): import torch; return torch.nn.Flatten()\n"
        "def text(): return 'net'\n"
        "def broken(num_classes): return 1 / 0\n"
        "def long_text(num_classes): raise ValueError('first line\\nsecond line')\n"
        "def needs_more(num_classes, depth): return Quarters(num_classes)\n"
        "def diverged(num_classes):\n"
        "    net = Quarters(num_classes)\n"
        "    net.fc.bias.data.fill_(float('nan'))\n"
        "    return net\n"
        "def random_scale(num_classes):\n"
        "    import torch\n"
        "    net = Quarters(num_classes)\n"
        "    net.scale = torch.rand(())  # no parameter and no buffer\n"
        "    net.register_forward_pre_hook(lambda module, inputs: module.scale * inputs[0])\n"
        "    return net\n"
        "def half(num_classes): return Quarters(num_classes).half()\n"
        "def nan_buffer(num_classes):\n    import torch\n"
        "    net = Quarters(num_classes)\n"
        "    net.register_buffer('running', torch.tensor([float('nan')]))\n"
        "    return net\n"
        "def grows(num_classes):\n    import torch\n"
        "    grows.made = getattr(grows, 'made', 0) + 1\n"
        "    net = Quarters(num_classes)\n"
        "    net.extra = torch.nn.Linear(1, grows.made)\n"
        "    return net\n"
        "made = Quarters()\n"
        "def hidden():\n    import torch\n"
        "    net = torch.nn.Sequential(Quarters(), torch.nn.Linear(4, 4))\n"
        "    return Classifier(net, last='0.fc')\n"
        "def normed(num_classes):\n    import torch\n"
        "    return torch.nn.Sequential(torch.nn.BatchNorm2d(3), Quarters(num_classes))\n"
        "import torch\n"
        "@torch.inference_mode()\ndef no_learning(num_classes): return Quarters(num_classes)\n"
        "def on_meta(num_classes): return Quarters(num_classes).to('meta')\n"
        "def lazy(num_classes): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(4))\n"
        "class Keeps(Quarters):\n    def get_extra_state(self): return {'a': 1}\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])
    monkeypatch.delitem(sys.modules, "mynets", raising=False)


def small() -> Classifier:
    torch.manual_seed(0)
    return build("cvt_2_4", dataset="any", num_classes=4, image_size=32, mean=(0.5,) * 3, std=(0.5,) * 3)


# ---- weight files


def save_npz(tensors: dict[str, Tensor], path: Path) -> None:
    np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})


SAVERS: dict[str, Callable[[dict[str, Tensor], Path], object]] = {
    "plain.safetensors": lambda t, p: save_file({k: v.contiguous() for k, v in t.items()}, p),
    "plain.npz": save_npz,
    "plain.pth": torch.save,
    "parallel.pt": lambda t, p: torch.save({f"module.{k}": v for k, v in t.items()}, p),
    "parallel.th": lambda t, p: torch.save({"state_dict": {f"module.{k}": v for k, v in t.items()}}, p),
    "training.tar": lambda t, p: torch.save({"epoch": 3, "state_dict": t, "optimizer": {"lr": 0.1}}, p),
    "compiled.ckpt": lambda t, p: torch.save(
        {"model": {f"module._orig_mod.{k}": v for k, v in t.items()}, "best": 91.0}, p
    ),
}


@pytest.mark.parametrize("name", SAVERS)
def test_weights_are_read_from_every_usual_file(name: str, tmp_path: Path) -> None:
    wanted = small().net.state_dict()
    SAVERS[name](wanted, tmp_path / name)
    result = read_weights(tmp_path / name)
    assert result.keys() == wanted.keys()
    assert all(torch.equal(result[k], wanted[k]) for k in wanted)


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("owned"),))


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_a_hostile_pickle_is_refused_and_not_run(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"weights{suffix}"
    if suffix == ".pt":
        torch.save({"state_dict": Hostile()}, file)
    else:
        np.savez(file, weight=np.array([Hostile()], dtype=object))
    with pytest.raises(UserError) as caught:
        read_weights(file)
    assert not re.search("allow_pickle|weights_only", str(caught.value))
    assert not (tmp_path / "owned").exists()
    pickle.loads(pickle.dumps(Hostile()))  # it would have worked
    assert (tmp_path / "owned").exists()


def test_no_torch_is_allowed_that_runs_what_a_file_of_weights_holds() -> None:
    """Before 2.6, torch.load could be made to do so with weights_only too (CVE-2025-32434)."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (torchs,) = (one for one in map(Requirement, project["dependencies"]) if one.name == "torch")
    assert not torchs.specifier.contains("2.5.1")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.pt", b"<!DOCTYPE html><html>403", "is a web page, not weights"),
        ("a.safetensors", b"\x08\x00", "truncated or no safetensors file"),
        ("a.npz", b"PK\x03\x04 not all of it", "truncated or no npz file"),
        ("a.pth", b"", "truncated or no pth file"),
        ("a.zip", b"", "'.zip' is not a format of weights that ttabench reads: .safetensors, .npz"),
    ],
)
def test_a_file_that_is_no_weights_is_explained(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("count", [10**15, 2**64])
def test_an_npz_that_promises_more_than_it_holds_is_refused(count: int, tmp_path: Path) -> None:
    """Memory for it would be asked for before the first number is read."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (count,)}
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(400))
    with pytest.raises(UserError, match=r"the header of a\.npy promises [\d,]+ bytes"):
        read_weights(tmp_path / "a.npz")


def test_an_npz_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttabench.data.files.whole_archive.RATIO_COUNTS_FROM", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1 << 20, np.float32))
    with pytest.raises(UserError, match=r"a\.npy would unpack from [\d,]+ to 4,194,\d+ bytes"):
        read_weights(tmp_path / "a.npz")


def test_a_missing_file_and_one_without_tensors_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        read_weights(tmp_path / "none.pt")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(UserError, match="holds no tensors"):
        read_weights(tmp_path / "empty.pt")


# ---- checkpoints of our architectures


def test_a_checkpoint_is_measured_kept_and_recalled_when_its_file_is_gone(tmp_path: Path) -> None:
    net, file, squares = small().net, tmp_path / "mine.pth", Squares()
    torch.save(net.state_dict(), file)
    brought = bring("cvt_2_4", squares, checkpoint=file)
    file.unlink()
    again = recall("cvt_2_4", squares, brought.sha256)
    assert again is not None
    assert again.clean_accuracy == brought.clean_accuracy
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(again.classifier(x), net((x - 0.5) / 0.5))
    assert recall("cvt_2_4", squares, "0" * 64) is None
    assert recall("cct", squares, brought.sha256) is None


def test_weights_that_were_trained_here_and_brought_too_are_described_as_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    folder = cache.folder("squares-c")
    folder.mkdir(parents=True)
    (folder / "w.safetensors").touch()
    known = {"arch": "resnet18", "weights": "w.safetensors", "sha256": "c" * 64, "clean_accuracy": 90.0}
    for name, recipe in (("a", "brought"), ("b", "fast"), ("c", "brought")):
        (folder / f"{name}.json").write_text(json.dumps({**known, "recipe": {"name": recipe}}))
    found = cache.with_hash("squares-c", ["resnet18"], "c" * 64)
    assert found is not None
    assert found.path.name == "b.json"
    assert cache.with_hash("squares-c", ["cct"], "c" * 64) is None


def test_weights_that_were_trained_here_too_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, squares = tmp_path / "mine.pth", Squares()
    torch.save(small().net.state_dict(), file)
    first = bring("cvt_2_4", squares, checkpoint=file)
    (described,) = cache.folder(squares.name).glob("*.json")
    names = ("arch", "dataset", "weights", "sha256", "mean", "std", "clean_accuracy")
    kept = {name: json.loads(described.read_text())[name] for name in names}
    described.with_name("cvt_2_4-fast-1.json").write_text(json.dumps({**kept, "recipe": {"name": "fast"}}))
    monkeypatch.setattr(external_model, "predictions", lambda *rest: pytest.fail("measured again"))
    assert bring("cvt_2_4", squares, checkpoint=file).note == first.note


def test_normalisation_is_part_of_the_identity(tmp_path: Path) -> None:
    file, squares = tmp_path / "mine.pth", Squares()
    torch.save(small().net.state_dict(), file)
    plain = bring("cvt_2_4", squares, checkpoint=file)
    other = bring("cvt_2_4", squares, checkpoint=file, normalize="imagenet")
    assert plain.sha256 != other.sha256
    kept = recall("cvt_2_4", squares, other.sha256)
    assert kept is not None
    torch.testing.assert_close(kept.classifier.normalize.mean.flatten(), torch.tensor([0.485, 0.456, 0.406]))
    with pytest.raises(UserError, match="unknown normalisation 'imagenett'; did you mean 'imagenet'"):
        bring("cvt_2_4", squares, checkpoint=file, normalize="imagenett")


@pytest.mark.usefixtures("nets")
def test_other_class_counts_and_architectures_are_said_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "hundred.pth"
    hundred = build("cvt_2_4", dataset="any", num_classes=100, image_size=32, mean=(0.5,) * 3, std=(0.5,) * 3)
    torch.save(hundred.net.state_dict(), file)
    with pytest.raises(UserError, match=r"hundred\.pth has 100 classes, but squares-c has 4\."):
        bring("cvt_2_4", Squares(), checkpoint=file)
    with pytest.raises(UserError, match=r"4: .* new nn\.Linear .* each class of the network, .* last, 99\."):
        bring("cvt_2_4", OwnSquares(), checkpoint=file)
    with pytest.raises(
        UserError, match=r"mynets:wide has 5 classes, but squares-c-local has 4: .* the last, 4\."
    ):
        bring("mynets:wide", OwnSquares())
    with pytest.raises(
        UserError, match=r"3 classes, but squares-c-local has 4: .* without the images of classes"
    ):
        bring("mynets:narrow", OwnSquares())
    assert bring("mynets:rows", OwnSquares()).clean_accuracy == 100.0
    with pytest.raises(UserError, match=r"mynets:cut has 6 classes, .* ends in a new nn\.Linear"):
        bring("mynets:cut", OwnSquares())  # its last layer still says that it has six outputs
    torch.save(small().net.state_dict(), file)
    with pytest.raises(UserError, match="is of another architecture"):
        bring("resnet20", Squares(), checkpoint=file)


def test_our_architecture_without_weights_asks_for_them() -> None:
    with pytest.raises(UserError, match="resnet20 has not been trained on squares-c; run ttabench train"):
        bring("resnet20", Squares())


# ---- Python paths


@pytest.mark.usefixtures("nets")
def test_a_module_from_a_python_path_is_wrapped_and_measured() -> None:
    brought = bring("mynets:build", Squares())
    assert brought.clean_accuracy == 100.0
    assert brought.note["warning"] == ""
    assert (brought.classifier.last, brought.classifier.num_features) == ("fc", 4)
    again = recall("mynets:build", Squares(), brought.sha256)
    assert again is not None
    assert again.clean_accuracy == 100.0


@pytest.mark.usefixtures("nets")
def test_a_network_with_the_same_weights_that_computes_something_else_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "mynets.py"
    forget_code()
    before = bring("mynets:build", Squares())
    wrong = "net.register_forward_pre_hook(lambda module, inputs: inputs[0].flip(3))"
    file.write_text(file.read_text().replace(
        "def build(num_classes): return Quarters(num_classes)",
        f"def build(num_classes):\n    net = Quarters(num_classes)\n    {wrong}\n    return net",
    ))  # fmt: skip
    forget_code()
    after = bring("mynets:build", Squares())
    assert after.sha256 != before.sha256
    assert after.note["weights_sha256"] == before.note["weights_sha256"]
    assert (before.clean_accuracy, after.clean_accuracy) == (100.0, 0.0)
    assert "clean accuracy is 0.00 %" in after.note["warning"]
    with pytest.raises(UserError, match=r"mynets:build with the weights .* computes other logits than when"):
        recall("mynets:build", Squares(), before.sha256)
    assert recall("mynets:build", Squares(), after.sha256) is not None


def forget_code() -> None:
    """What a new process does not know: the modules that were imported and the code that was read."""
    sys.modules.pop("mynets", None)
    importlib.invalidate_caches()
    other_code.forget()


@pytest.mark.usefixtures("nets")
def test_a_network_with_random_values_outside_its_state_dict_is_refused() -> None:
    with pytest.raises(UserError, match="random_scale gives other logits when it is made again"):
        bring("mynets:random_scale", Squares())


@pytest.mark.usefixtures("nets")
def test_a_network_that_has_other_layers_the_second_time_is_refused() -> None:
    with pytest.raises(UserError, match=r"grows has other layers when it is made again: size mismatch"):
        bring("mynets:grows", Squares())


@pytest.mark.usefixtures("nets")
def test_a_network_in_half_precision_is_measured_in_float32() -> None:
    brought = bring("mynets:half", Squares())
    assert {p.dtype for p in brought.classifier.parameters()} == {torch.float32}
    assert brought.clean_accuracy == 100.0


@pytest.mark.usefixtures("nets")
def test_nan_in_a_buffer_is_named() -> None:
    with pytest.raises(UserError, match="nan_buffer has buffers that are NaN, first in running"):
        bring("mynets:nan_buffer", Squares())


@pytest.mark.usefixtures("nets")
def test_a_classifier_from_a_python_path_keeps_its_normalisation() -> None:
    brought = bring("mynets:wrapped", Squares())
    torch.testing.assert_close(brought.classifier.normalize.std.flatten(), torch.full((3,), 0.2))


@pytest.mark.usefixtures("nets")
def test_what_a_users_function_raises_is_one_sentence_with_its_place() -> None:
    with pytest.raises(UserError) as caught:
        bring("mynets:broken", Squares())
    text = str(caught.value)
    assert "mynets:broken failed when it was called as broken(num_classes=4): ZeroDivisionError" in text
    assert "mynets.py, line" in text
    assert "\n" not in text


def test_a_function_that_exits_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exits.py").write_text("import sys\ndef build(num_classes):\n    sys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"exits:build failed when .*: SystemExit: 3 \(.*exits.py, line 3\)"):
        bring("exits:build", Squares())


@pytest.mark.parametrize("code", ["def build():\n    raise SystemExit(143)\n", "raise SystemExit(143)\n"])
def test_sigterm_while_a_network_is_made_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    (tmp_path / "ended.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ended", raising=False)
    with pytest.raises(SystemExit):
        bring("ended:build", Squares())


def test_weights_that_do_not_fit_are_named_with_the_line_that_loads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "import torch\n",
        "def build():",
        "    net = torch.nn.Linear(3, 4)",
        "    net.load_state_dict({'fc': 0})",
    )
    (tmp_path / "unfit.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UserError, match=r"Missing key\(s\) .*\"weight\", \"bias\"\..*unfit.py, line 5\)\.$"
    ) as caught:
        bring("unfit:build", Squares())
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("nets")
def test_a_text_of_several_lines_is_cut_to_the_first() -> None:
    with pytest.raises(UserError, match=r"ValueError: first line \(.*mynets.py, line \d+\)\.$"):
        bring("mynets:long_text", Squares())


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def build(:\n",
            r"mymodule of 'mymodule:build' cannot be imported: SyntaxError: .*mymodule.py, line 1",
        ),
        ("x = 1\n1 / 0\n", r"ZeroDivisionError: division by zero \(.*mymodule.py, line 2\)"),
        ("import sys\nsys.exit(3)\n", r"SystemExit: 3 \(.*mymodule.py, line 2\)"),
        (
            "\nimport a_package_that_is_missing\n",
            r"ModuleNotFoundError: No module named 'a_package_that_is_missing' \(.*mymodule.py, line 2\)\.$",
        ),
        ("\nfrom torch import nothing_of_this_name\n", r"ImportError: .*mymodule.py, line 2\)\.$"),
    ],
)
def test_a_module_that_fails_when_it_is_imported_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    (tmp_path / "mymodule.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=says) as caught:
        bring("mymodule:build", Squares())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["net.fc.weight", "running_mean"])
def test_weights_that_are_not_finite_are_refused_when_they_are_loaded(name: str, value: float) -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2))
    tensors = net.state_dict()
    key = "2.weight" if name == "net.fc.weight" else "0.running_mean"
    before = tensors[key].clone()
    tensors = {**tensors, key: torch.full_like(before, value)}
    with pytest.raises(UserError, match=rf"FILE holds NaN or infinite values, first in {key}"):
        load_weights(net, tensors, "FILE")
    assert torch.equal(net.state_dict()[key], before)


@pytest.mark.usefixtures("nets")
def test_weights_that_give_no_logits_are_named(tmp_path: Path) -> None:
    tensors = nn.Sequential(nn.BatchNorm2d(3), Quarters()).state_dict()
    file = tmp_path / "negative.pt"
    torch.save({**tensors, "0.running_var": -tensors["0.running_var"]}, file)
    says = (
        r"mynets:normed with the weights negative\.pt returns logits that are NaN or infinite .* after net\.0"
    )
    with pytest.raises(UserError, match=says):
        bring("mynets:normed", Squares(), checkpoint=file)


@pytest.mark.usefixtures("nets")
@each(
    ("arch", "says"),
    [
        (":build", "':build' is not of the form package.module:callable, e.g. mynets:build"),
        ("mynets:", "'mynets:' is not of the form package.module:callable"),
        ("mynets:biuld", "unknown callable in mynets 'biuld'; did you mean 'build'"),
        ("mynets:zzz", "unknown callable in mynets 'zzz'(?!.*(Classifier|Quarters))"),
        ("mynets.py:build", "'mynets.py:build' names a file; expected a module, without .py: mynets:build"),
        ("my/nets.py:build", "without .py: my.nets:build"),
        ("mynest:build", "mynest of 'mynest:build' cannot be imported"),
        ("mynets:number", "is a int; expected a function or class"),
        ("mynets:made", "mynets:made is a network that is made already; .*: def build\\(\\): return made"),
        ("mynets:hidden", "layer '0.fc' of mynets:hidden does not make the logits, layer '1' does: last='1'"),
        ("mynets:no_learning", "mynets:no_learning was made inside torch.inference_mode"),
        ("mynets:on_meta", "mynets:on_meta is on the device meta, where tensors have no values"),
        ("mynets:lazy", "mynets:lazy has lazy layers without sizes; call it with images once"),
        ("mynets:Keeps", "the state dict of mynets:Keeps holds a dict in _extra_state; expected tensors"),
        ("mynets:text", "returned a str; expected an nn.Module"),
        ("mynets:wide", "mynets:wide has 5 classes, but squares-c has 4"),
        ("mynets:headless", "does not end in a linear layer"),
        ("mynets:diverged", "mynets:diverged has weights that are NaN or infinite, first in fc.bias"),
        (
            "mynets:needs_more",
            "needs the parameter 'depth', which it does not get: ttabench gives num_classes",
        ),
        ("hub/resnet50", "models from elsewhere are timm/NAME, .* or package.module:callable"),
    ],
)
def test_wrong_python_paths_are_explained(arch: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        bring(arch, Squares())


@pytest.mark.parametrize("name", ["mynets", "mynets.py"])
def test_the_file_of_a_network_is_answered_with_its_python_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="unknown architecture") as without:
        bring(name, Squares())
    assert "CALLABLE" not in str(without.value)
    (tmp_path / "mynets.py").write_text("")
    with pytest.raises(UserError, match=r"the file mynets\.py is named mynets:CALLABLE"):
        bring(name, Squares())


@pytest.mark.parametrize(
    ("name", "path"), [("mynets.Mine", "mynets:Mine"), ("nets.mine.build", "nets.mine:build")]
)
def test_a_dot_in_place_of_a_colon_is_answered_with_the_python_path(
    name: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(*path.partition(":")[0].split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    with pytest.raises(UserError, match=f"unknown architecture '{name}'") as without:
        bring(name, Squares())
    assert path not in str(without.value)
    file.write_text("")
    with pytest.raises(UserError, match=f"A network in the file {file} is named {path}\\."):
        bring(name, Squares())
    assert arch_spelling(name) == name


@pytest.mark.usefixtures("nets")
def test_a_network_of_ones_own_that_guesses_is_told_how_to_get_weights() -> None:
    warning = bring("mynets:guesses", Squares()).note["warning"]
    assert warning.startswith("clean accuracy is 25.00 %, not better than the 25.00 % of guessing")
    assert "--checkpoint FILE" in warning
    assert "ttabench train" in warning


# ---- timm, played by a stand-in of the few functions that are used


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    def create_model(
        name: str, pretrained: bool, num_classes: int = 4, img_size: int | None = None
    ) -> nn.Module:
        if name == "unreachable" and pretrained:
            raise OSError("cannot reach the hub\nmore")
        if name == "hub" and pretrained:
            raise AssertionError("timm was asked, which tries for more than a minute")
        if name == "large" and img_size == 32:
            raise ValueError("images of 32 pixels have no windows\nmore")
        net = Quarters(1000 if name == "thousand" else num_classes)
        if not pretrained:
            nn.init.zeros_(net.fc.weight)
        net.pretrained_cfg = {  # type: ignore[assignment]
            "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25),
            "input_size": (3, 32, 32) if name == "squashed" else (3, 224, 224),
            "fixed_input_size": name in ("vit", "large"),
            "hf_hub_id": {"hub": "timm/hub", "tagged": "timm/tagged.a1_in1k"}.get(name),
            "crop_mode": "squash" if name == "squashed" else "center",
        }  # fmt: skip
        net.told = img_size  # type: ignore[assignment]
        return net

    module = types.ModuleType("timm")
    module.list_models = lambda: [
        "quarters",
        "thousand",
        "unreachable",
        "hub",
        "tagged",
        "squashed",
        "vit",
        "large",
    ]  # type: ignore[attr-defined]
    module.is_model = lambda name: name in module.list_models()  # type: ignore[attr-defined]
    module.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


@pytest.mark.usefixtures("timm")
def test_timm_models_come_with_weights_and_normalisation() -> None:
    brought = bring("timm/quarters", Squares())
    assert brought.clean_accuracy == 100.0
    torch.testing.assert_close(brought.classifier.normalize.std.flatten(), torch.full((3,), 0.25))
    again = recall("timm/quarters", Squares(), brought.sha256)  # without timm's weights
    assert again is not None
    assert again.clean_accuracy == 100.0


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("arch", "says"),
    [
        ("timm/quartres", "unknown timm model 'quartres'; did you mean 'quarters'"),
        ("timm/thousand", "timm/thousand has 1000 classes, but squares-c has 4"),
        ("timm/unreachable", r"weights of timm/unreachable cannot be loaded \(cannot reach the hub\)"),
    ],
)
def test_wrong_timm_models_are_explained(arch: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        bring(arch, Squares())


@pytest.mark.usefixtures("timm")
def test_timm_transformers_are_made_for_the_images_of_the_dataset() -> None:
    for pretrained in (False, True):
        assert construct("timm/vit", Squares(), pretrained=pretrained).net.told == 32
        assert construct("timm/quarters", Squares(), pretrained=pretrained).net.told is None
    with pytest.raises(UserError, match=r"large cannot be made for images of 32 pixels \(ValueError: .*\)"):
        construct("timm/large", Squares())


@pytest.mark.usefixtures("timm")
def test_timm_weights_out_of_reach_are_told_at_once_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(UserError) as caught:
        bring("timm/hub", Squares())
    assert "http://127.0.0.1:9/timm/hub/resolve/main/model.safetensors" in str(caught.value)
    assert "--archs timm/hub --checkpoint FILE" in str(caught.value)


@pytest.mark.usefixtures("timm")
def test_timms_tag_and_the_commit_of_the_weights_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hugging_face_hub, "_cached", lambda *_: "/hub/snapshots/0123456789abcdef/weights")
    brought = bring("timm/tagged", Squares())
    assert brought.note["origin"] == "timm/tagged (timm/tagged.a1_in1k, revision 0123456789ab)"


@pytest.mark.usefixtures("timm")
def test_images_that_timm_prepares_otherwise_are_a_warning(tmp_path: Path) -> None:
    warning = bring("timm/quarters", Squares()).note["warning"]
    assert warning.startswith("its weights are for images of 224 pixels, and those of squares-c have 32")
    warning = bring("timm/squashed", Squares()).note["warning"]
    assert warning == "timm prepares images for it by crop_mode squash, and not by a crop of the centre."
    torch.save({"fc.weight": 2 * torch.eye(4), "fc.bias": torch.zeros(4)}, tmp_path / "own.pth")
    assert "pixels" not in bring("timm/quarters", Squares(), checkpoint=tmp_path / "own.pth").note["warning"]


def test_timm_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"^timm/resnet50 needs timm \(.*\): pip install timm\.$"):
        construct("timm/resnet50", Squares())


# ---- the guard


@pytest.mark.usefixtures("nets")
def test_a_claim_that_does_not_hold_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExternalModel, "claimed_accuracy", 99.5)
    assert bring("mynets:build", Squares()).note["warning"] == ""
    monkeypatch.setattr(ExternalModel, "claimed_accuracy", 60.0)
    warning = bring("mynets:build", Squares()).note["warning"]
    assert warning == "clean accuracy is 100.00 %, but 60.00 % is claimed."


@pytest.mark.usefixtures("timm")
def test_guessing_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "untrained.pth"
    torch.save({"fc.weight": torch.zeros(4, 4), "fc.bias": torch.zeros(4)}, file)
    brought = bring("timm/quarters", Squares(), checkpoint=file)
    assert brought.note["warning"] == "clean accuracy is 25.00 %, not better than the 25.00 % of guessing."


@pytest.mark.parametrize(
    ("classes", "right", "warned"),
    [(2, 100, False), (2, 90, False), (2, 60, True), (3, 100, False), (10, 40, False), (10, 12, True)],
)
def test_guessing_depends_on_the_number_of_classes(classes: int, right: int, warned: bool) -> None:
    """Two classes: twice the chance would be 100 %."""
    labels = np.arange(200) % classes
    test = Labelled(np.zeros((200, 32, 32, 3), np.uint8), labels)
    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(3, classes))
    text = accuracy_warning(Classifier(net, last="2"), test, float(right), "cpu")
    assert ("little better" in text) == warned, text


@pytest.mark.parametrize(("images", "named"), [(60, []), (1000, ["half (20.0 %)"])])
def test_a_normalisation_is_named_where_it_does_better_than_by_chance(
    images: int, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 60 images, 20 and 16.7 % are two images apart; and what does worse is never named."""
    measured = {0.5: 20.0, 0.485: 15.0, 0.4914: 10.0, 0.5071: 10.0}  # by the mean of the first channel

    def right(classifier: Classifier, data: Labelled, device: str) -> Any:
        percent = measured.get(round(float(classifier.normalize.mean.flatten()[0]), 4), 16.7)
        return np.arange(len(data)) < round(percent / 100 * len(data))

    monkeypatch.setattr(input_trials, "_right", right)
    test = Labelled(np.zeros((images, 8, 8, 3), np.uint8), np.arange(images) % 6)
    net = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3, 6))
    text = clean_accuracy.accuracy_warning(Classifier(net, last="2"), test, 16.7, "cpu")
    assert re.findall(r"\w+ \([\d.]+ %\)", text) == named, text
    told = without_normalize(text)  # after training, which has no --normalize
    assert told == "clean accuracy is 16.70 %, little better than the 16.67 % of guessing."


def test_a_way_that_does_clearly_worse_is_tried_on_a_quarter_of_the_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def right(classifier: Any, data: Labelled, device: str) -> Any:
        tried.append(len(data))
        usual = isinstance(classifier, Classifier) and not classifier.normalize.mean.any()
        return data.labels < (9 if usual else 5)

    monkeypatch.setattr(input_trials, "_right", right)
    test = Labelled(np.zeros((1000, 8, 8, 3), np.uint8), np.arange(1000) // 100)
    net = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3, 10))
    known = clean_accuracy.NORMALISATIONS
    assert input_trials.better_input(Classifier(net, last="2"), test, known, "cpu") == ""
    as_good = [name for name, (mean, _) in known.items() if not any(mean)]
    assert sorted(tried) == [250] * (len(known) + len(input_trials.VIEWS)) + [1000] * (1 + len(as_good))


@pytest.mark.parametrize(
    ("prepare", "named"),
    [
        pytest.param(
            lambda x: x[..., ::-1], "the channels in the order blue, green, red", marks=pytest.mark.slow
        ),
        pytest.param(lambda x: x[:, ::-1], "the images upside down", marks=pytest.mark.slow),
        (lambda x: np.rot90(x, 1, (1, 2)), "the images turned by"),
    ],
)
def test_images_that_real_weights_see_in_another_way_are_named(
    shared: Path, prepare: Callable[[Any], Any], named: str
) -> None:
    """Far above chance, and without any claim."""
    file = shared / "data" / "weights" / "cifar10-resnet20.npz"

    class Prepared(RealImages):
        def test(self) -> Labelled:
            given = super().test()
            return Labelled(np.ascontiguousarray(prepare(given.images)), given.labels)

    data = Prepared(shared / "data", 10 if "green" in named else 1)  # orders of channels differ by little
    warning = bring("resnet20", data, checkpoint=file, normalize="imagenet").note["warning"]
    assert f"where {named}" in warning
    assert "does better" in warning


def test_the_measurement_on_clean_images_is_followed(nets: None) -> None:
    """It may take minutes on a CPU: 1,000 photographs, and some of them again, prepared in other ways."""
    steps: list[tuple[str, int, int]] = []
    brought = bring("mynets:build", Squares(), progress=lambda *step: steps.append(step))
    size = Squares().test().images.nbytes
    assert steps[0] == ("clean images for mynets:build on squares-c", size, size)
    said, done, total = zip(*steps[1:], strict=True)
    assert set(said) == {"the same images prepared in other ways for mynets:build on squares-c"}
    assert list(done) == sorted(done)
    assert set(total) == {0}
    assert not brought.classifier._forward_hooks
    steps.clear()
    bring("mynets:build", Squares(), progress=lambda *step: steps.append(step))  # it is known by then
    assert not steps


def test_a_network_that_expects_bytes_is_told_so(shared: Path) -> None:
    file = shared / "data" / "weights" / "cifar10-resnet20.npz"
    data = RealImages(shared / "data", rows=1)
    wrong = bring("resnet20", data, checkpoint=file, normalize="bytes").note["warning"]
    assert "--normalize imagenet (9" in wrong


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], ""),
        ([0, 1, 3, 2, 4, 5, 6, 7, 8, 9], "class 2 as 3, 3 as 2, and would be right on 100.0 %"),
        ([0, 1, 8, 2, 3, 4, 5, 6, 7, 9], "class 2 as 8, 3 as 2, 4 as 3, 5 as 4, 6 as 5, 7 as 6 and 1 more"),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "class 0 as 1, 1 as 2, 2 as 3"),  # counted from 1
        ([0, 1, 2, 2, 4, 5, 6, 7, 8, 9], ""),  # a class that is never right is no permutation
    ],
)
def test_classes_with_the_numbers_of_others_are_named(order: list[int], says: str) -> None:
    labels = np.arange(400) % 10
    assert says in input_trials.better_classes(np.asarray(order)[labels], labels)
    assert bool(says) == bool(input_trials.better_classes(np.asarray(order)[labels], labels))


def test_exchanged_classes_are_named_before_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that are prepared in another way may be right a little more often, by chance."""
    monkeypatch.setattr(clean_accuracy, "better_input", lambda *_: "; other images")
    data = Labelled(np.zeros((400, 8, 8, 3), np.uint8), np.arange(400) % 10)
    network: Any = types.SimpleNamespace(num_classes=10)
    text, _ = clean_accuracy.input_warning(network, data, (data.labels + 1) % 10, None, "cpu")
    assert "class 0 as 1, 1 as 2" in text
    assert "other images" not in text


def test_chance_is_no_permutation() -> None:
    draw = np.random.default_rng(0)
    for classes in (2, 10, 100, 1000):
        guesses, labels = draw.integers(0, classes, (2, 2000))
        assert input_trials.better_classes(guesses, labels) == ""


class RealImages(Squares):
    """The first CIFAR-10 test images, exact ones, and nothing else."""

    name = "cifar10-c"
    num_classes = 10
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2470, 0.2435, 0.2616)

    def __init__(self, folder: Path, rows: int = 2) -> None:
        self.folder, self.rows = folder, rows  # of 100 images

    def test(self) -> Labelled:
        from PIL import Image

        with Image.open(self.folder / "cifar10" / "test.webp") as mosaic:
            rows = np.asarray(mosaic.convert("RGB").crop((0, 0, 3200, 32 * self.rows)))
        tiles = rows.reshape(self.rows, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)
        labels = np.load(self.folder / "cifar10" / "labels.npz", allow_pickle=False)["test"]
        return Labelled(tiles.copy(), labels[: 100 * self.rows].astype(np.int64))


@pytest.mark.slow
def test_real_weights_with_the_wrong_normalisation_are_told_the_right_one(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, file = RealImages(shared / "data"), shared / "data" / "weights" / "cifar10-resnet20.npz"
    assert bring("resnet20", images, checkpoint=file, normalize="imagenet").note["warning"] == ""
    monkeypatch.setitem(CLAIMS, file.name, 91.73)
    right = bring("resnet20", images, checkpoint=file, normalize="imagenet")
    assert right.note["warning"] == ""
    wrong = bring("resnet20", images, checkpoint=file, normalize="none")
    assert wrong.clean_accuracy < right.clean_accuracy - 5
    assert re.search(
        r"but 91\.73 % is claimed; it is .* where --normalize .*imagenet \(9.* %\).* does better",
        wrong.note["warning"],
    )
    with pytest.raises(UserError, match="has not been trained"):
        load("resnet20", images)  # brought is not trained
