"""How source classifiers are trained: plain data, by dataset and family. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from ttabench.errors import UserError, unknown
from ttabench.models.architectures.arch_names import Member

FAST = "fast"
PAPER = "paper"
CROSS_ENTROPY = "cross-entropy"  # fast, without label smoothing, as the networks of the quantile paper
PORTABLE = "-portable"  # after the name of a recipe: the same weights on other processors too
NO_MIRROR = "-no-mirror"  # after the name of a recipe, the last: without the random mirror
COMPUTATION = 2  # of portable recipes; increase it when a change of the code changes their weights alone
PART = 32  # images, of portable recipes for networks without batch norm: activations stay in the cache
SMALLEST_BATCH = 16  # batch norm needs some images
LEAST_STEPS = 600
PYTHON = "python"  # the family of networks that a function of the user makes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training recipe.

    optimizer        sgd (Nesterov momentum 0.9) | adamw.
    lr, final_lr     peak and final learning rate: linear warm-up, then a cosine.
    warmup           fraction of all steps spent warming up.
    weight_decay     on filters and matrices; on norms and biases too where `decay_all`.
    label_smoothing  in 0 … 1.
    clip             largest norm of the whole gradient; 0 = off.
    shift            random shift of up to this many pixels, zeros moving in.
    flip             random horizontal mirror.
    randaugment      magnitude 0 … 10 of two random operations per image; 0 = off.
    mixup, cutmix    α of the Beta distribution, 0 = off; with both, a coin per batch decides.
    mix_until        fraction of the epochs after which images are no longer mixed.
    compile          torch.compile, on a GPU only.
    precision        "auto": bfloat16 autocast on a GPU, float32 elsewhere; or either by name.
    least_steps      updates that a small training set gets at least: more epochs, and smaller batches,
                     see :func:`fitted`; 0 = as many as the epochs make.
    threads          CPU threads; 0 = as the process has them. Sums, and with them the last bits of
                     the weights, depend on it.
    part             images whose gradient is computed at once, see :mod:`ttabench.models.training.parts`;
                     0 = the whole batch. The weights depend on it, and not on how many parts are computed
                     side by side. Not for batch norm.
    portable         not 0: on the CPU alone, with kernels that sum in the same order on every processor, see
                     :mod:`ttabench.models.training.portable`. The number is that of the computation.
    """

    name: str
    epochs: int
    batch_size: int
    optimizer: str
    lr: float
    final_lr: float = 0.0
    warmup: float = 0.25
    weight_decay: float = 0.0
    decay_all: bool = False
    label_smoothing: float = 0.0
    clip: float = 0.0
    shift: int = 0
    flip: bool = False
    randaugment: int = 0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_until: float = 1.0
    compile: bool = False
    precision: str = "auto"
    threads: int = 0
    least_steps: int = 0
    part: int = 0
    portable: int = 0

    def identity(self) -> dict[str, Any]:
        """What differs from the defaults, so that a field added later leaves old checkpoints valid.

        Without `least_steps`: what it changes are the epochs and the batch size.
        """
        named = [f for f in fields(self) if f.name != "least_steps"]
        return {f.name: getattr(self, f.name) for f in named if getattr(self, f.name) != f.default}


