"""Names of architectures, and the member of each family for a dataset. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ttabench.errors import UserError, unknown

ARCHS = {
    "resnet18": "ResNet18 with the CIFAR stem (3×3 convolution, stride 1, no max-pool)",
    "cct": "Compact Convolutional Transformer: convolutional tokenizer, sequence pooling",
    "cvt": "Compact Vision Transformer: patch tokens, sequence pooling",
    "vit_lite": "ViT-Lite: patch tokens, class token",
}
"""The general names; `PRESETS` gives the member for a dataset."""

# Layers → (heads, MLP ratio, embedding dimension), Hassani et al. 2021, table 1.
COMPACT_SIZES = {2: (2, 1, 128), 4: (2, 1, 128), 6: (4, 2, 256), 7: (4, 2, 256), 14: (6, 3, 384)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One concrete architecture.

    name         e.g. ``cct_7_3x1_32``: seven layers, one 3×3 convolution, 32-pixel images.
    family       resnet18 | cifar_resnet | cct | cvt | vit_lite.
    options      keyword arguments of the family's constructor.
    image_size   the only image size it takes; 0 = any.
    num_classes  the only number of classes it has; 0 = any.
    """

    name: str
    family: str
    options: dict[str, Any] = field(default_factory=dict)
    image_size: int = 0
    num_classes: int = 0


def _compact(name: str, family: str, layers: int, image_size: int, **tokenizer: int) -> list[Member]:
    """A compact transformer in two forms: with learned positions, and as ``…_sine`` with fixed positions."""
    heads, mlp_ratio, dim = COMPACT_SIZES[layers]
    options = {"layers": layers, "heads": heads, "mlp_ratio": mlp_ratio, "dim": dim, **tokenizer}
    return [
        Member(
            name=name + suffix, family=family, options={**options, "positions": kind}, image_size=image_size
        )
        for suffix, kind in (("", "learned"), ("_sine", "sine"))
    ]


def _cct(layers: int, kernel: int, convs: int, size: int) -> list[Member]:
    name = f"cct_{layers}_{kernel}x{convs}_{size}"
    return _compact(name, "cct", layers, size, kernel=kernel, convs=convs)


def _members() -> dict[str, Member]:
    members = [
        Member(name=f"resnet18_w{w}", family="resnet18", options={"width": w}) for w in (8, 16, 32, 64, 128)
    ]
    members += [
        Member(name=f"resnet{d}", family="cifar_resnet", options={"depth": d}) for d in (20, 32, 44, 56, 110)
    ]
    for layers, convs in ((2, 2), (4, 2), (6, 1), (6, 2), (7, 1), (7, 2)):
        for size in (32, 64):
            members += _cct(layers, 3, convs, size)
    for layers, size in ((7, 224), (14, 224), (14, 384)):
        members += _cct(layers, 7, 2, size)
    for layers in (2, 4, 6, 7):
        for size, patch in ((32, 4), (64, 4), (64, 8)):
            members += _compact(f"cvt_{layers}_{patch}_{size}", "cvt", layers, size, patch=patch)
            members += _compact(f"vit_{layers}_{patch}_{size}", "vit_lite", layers, size, patch=patch)
    # Names under which the authors publish 100-class weights.
    for base in ("cct_7_3x1_32", "cct_7_3x1_32_sine"):
        original = next(m for m in members if m.name == base)
        members.append(
            Member(
                name=f"{base}_c100", family="cct", options=original.options, image_size=32, num_classes=100
            )
        )
    return {member.name: member for member in members}


MEMBERS = _members()

# At 64 pixels all three transformers see 256 tokens: patches of 4, and two convolutions instead of one
# for CCT (a single one would make 1,024 tokens).
PRESETS: dict[str | int, dict[str, str]] = {
    "digits-c": {
        "resnet18": "resnet18_w8", "cct": "cct_2_3x2_32", "cvt": "cvt_2_4_32", "vit_lite": "vit_2_4_32",
    },
    32: {"resnet18": "resnet18_w64", "cct": "cct_7_3x1_32", "cvt": "cvt_7_4_32", "vit_lite": "vit_7_4_32"},
    64: {"resnet18": "resnet18_w64", "cct": "cct_7_3x2_64", "cvt": "cvt_7_4_64", "vit_lite": "vit_7_4_64"},
    224: {"cct": "cct_14_7x2_224"},
}  # fmt: skip
"""The member of a general name: by dataset, otherwise by image size in pixels."""


