"""What is checked about networks of the user, in sweeps."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.models.test_bring import Squares, forget_code
from tests.unit.models_by_name import bring
from ttabench.errors import UserError
from ttabench.models.external.python_path import make
from ttabench.models.resolve import resolve_model
from ttabench.models.soundness.noise_logits import noise_logits, same_logits, with_logits
from ttabench.store import Store

Run = Callable[..., Any]

HEAD = """
import json, torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.Linear(8, classes)
    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes anynets.py, with what is given after the class Net."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(code: str) -> None:
        (tmp_path / "anynets.py").write_text(HEAD + code)
        sys.modules.pop("anynets", None)
        importlib.invalidate_caches()
        forget_code()

    return write


SWEEP = (
    "sweep",
    "--archs",
    "anynets:build",
    "--corruptions",
    "fog",
    "--limit",
    "40",
    "--workers",
    "0",
    "--out",
    "r",
)


def cells(folder: str = "r") -> dict[str, tuple[str, str]]:
    """Method → status and reason."""
    frame = Store.at(Path(folder)).frame()
    return {row.method: (row.status, str(row.reason)) for row in frame.itertuples()}


def test_methods_that_need_gradients_are_na_without(ttabench: Run, module: Callable[[str], None]) -> None:
    module(
        "class Quiet(Net):\n    forward = torch.no_grad()(Net.forward)\n"
        "def build(num_classes):\n    return Quiet(num_classes)\n"
    )
    output = ttabench(*SWEEP, "--methods", "bn_stats,tent,cotta")
    assert output.code == 0, output.err
    assert "no gradient reaches what it should learn" in output.out + output.err
    status = {name: status for name, (status, _) in cells().items()}
    assert status == {"source": "ok", "bn_stats": "ok", "tent": "n/a", "cotta": "n/a"}
    assert "no gradient reaches what it should learn" in cells()["tent"][1]


def test_a_forward_that_is_a_function_is_refused(ttabench: Run, module: Callable[[str], None]) -> None:
    module(
        "def build(num_classes):\n    net = Net(num_classes)\n    inner = net.forward\n"
        "    net.forward = lambda x: inner(x.flip(3))\n    return net\n"
    )
    output = ttabench(*SWEEP, "--methods", "tent")
    assert output.code == 2
    assert "a copy of anynets:build runs layers of anynets:build itself (net." in output.err
    assert not Path("r").exists()


def test_layers_that_do_not_learn_are_named_and_alarmed(ttabench: Run, module: Callable[[str], None]) -> None:
    module(
        "class Half(Net):\n    def __init__(self, n):\n        super().__init__(n)\n"
        "        self.first, self.unused = nn.BatchNorm2d(3), nn.BatchNorm2d(3)\n"
        "    def forward(self, x):\n        with torch.no_grad():\n            x = self.first(x)\n"
        "        return super().forward(x)\n"
        "def build(num_classes):\n    return Half(num_classes)\n"
    )
    output = ttabench(*SWEEP, "--methods", "tent")
    assert output.code == 0, output.err
    says = "4 of 6 adapted parameters of anynets:build get no gradient and stay as they are"
    assert says in output.err.replace("\n", " ")
    frame = Store.at(Path("r")).frame()
    alarms = dict(zip(frame["method"], frame["alarm"], strict=True))
    assert "its layer runs without gradients" in alarms["tent"]
    assert "without gradients" not in str(alarms["source"])


def test_lookalikes_are_reported_once(ttabench: Run, module: Callable[[str], None]) -> None:
    module(
        "class MyNorm(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(8))\n"
        "    def forward(self, x):\n        w = self.weight[:, None, None]\n"
        "        return w * x / x.norm(dim=1, keepdim=True)\n"
        "def build(num_classes):\n    net = Net(num_classes)\n    net.bn = nn.Sequential(net.bn, MyNorm())\n"
        "    return net\n"
    )
    output = ttabench(*SWEEP, "--methods", "tent")
    assert output.code == 0, output.err
    assert output.err.count("1 layer looks like a norm layer and is of no class") == 1


# ---- identity


