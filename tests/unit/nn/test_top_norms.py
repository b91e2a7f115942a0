"""Which norm layers are the top: whole blocks, and what runs after them, in networks of any make."""

from __future__ import annotations

import copy
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.cases import each
from ttabench import nn as tta
from ttabench.classifier import Classifier

WIDTH = 2


class Layer(nn.Module):
    """A convolution with its norm layer, as timm has them."""

    def __init__(self, inputs: int = WIDTH) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, WIDTH, 1)
        self.bn = nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))  # type: ignore[no-any-return]


class Plain(nn.Module):
    """A block with its norm layers as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(WIDTH), nn.GroupNorm(1, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm2(self.norm1(x).relu())  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """A block of layers, as RegNet's, whose shortcut is defined last and runs first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = Layer(), Layer(), Layer()
        self.downsample = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 1), nn.BatchNorm2d(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        short = self.downsample(x)
        return short + self.conv3(self.conv2(self.conv1(x)))  # type: ignore[no-any-return]


class Tree(nn.Module):
    """DLA's: two blocks, or two trees, and a root."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.root = Layer()
        self.tree1, self.tree2 = (Tree(levels - 1) if levels else Plain() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.root(self.tree2(self.tree1(x)))  # type: ignore[no-any-return]


def in_turn(self: nn.Module, x: Tensor) -> Tensor:
    for block in self.children():
        x = block(x)
    return x


class Stage(nn.Module):
    """Blocks by name, in no container."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        for i, block in enumerate(blocks, 1):
            self.add_module(f"b{i}", block)

    forward = in_turn


class Row(nn.ModuleList):
    forward = in_turn


class Dict(nn.ModuleDict):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__({f"b{i}": block for i, block in enumerate(blocks)})

    forward = in_turn


class Net(nn.Module):
    """A stem, the body, a final norm, defined after the body or before it, and perhaps an idle branch."""

    def __init__(self, body: dict[str, nn.Module], norm_first: bool = False, idle: bool = False) -> None:
        super().__init__()
        self.stem = Layer(3)
        if norm_first:
            self.norm = nn.BatchNorm2d(WIDTH)
        for name, module in body.items():
            self.add_module(name, module)
        if not norm_first:
            self.norm = nn.BatchNorm2d(WIDTH)
        if idle:
            self.aux1, self.aux2 = Bottleneck(), Bottleneck()
        self.head = nn.Linear(WIDTH, 5)
        self.body = tuple(body)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for name in self.body:
            x = self.get_submodule(name)(x)
        return self.head(self.norm(x).mean((2, 3)))  # type: ignore[no-any-return]


def top_of(net: nn.Module) -> set[str]:
    """The top of a net that was seen to run, in the net's own names."""
    return {name.removeprefix("net.") for name in tta.top_norms(Classifier.wrap(net, 4))}


def below(net: nn.Module, *prefixes: str) -> set[str]:
    return {name for name, _ in tta.norm_modules(net) if name.startswith(prefixes)}


def row_of(depth: int) -> nn.Module:
    return nn.Sequential(*(Plain() for _ in range(depth)))


def stages(*depths: int) -> dict[str, nn.Module]:
    return {f"s{i}": Stage([Bottleneck() for _ in range(depth)]) for i, depth in enumerate(depths, 1)}


@each(
    ("net", "top"),
    [
        (Net(stages(1, 1, 4, 6)), ["s4.", "norm"]),  # RegNet's
        (Net(stages(2, 2, 20, 2)), ["s4.", "norm"]),
        (Net(stages(1, 9)), ["s2.b8.", "s2.b9.", "norm"]),  # one body, behind a small one
        (Net(stages(12)), ["s1.b10.", "s1.b11.", "s1.b12.", "norm"]),
        (Net({f"level{i}": Tree(i % 2) for i in range(5)}), ["level4.", "norm"]),  # DLA's
        (Net({"blocks": Dict([Plain() for _ in range(8)])}), ["blocks.b6.", "blocks.b7.", "norm"]),
        (Net({"all": Row(Plain() for _ in range(8))}, norm_first=True), ["all.6.", "all.7.", "norm"]),
        (Net(stages(2, 2, 2), idle=True), ["s3.", "norm", "aux"]),
        (Net({"a": Stage([Layer()]), "b": Bottleneck(), "c": Plain()}), ["c.", "norm"]),  # no two alike
        (Net({"a": Plain(), "b": nn.BatchNorm2d(WIDTH), "c": nn.BatchNorm2d(WIDTH)}), ["norm"]),  # half alone
        (Net({"a": row_of(4), "b": row_of(4), "c": Dict([Plain(), Plain()])}), ["c.", "norm"]),
        (Net({"stages": Row(stages(2, 2, 2).values()), "last": Layer()}), ["stages.2.", "last.", "norm"]),
        (Net({"row": Row([Row(stages(2, 2, 2).values()), Layer()])}), ["row.0.2.", "row.1.", "norm"]),
    ],
)  # fmt: skip
def test_the_top_is_whole_stages_or_blocks_and_what_runs_after_them(net: nn.Module, top: list[str]) -> None:
    assert top_of(net) == below(net, *top)


def test_where_nothing_was_seen_to_run_the_order_of_definition_counts() -> None:
    net = Net({"blocks": Row(Plain() for _ in range(8))}, norm_first=True)
    unseen = tta.top_norms(Classifier(net, last="head"))
    assert unseen == {f"net.{name}" for name in below(net, "blocks.6.", "blocks.7.")}
    seen = Classifier(net, last="head", norm_order=(*below(net, "stem", "blocks"), "norm"))
    assert "net.norm" in tta.top_norms(seen)


def test_the_order_is_that_of_running_and_goes_with_copies() -> None:
    net = Net(stages(1, 2), norm_first=True, idle=True)
    classifier = copy.deepcopy(Classifier.wrap(net, 4))
    order = [name.removeprefix("net.") for name in classifier.norm_order]
    assert order[0] == "stem.bn"
    assert order[-1] == "norm"
    assert order[1:5] == ["s1.b1.downsample.1", *(f"s1.b1.conv{i}.bn" for i in (1, 2, 3))]
    assert set(order) == below(net, "stem", "s", "norm")


class Fused(nn.Module):
    """A block that normalises with the parameters of a layer which it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        return nn.functional.layer_norm(x.mT, norm.normalized_shape, norm.weight, norm.bias).mT


def test_a_layer_that_is_never_called_ran_when_what_it_lies_in_did() -> None:
    net = Net({"blocks": Row([Plain(), Fused(), Plain()])})
    order = Classifier.wrap(net, 2).norm_order
    assert order[2:5] == ("net.blocks.0.norm2", "net.blocks.1.norm", "net.blocks.2.norm1")


@st.composite
def networks(draw: st.DrawFn) -> tuple[Net, list[str]]:
    """A network of two blocks and more, and their names in the order in which they run."""
    block: Callable[[], nn.Module] = draw(st.sampled_from([Plain, Bottleneck, lambda: Tree(0)]))
    hold: Callable[[list[nn.Module]], nn.Module] = draw(
        st.sampled_from([lambda blocks: nn.Sequential(*blocks), Row, Dict, Stage])
    )
    depths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4).filter(lambda some: sum(some) > 1))
    body = {f"stage{i}": hold([block() for _ in range(depth)]) for i, depth in enumerate(depths)}
    names = [f"{stage}.{name}." for stage, held in body.items() for name, _ in held.named_children()]
    if draw(st.booleans()):
        body = {"stages": Row(body.values())}
        numbers = (name.removeprefix("stage").partition(".") for name in names)
        names = [f"stages.{number}.{rest}" for number, _, rest in numbers]
    return Net(body, norm_first=draw(st.booleans()), idle=draw(st.booleans())), names


@given(networks())
@settings(max_examples=60, deadline=None)
def test_no_block_is_cut_and_the_ends_are_where_they_belong(made: tuple[Net, list[str]]) -> None:
    net, blocks = made
    top = top_of(net)
    inside = [bool(below(net, block) & top) for block in blocks]
    assert [below(net, block) <= top for block in blocks] == inside
    assert inside == sorted(inside)  # the last ones
    assert any(inside)
    assert not inside[0]
    free = {name for name in top if not name.startswith(tuple(blocks))}
    assert free == below(net, "norm", "aux")


@given(networks())
@settings(max_examples=30, deadline=None)
def test_what_a_network_is_wrapped_in_does_not_matter(made: tuple[Net, list[str]]) -> None:
    net, _ = made
    top = top_of(net)
    row = nn.Sequential(nn.Identity(), net)
    assert top_of(row) == {f"1.{name}" for name in top}
    assert top_of(nn.Sequential(nn.BatchNorm2d(3), row)) == {f"1.1.{name}" for name in top}
    pair = nn.ModuleDict({"model": net, "normalize": nn.Identity()})
    pair.norm_order = tuple(
        f"model.{name.removeprefix('net.')}" for name in Classifier.wrap(net, 4).norm_order
    )
    assert tta.top_norms(pair) == {f"model.{name}" for name in top}


def test_a_part_with_half_of_the_norm_layers_is_not_the_body() -> None:
    pair = nn.Module()
    pair.add_module("stage", nn.Sequential(nn.BatchNorm2d(2)))
    pair.add_module("norm", nn.BatchNorm2d(2))
    assert tta.top_norms(pair) == {"norm"}


def test_the_only_part_of_a_block_is_looked_into() -> None:
    block = nn.Module()
    block.add_module("only", nn.BatchNorm2d(2))
    net = nn.Module()
    for name, parts in {
        "stem": [nn.BatchNorm2d(2)],
        "body": [nn.BatchNorm2d(2), block],
        "head": [nn.BatchNorm2d(2)],
    }.items():
        net.add_module(name, nn.Sequential(*parts))
    assert tta.top_norms(net) == {"body.1.only", "head.0"}


def test_a_whole_network_can_be_one_norm_layer_or_none() -> None:
    assert tta.top_norms(nn.BatchNorm2d(2)) == {""}
    assert tta.top_norms(nn.Linear(2, 2)) == set()


def test_by_name_the_top_is_what_the_official_code_of_sar_names() -> None:
    net = nn.ModuleDict({"layer3": row_of(1), "layer4": row_of(1), "blocks": row_of(12), "norm": row_of(1)})
    top = below(net, "layer4.", "blocks.9.", "blocks.10.", "blocks.11.", "norm.")
    assert tta.top_norms(net, by_name=True) == tta.top_norms_by_name(net) == top
    assert tta.top_norms_by_name(Net({"blocks": row_of(2)})) == {"norm"}
    wrapped = Classifier.wrap(Net({"blocks": row_of(2)}), 4)
    assert tta.top_norms_by_name(wrapped) == {"net.norm"}