SHORT = re.compile(r"(cct|cvt|vit)_(\d+)(_sine)?")  # a compact transformer by its depth alone
SIZELESS = re.compile(r"(cct_\d+_\d+x\d+|(?:cvt|vit)_\d+_\d+)(?=$|_sine|_c100)")


def resolve(arch: str, *, dataset: str, image_size: int, num_classes: int = 0) -> Member:
    """The member that `arch` names for this dataset.

    A general name is looked up in `PRESETS`. A name with the depth only (``cct_7``) means the member with
    the tokenizer that its authors use at this image size. The image size may be left out (``cct_7_3x1``).
    ViT-Lite is ``vit_lite_…`` or, as its authors call it, ``vit_…``. Upper case and hyphens are accepted.
    Raises UserError for an unknown name, or if the member has another image size or number of classes.
    """
    name = arch.lower().replace("-", "_")
    if name in ARCHS:
        presets = PRESETS.get(dataset) or PRESETS.get(image_size, {})
        if name not in presets:
            raise UserError(
                f"{arch} has no preset for {dataset} ({image_size}-pixel images); presets exist for 32 and "
                "64 pixels; for other sizes, give an exact name, such as resnet18_w8, see `ttabench list "
                "archs`, or a model timm/NAME."
            )
        name = presets[name]
    name = name.replace("vit_lite_", "vit_")
    if depth_name := SHORT.fullmatch(name):
        name = _of_depth(arch, depth_name, image_size)
    name = SIZELESS.sub(rf"\1_{image_size}", name)
    if name not in MEMBERS:
        raise unknown("architecture", arch, [*ARCHS, *_depths(), *MEMBERS], "`ttabench list archs`")
    member = MEMBERS[name]
    for unit, required, given in (
        ("pixels", member.image_size, image_size),
        ("classes", member.num_classes, num_classes),
    ):
        if required and given and required != given:
            raise UserError(
                f"{name} is made for {required} {unit}, but {dataset} has {given}; see `ttabench list archs`."
            )
    return member


def usual_name(member: Member, *, dataset: str, image_size: int) -> str:
    """The shortest name of a member for this dataset: ``resnet18`` for ``resnet18_w8`` on digits-c.

    A network has one name in results, whatever name it was asked for by.
    """
    presets = PRESETS.get(dataset) or PRESETS.get(image_size, {})
    names = [general for general, full in presets.items() if full == member.name]
    if (depth := SHORT.match(member.name)) and "_c100" not in member.name:
        sine = "_sine" if member.name.endswith("_sine") else ""
        names.append(f"{depth[1]}_{depth[2]}{sine}")
    for name in names:
        try:
            if resolve(name, dataset=dataset, image_size=image_size).name == member.name:
                return name
        except UserError:  # this depth has no member of this image size
            continue
    return member.name


def _of_depth(arch: str, short: re.Match[str], image_size: int) -> str:
    """``cct_7`` at 32 pixels → ``cct_7_3x1_32``; a depth without a member is returned unchanged."""
    family, layers, positions = short.groups(default="")
    depth = f"{family}_{layers}"
    if depth not in _depths():
        return depth
    if family != "cct":
        tokenizer = "4"
    elif image_size >= 224:
        tokenizer = "7x2"
    else:  # one convolution where the authors publish it and the tokens are not too many
        tokenizer = "3x1" if image_size <= 32 and int(layers) >= 6 else "3x2"
    name = f"{depth}_{tokenizer}_{image_size}{positions}"
    if name not in MEMBERS:
        known_names = ", ".join(
            m for m in MEMBERS if m.startswith(f"{depth}_") and m.endswith(tuple("0123456789"))
        )
        raise UserError(f"{arch} is not made for images of {image_size} pixels; there are {known_names}.")
    return name


def _depths() -> list[str]:
    """``cct_2``, ``cct_4`` …"""
    return sorted({short[0] for name in MEMBERS if (short := SHORT.match(name))})