def fitted(recipe: Recipe, images: int) -> Recipe:
    """A recipe for a training set of `images`; it does not change for large sets.

    The recipes are made for tens of thousands of images. With a few hundred images, 30 epochs in batches of
    512 are only 30 updates. So the batch size is at most an eighth of the images, and at least 16. The
    learning rate of SGD is scaled with the batch size, that of AdamW with its square root. Epochs are added
    until there are `least_steps` updates.
    """
    if not recipe.least_steps:
        return recipe
    batch = min(recipe.batch_size, max(SMALLEST_BATCH, images // 8))
    part = batch / recipe.batch_size
    factor = part if recipe.optimizer == "sgd" else math.sqrt(part)
    steps = max(1, images // min(batch, max(1, images)))
    return replace(
        recipe, batch_size=batch, lr=recipe.lr * factor, final_lr=recipe.final_lr * factor,
        epochs=max(recipe.epochs, math.ceil(recipe.least_steps / steps)),
    )  # fmt: skip


# ---- digits: no flips, one thread so that the weights do not depend on the number of cores

_digits_resnet = Recipe(
    name=FAST, epochs=10, batch_size=32, optimizer="adamw", lr=3e-3, weight_decay=0.05,
    label_smoothing=0.1, clip=1.0, shift=2, precision="float32", threads=1,
)  # fmt: skip
_digits_cct = replace(_digits_resnet, epochs=9, batch_size=24)
_digits_patches = replace(_digits_resnet, epochs=25)  # cheap epochs, but no convolution to start from

# ---- natural images of 32 and 64 pixels

_resnet_fast = Recipe(
    name=FAST, epochs=30, batch_size=512, optimizer="sgd", lr=0.4, warmup=0.2, weight_decay=5e-4,
    label_smoothing=0.1, shift=4, flip=True, compile=True, least_steps=LEAST_STEPS,
)  # fmt: skip
# The ResNet18 of NOTE and SoTTA (200 epochs, SGD 0.1, momentum 0.9, Nesterov, weight decay 5e-4, cosine).
_resnet_paper = Recipe(
    name=PAPER, epochs=200, batch_size=128, optimizer="sgd", lr=0.1, warmup=0.0, weight_decay=5e-4,
    decay_all=True, shift=4, flip=True, compile=True, least_steps=LEAST_STEPS,
)  # fmt: skip
# He et al. 2016, section 4.2: 64,000 steps of 128 images, but with a cosine in place of two drops.
_cifar_resnet_paper = replace(_resnet_paper, epochs=164, weight_decay=1e-4)
_small_transformer_fast = Recipe(
    name=FAST, epochs=26, batch_size=128, optimizer="adamw", lr=1.5e-3, weight_decay=0.05,
    clip=1.0, shift=4, flip=True, compile=True, least_steps=LEAST_STEPS,
)  # fmt: skip
_transformer_fast = Recipe(
    name=FAST, epochs=60, batch_size=256, optimizer="adamw", lr=1e-3, warmup=0.15, weight_decay=0.06,
    label_smoothing=0.1, clip=1.0, shift=4, flip=True, compile=True, least_steps=LEAST_STEPS,
)  # fmt: skip
# Hassani et al. 2021, the published CIFAR-10 configuration (300 epochs, 10 of warm-up).
_transformer_paper = Recipe(
    name=PAPER, epochs=300, batch_size=128, optimizer="adamw", lr=5.5e-4, final_lr=1e-5, warmup=10 / 300,
    weight_decay=0.06, label_smoothing=0.1, shift=4, flip=True, randaugment=9, mixup=0.8, cutmix=1.0,
    compile=True, least_steps=LEAST_STEPS,
)  # fmt: skip

# ---- a network that we do not know: nothing that suits one family alone

_general = Recipe(
    name=FAST, epochs=30, batch_size=128, optimizer="adamw", lr=1e-3, warmup=0.1, weight_decay=0.05,
    label_smoothing=0.1, clip=1.0, shift=2, least_steps=LEAST_STEPS,
)  # fmt: skip


def recipe_for(member: Member, dataset: str, name: str = "") -> Recipe:
    """The recipe called `name` ("" = fast), its portable form, or either without the random mirror.

    Raises UserError for an unknown name.
    """
    if name.endswith(NO_MIRROR):
        return unmirrored(recipe_for(member, dataset, name.removesuffix(NO_MIRROR)))
    if member.family == PYTHON:
        choices = {FAST: replace(_general, flip=dataset != "digits-c")}
    elif dataset == "digits-c":
        digits = {"cct": _digits_cct, "cvt": _digits_patches, "vit_lite": _digits_patches}
        choices = {FAST: digits.get(member.family, _digits_resnet)}
    elif member.family == "resnet18":
        choices = {FAST: _resnet_fast, PAPER: _resnet_paper}
    elif member.family == "cifar_resnet":
        choices = {FAST: _resnet_fast, PAPER: _cifar_resnet_paper}
    else:
        paper = _transformer_paper
        if dataset.startswith("cifar100"):
            paper = replace(paper, lr=6e-4)
        elif dataset.startswith("cifar10"):
            paper = replace(paper, mix_until=175 / 300)
        small = member.options["dim"] <= 128
        choices = {FAST: _small_transformer_fast if small else _transformer_fast, PAPER: paper}
    if PAPER in choices:
        choices[CROSS_ENTROPY] = replace(choices[FAST], name=CROSS_ENTROPY, label_smoothing=0.0)
    # Torch computes the sines of RandAugment's rotations with kernels that cannot be fixed.
    part = PART if member.family in ("cct", "cvt", "vit_lite") else 0
    fixed = [portable(recipe, part) for recipe in choices.values() if not recipe.randaugment]
    choices |= {recipe.name: recipe for recipe in fixed}
    if (name or FAST) not in choices:
        raise UserError(
            f"{unknown('recipe', name, choices)} These are the recipes of {member.name} on {dataset}."
        )
    return choices[name or FAST]


def unmirrored(recipe: Recipe) -> Recipe:
    """The same recipe without the random mirror; one that has none is itself."""
    return replace(recipe, name=f"{recipe.name}{NO_MIRROR}", flip=False) if recipe.flip else recipe


def portable(recipe: Recipe, part: int = 0) -> Recipe:
    """The same recipe for the same weights on every x86-64 processor with AVX2; `part` as in `Recipe`."""
    return replace(
        recipe, name=f"{recipe.name}{PORTABLE}", portable=COMPUTATION, precision="float32", threads=1,
        compile=False, part=part,
    )  # fmt: skip
