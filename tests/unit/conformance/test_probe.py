"""What wrapping a stranger's network finds out: networks shaped as timm's and others, made by hand."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from tests.unit.models.test_bring import Squares
from tests.unit.models_by_name import construct
from ttabench.classifier import Classifier
from ttabench.conformance.nets import CLASSES, SIZE, WIDTH, Block, ConvNet, DropPath, Transformer, images
from ttabench.conformance.state import difference, snapshot
from ttabench.conformance.watched_data import WatchedSource
from ttabench.errors import UserError
from ttabench_methods.foa import FOA, FOAConfig

PATCHES = (SIZE // 4) ** 2


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class ViT(nn.Module):
    """As timm builds them: `prefix` tokens before those of the patches, `pool` one of token and avg."""

    def __init__(self, prefix: int = 1, pool: str = "token", depth: int = 3, pre_norm: bool = False) -> None:
        super().__init__()
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, WIDTH, 4, 4)
        self.prefix, self.pool = prefix, pool
        self.tokens = nn.Parameter(torch.randn(1, prefix, WIDTH))
        self.pos_embed = nn.Parameter(0.5 * torch.randn(1, PATCHES, WIDTH))
        self.norm_pre = nn.LayerNorm(WIDTH) if pre_norm else nn.Identity()
        self.blocks = nn.Sequential(*(self.block() for _ in range(depth)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def block(self) -> nn.Module:
        return Block(WIDTH, 2, 0.1)

    def embed(self, x: Tensor) -> Tensor:
        patches = self.patch_embed.proj(x).flatten(2).transpose(1, 2) + self.pos_embed
        return torch.cat([self.tokens.expand(len(x), -1, -1), patches], 1)

    def encode(self, tokens: Tensor) -> Tensor:
        return self.blocks(tokens)  # type: ignore[no-any-return]

    def pooled(self, tokens: Tensor) -> Tensor:
        return tokens[:, self.prefix :].mean(1) if self.pool == "avg" else tokens[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pooled(self.norm(self.encode(self.norm_pre(self.embed(x))))))  # type: ignore[no-any-return]


class Distilled(ViT):
    """Two tokens are read, as in DeiT, here by one linear layer."""

    def pooled(self, tokens: Tensor) -> Tensor:
        return tokens[:, :2].mean(1)


class TokenLast(ViT):
    def embed(self, x: Tensor) -> Tensor:
        return super().embed(x).flip(1)

    def pooled(self, tokens: Tensor) -> Tensor:
        return tokens[:, -1]


class RelativeBlock(Block):
    """Attention with a bias for each pair of tokens, as BEiT's."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 2, 0.0)
        self.bias = nn.Parameter(torch.randn(PATCHES + 1, PATCHES + 1))

    def attend(self, x: Tensor) -> Tensor:
        return super().attend(self.bias.softmax(-1) @ x)


class Relative(ViT):
    def block(self) -> nn.Module:
        return RelativeBlock()


class MixerBlock(nn.Module):
    """Mixes tokens with weights of their own, so that their number is fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(PATCHES, PATCHES)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(self.norm(x).mT).mT  # type: ignore[no-any-return]


class Mixer(ViT):
    def block(self) -> nn.Module:
        return MixerBlock()


class CausalBlock(Block):
    """Attends to tokens before its own only, so that it matters where they stand."""

    def attend(self, x: Tensor) -> Tensor:
        return x.cumsum(1) / x.shape[1]


class Causal(ViT):
    def block(self) -> nn.Module:
        return CausalBlock(WIDTH, 2, 0.0)


class SequenceFirst(ViT):
    """Tokens (N, B, d), as in torch's own layers unless told otherwise."""

    def encode(self, tokens: Tensor) -> Tensor:
        return super().encode(tokens.transpose(0, 1)).transpose(0, 1)


class TorchBlocks(ViT):
    def block(self) -> nn.Module:
        return nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, batch_first=True, norm_first=True)


class PairBlock(Block):
    """Gives back a tuple."""

    def forward(self, x: Any) -> Any:
        return super().forward(x), None


class Pairs(ViT):
    def block(self) -> nn.Module:
        return PairBlock(WIDTH, 2, 0.0)

    def encode(self, tokens: Tensor) -> Tensor:
        for block in self.blocks:
            tokens, _ = block(tokens)
        return tokens


class ClassLater(ViT):
    """As CaiT: the class token comes after the blocks, and looks at what they made once."""

    def embed(self, x: Tensor) -> Tensor:
        return super().embed(x)[:, 1:]

    def pooled(self, tokens: Tensor) -> Tensor:
        weights = (tokens @ self.tokens[0, 0]).softmax(1)
        return (weights[:, :, None] * tokens).sum(1)