GAIN = "def build(num_classes):\n    net = Net(num_classes)\n    {}\n    return net\n"
CHANGES = {
    "an attribute from a file": "gain = json.load(open('gain.json'))\n"
    "    net.register_forward_pre_hook(lambda module, inputs: inputs[0] * gain)",
    "a small change": "net.bn.eps = 1e-3 + 1e-5 * json.load(open('gain.json'))",
    "a buffer that is not stored": "net.register_buffer('gain', torch.tensor(json.load(open('gain.json'))), "
    "persistent=False)\n    net.register_forward_pre_hook(lambda module, inputs: inputs[0] * module.gain)",
}


@pytest.mark.parametrize(
    "change",
    [pytest.param(name, marks=() if name == "a small change" else pytest.mark.slow) for name in CHANGES],
)
def test_cells_are_new_after_a_value_outside_the_weights_changed(
    ttabench: Run, module: Callable[[str], None], change: str
) -> None:
    module(GAIN.format(CHANGES[change]))
    Path("gain.json").write_text("1.0")
    command = (*SWEEP, "--methods", "bn_stats")
    assert "2 to run, 0 done" in ttabench(*command).err
    assert "0 to run, 2 done" in ttabench(*command).err
    Path("gain.json").write_text("-9.0")
    assert "2 to run, 0 done" in ttabench(*command).err
    assert len({cell["cell"]["checkpoint"] for cell in stored()}) == 2
    Path("gain.json").write_text("1.0")  # the first network again
    assert "0 to run, 2 done" in ttabench(*command).err
    assert len({cell["cell"]["checkpoint"] for cell in stored()}) == 2


def stored() -> list[Any]:
    return [record.data for record in Store.at(Path("r")).latest_as(lambda record: record).values()]


def test_the_identity_does_not_hang_on_rounding() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    logits = noise_logits(net, 12)
    near = [value * (1 + 1e-9) for value in logits]
    assert same_logits(logits, near)
    assert with_logits("w", logits) == with_logits("w", near)
    assert with_logits("w", logits) != with_logits("v", logits)
    for other in ([1.01 * value for value in logits], [-value for value in logits], logits[::-1]):
        assert not same_logits(logits, other)
        assert with_logits("w", logits) != with_logits("w", other)
    assert not same_logits(logits[:4], logits)
    assert next(net.parameters()).dtype == torch.float32


def test_weights_for_a_network_of_ttabench_are_known_by_themselves(tmp_path: Path) -> None:
    """So that results of one file stay those of one network, whether it was trained here or brought."""
    from safetensors.torch import save_file

    from ttabench.models.architectures.build import build
    from ttabench.models.checkpoints.weights import content_hash

    facts = {"num_classes": 4, "image_size": 32, "mean": Squares.mean, "std": Squares.std}
    classifier = build("resnet20", dataset="squares-c", **facts)  # type: ignore[arg-type]
    file = tmp_path / "weights.safetensors"
    save_file({name: t.contiguous() for name, t in classifier.net.state_dict().items()}, file)
    loaded = resolve_model("resnet20", Squares(), checkpoint=file).load()
    assert loaded.sha256 == content_hash(loaded.classifier)


# ---- modules


@pytest.mark.parametrize("name", ["calendar", "json", "numpy"])
def test_a_file_that_another_module_hides_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    Path(f"{name}.py").write_text("def build(): ...")
    with pytest.raises(UserError, match=f"'{name}' is not {name}.py of this folder: Python finds .+ first"):
        make(f"{name}:build", Squares())


def test_a_package_that_another_one_hides_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("json").mkdir()
    for file in ("__init__.py", "nets.py"):
        (tmp_path / "json" / file).write_text("def build(): ...")
    with pytest.raises(
        UserError, match=r"'json' is not json/__init__.py of this folder: Python finds .+ first"
    ):
        make("json.nets:build", Squares())


def test_a_package_and_a_module_of_the_folder_are_taken(module: Callable[[str], None]) -> None:
    module("def build(num_classes):\n    return Net(num_classes)\n")
    assert bring("anynets:build", Squares()).classifier.num_classes == 4
