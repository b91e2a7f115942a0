"""A network whose blocks compute their activations again is refused where its numbers would be others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from tests.unit.conftest import SMALL, Run
from tests.unit.network_variants import SIZE, Checkpointed, changed, plain, plain_hook
from ttabench.classifier import Classifier
from ttabench.errors import UnusableModel
from ttabench.run import recomputing
from ttabench.run.recomputing import recompute_where_same
from ttabench.store import Store


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.branch(x)
        return y


class InPlace(Block):
    """Changes its input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.add_(1))


class Draws(Block):
    """Draws from a generator that all blocks have."""

    generator = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * torch.rand(1, generator=self.generator))


class OwnDraws(Draws):
    """Draws from its own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)


class Counts(Block):
    """Keeps how often it ran, its inputs, and moving means; none is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.ran, self.inputs, self.mean, self.other = 0, [], torch.zeros(1), torch.zeros(1)  # type: ignore[var-annotated]

    def forward(self, x: Tensor) -> Tensor:
        self.ran += 1
        self.inputs.append(x.detach().mean())
        self.mean.mul_(0.9).add_(x.detach().mean())
        self.other = 0.9 * self.other + x.detach().mean()
        scale = self.ran + torch.stack(self.inputs).sum() + self.mean + self.other
        return super().forward(x * scale)


class Final(Block):
    """Allows no class that inherits from it."""

    def __init_subclass__(cls) -> None:
        raise TypeError


class Residual(nn.Module):
    def __init__(self, kind: Callable[[], Block]) -> None:
        super().__init__()
        self.stem, self.fc = nn.Conv2d(3, 4, 1), nn.Linear(4, 5)
        self.blocks = nn.ModuleList(kind() for _ in range(3))

    def body(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(self.stem(x)).mean((2, 3)))  # type: ignore[no-any-return]


class ByClass(Residual):
    """Runs the blocks whose class it knows."""

    def body(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) if type(block) is Block else x
        return x


class Dense(Residual):
    """Gives each block a list of all outputs before, as DenseNet does."""

    def body(self, x: Tensor) -> Tensor:
        found = [x]
        for block in self.blocks:
            found.append(block(found))
        return found[-1]


class OfList(Block):
    def forward(self, found: list[Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(torch.stack(found).sum(0))


class Changing(Residual):
    """Gives each block a dict, which the block changes."""

    def body(self, x: Tensor) -> Tensor:
        found = {"x": x}
        for block in self.blocks:
            block(found=found)
        return found["x"]


class ChangesDict(Block):
    def forward(self, found: dict[str, Tensor]) -> None:  # type: ignore[override]
        found["x"] = super().forward(found["x"])


@each("net", [ByClass(Block), *map(Residual, (InPlace, Draws, Final)), Checkpointed(3, False)])
def test_a_network_with_other_numbers_is_refused(net: nn.Module) -> None:
    with pytest.raises(UnusableModel, match="mine gives other numbers, or none"):
        recompute_where_same(Classifier(net.eval(), last="fc"), SIZE, "mine")


@each(
    "net",
    [
        Residual(Block),
        plain(),
        changed(plain_hook),
        Dense(OfList),
        Changing(ChangesDict),
        Residual(Counts),
        Residual(OwnDraws),
    ],
)
def test_a_network_with_the_same_numbers_stays_as_it_is(net: nn.Module) -> None:
    net = Classifier(net, last="fc").eval().requires_grad_(False)
    before, drawn = copy.deepcopy(net), torch.get_rng_state()
    assert recompute_where_same(net, SIZE, "mine") == 3
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not any(layer.training for layer in net.modules())
    for name, value in net.state_dict().items():
        assert torch.equal(value, before.state_dict()[name])
    assert not any(p.requires_grad or p.grad is not None for p in net.parameters())


def test_a_sweep_refuses_such_a_network_before_its_first_cell(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its cells would be stored as failed."""

    def refuse(_net: nn.Module, _image_size: int, name: str) -> int:
        raise UnusableModel(f"{name} gives other numbers; use --activations keep")

    monkeypatch.setattr(recomputing, "recompute_where_same", refuse)
    sweep = ("sweep", *SMALL, "--workers", "0", "--activations", "recompute", "--out", tmp_path / "results")
    output = ttabench(*sweep)
    assert output.code == 2
    assert "resnet18 gives other numbers; use --activations keep." in " ".join(output.err.split())
    assert not Store.at(tmp_path / "results").latest()