class MapBlock(nn.Module):
    """Keeps maps: (B, H, W, d) as Swin, or (B, d, H, W) as ConvNeXt."""

    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.there, self.back = ((0, 1, 2, 3),) * 2 if channels_last else ((0, 2, 3, 1), (0, 3, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(x.permute(self.there)).permute(self.back)  # type: ignore[no-any-return]


class Maps(nn.Module):
    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(*(MapBlock(channels_last) for _ in range(4)))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.channels_last = channels_last

    def forward(self, x: Tensor) -> Tensor:
        maps = self.stem(x)
        maps = self.blocks(maps.permute(0, 2, 3, 1) if self.channels_last else maps)
        return self.head(maps.mean((1, 2) if self.channels_last else (2, 3)))  # type: ignore[no-any-return]


def result(net: nn.Module) -> tuple[str, ...]:
    return Classifier.wrap(net, SIZE).tags


TRANSFORMER, CLASS, NO_ROOM = "transformer", "class_token", "no_room_for_prompts"


@each(
    ("net", "tags"),
    [
        (Transformer, (TRANSFORMER, CLASS)),
        (ViT, (TRANSFORMER, CLASS)),
        (lambda: ViT(pre_norm=True), (TRANSFORMER, CLASS)),
        (lambda: ViT(prefix=5), (TRANSFORMER, CLASS)),  # with registers
        (lambda: ViT(pool="avg"), (TRANSFORMER, CLASS)),
        (lambda: ViT(prefix=0, pool="avg"), (TRANSFORMER,)),
        (ClassLater, (TRANSFORMER,)),
        (TorchBlocks, (TRANSFORMER, CLASS)),
        (TokenLast, (TRANSFORMER,)),
        (lambda: Distilled(prefix=2), (TRANSFORMER, CLASS, NO_ROOM)),
        (Relative, (TRANSFORMER, CLASS, NO_ROOM)),
        (lambda: Causal(prefix=0, pool="avg"), (TRANSFORMER, NO_ROOM)),
        (Pairs, (TRANSFORMER, CLASS, NO_ROOM)),
        (SequenceFirst, (TRANSFORMER, NO_ROOM)),
        (lambda: Mixer(prefix=0, pool="avg"), (TRANSFORMER, NO_ROOM)),
        (lambda: ViT(prefix=0), (TRANSFORMER, NO_ROOM)),  # reads the first patch
        (lambda: ViT(depth=1), ()),
        (lambda: Maps(channels_last=True), ()),
        (lambda: Maps(channels_last=False), ()),
        (lambda: ConvNet(nn.BatchNorm2d), ()),
    ],
)
def test_what_kind_of_network_it_is(net: Callable[[], nn.Module], tags: tuple[str, ...]) -> None:
    assert result(net()) == tags
    assert result(net().double()) == tags
    assert result(net().bfloat16()) == tags


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (ViT, ""),
        (Relative, "no room for prompts"),
        (lambda: Distilled(prefix=2), "no room for prompts"),
        (lambda: Maps(channels_last=True), "not a transformer"),
        (lambda: ConvNet(nn.BatchNorm2d), "not a transformer"),
    ],
)
def test_a_module_by_its_path_gets_foa_or_the_reason_why_not(
    net: Callable[[], nn.Module], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("somenets")
    module.build = net  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somenets", module)
    data = Squares()
    data.num_classes, data.image_size = CLASSES, SIZE
    assert FOA.needs.unmet(construct("somenets:build", data).architecture()) == reason


@pytest.mark.parametrize(
    "net", [ViT, lambda: ViT(prefix=5), lambda: ViT(prefix=0, pool="avg"), ClassLater, TorchBlocks, TokenLast]
)
def test_foa_scores_the_same_as_with_tags_given_by_hand(net: Callable[[], nn.Module]) -> None:
    wrapped = Classifier.wrap(net().eval(), SIZE)
    by_hand = Classifier(wrapped.net, last="head", tags=wrapped.tags)
    scored = []
    for classifier in (wrapped, by_hand):
        torch.manual_seed(1)
        method = FOA(classifier, FOAConfig(population=6))
        method.prepare(WatchedSource(FOA.needs))
        scored.append([method.adapt(images(16, seed)) for seed in (2, 3)])
    with torch.no_grad():
        plain = wrapped(images(16, 3))
    assert torch.equal(scored[0][1], scored[1][1])
    assert torch.isfinite(scored[0][1]).all()
    assert not torch.allclose(scored[0][1], plain)


def test_tags_given_by_hand_win_and_save_the_second_pass() -> None:
    net, passes = ViT(), []
    net.register_forward_hook(lambda *_: passes.append(1))
    assert Classifier.wrap(net, SIZE, tags=("something",)).tags == ("something",)
    assert len(passes) == 1
    assert Classifier.wrap(net, SIZE).tags == (TRANSFORMER, CLASS)
    assert len(passes) == 3
    assert Classifier.wrap(net, SIZE, tags=()).tags == ()


@pytest.mark.parametrize("net", [ViT, Relative, lambda: ConvNet(nn.BatchNorm2d)])
def test_looking_changes_nothing(net: Callable[[], nn.Module]) -> None:
    seen = net().train()
    frozen = [m for m in seen.modules() if isinstance(m, nn.BatchNorm2d | DropPath)][1]
    frozen.eval()
    before, generator = snapshot(seen), torch.get_rng_state()
    Classifier.wrap(seen, SIZE)
    assert difference(before, snapshot(seen)) == ""
    assert [m for m in seen.modules() if not m.training] == [frozen, *frozen.children()]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in seen.modules())
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(p.grad is None and p.requires_grad for p in seen.parameters())


class Raises(ViT):
    def pooled(self, tokens: Tensor) -> Tensor:
        raise ZeroDivisionError


class Object(ViT):
    """Gives back an object with the logits in it, as networks of transformers do."""

    def forward(self, x: Tensor) -> Any:
        return types.SimpleNamespace(logits=super().forward(x))


def test_what_cannot_be_wrapped_is_left_as_it_was() -> None:
    for net, error in ((Raises(), ZeroDivisionError), (Object(), UserError)):
        with pytest.raises(error):
            Classifier.wrap(net, SIZE)
        assert net.training
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_compiled_parts_that_take_no_hooks_are_no_obstacle() -> None:
    net = ConvNet(nn.BatchNorm2d)
    net.layer2 = torch.jit.script(net.layer2)
    classifier = Classifier.wrap(net, SIZE)
    assert classifier.last == "fc"
    assert "net.layer3.1" in classifier.norm_order
