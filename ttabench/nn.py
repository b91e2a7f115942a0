"""Mechanics that several methods share: norm layers, test-time statistics, entropy, sharpness, averages.

A method file imports from here and from `ttabench.method`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttabench.classifier import Classifier
from ttabench.errors import Alarm, UserError
from ttabench.method import Architecture, Method, Needs, Paper, SourceData

__all__ = [
    "MEDBN",
    "AdaptiveBatchNorm",
    "Classifier",
    "NormAdapter",
    "adapt_batch_norm",
    "average_parameters",
    "buffers_kept",
    "channel_statistics",
    "describe",
    "entropy",
    "estimate_batch_norm",
    "make_optimizer",
    "masked_mean",
    "minimise",
    "moments",
    "moving_average",
    "norm_affine",
    "norm_kind",
    "norm_modules",
    "norm_needs",
    "pull",
    "set_norm_mode",
    "sharpness",
    "snapshot",
    "soft_cross_entropy",
    "sound_alarm",
    "source_batches",
    "stabilised_entropy",
    "top_norms",
    "top_norms_by_name",
    "transformer_blocks",
    "use_batch_statistics",
    "use_running_statistics",
    "widen",
]


# ---- normalisation layers


def norm_kind(module: nn.Module) -> str:
    """ "batch", "group", "layer" or "instance"; "" for everything else."""
    if isinstance(module, _BatchNorm):
        return "batch"
    if isinstance(module, nn.GroupNorm):
        return "group"
    if isinstance(module, nn.LayerNorm) or type(module).__name__ in ("LayerNorm2d", "RMSNorm"):
        return "layer"
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return "instance"
    return ""


def norm_modules(model: nn.Module, norms: str = "all") -> Iterator[tuple[str, nn.Module]]:
    """Named normalisation layers: `norms` is one kind, e.g. "batch", or "all" for every kind."""
    for name, module in model.named_modules():
        kind = norm_kind(module)
        if kind and norms in ("all", kind):
            yield name, module


def norm_affine(model: nn.Module, norms: str = "all", skip: Collection[str] = ()) -> dict[str, nn.Parameter]:
    """Weight and bias of the normalisation layers, switched to require gradients, by name.

    Layers named in `skip` are left out (see :func:`top_norms`). Raises UserError where nothing is left.
    """
    found = {
        f"{name}.{leaf}": parameter
        for name, module in norm_modules(model, norms)
        if name not in skip
        for leaf, parameter in module.named_parameters(recurse=False)
        if leaf in ("weight", "bias")
    }
    if not found:
        kind = "" if norms == "all" else f"{norms} "
        raise UserError(f"the model has no {kind}norm layer with a weight or bias to adapt.")
    for parameter in found.values():
        parameter.requires_grad_(True)
    return found


def norm_needs(norms: str, statistics: str = "batch") -> tuple[str, ...]:
    """The kinds of norm layer of which a method that adapts `norms` ("batch" or "all") needs one.

    Statistics other than "batch" say something about batch norm only, so they need it.
    """
    if norms == "all" and statistics == "batch":
        return ("batch", "group", "layer", "instance")
    return ("batch",)


def set_norm_mode(model: nn.Module, *, train: bool) -> None:
    """Put the normalisation layers, and nothing else, in train or eval mode.

    Dropout and stochastic depth stay in eval mode, which matters for transformers, whose
    training-mode forward passes differ from each other.
    """
    for _, module in norm_modules(model):
        module.training = train  # not train(), which reaches what a layer of another make has inside


def describe(model: nn.Module, parameters: dict[str, nn.Parameter]) -> str:
    """Which layers `parameters` belong to, e.g. ``20 BatchNorm2d (1,920 parameters)``."""
    kinds: dict[str, int] = {}
    for owner in {name.rpartition(".")[0] for name in parameters}:
        module = model.get_submodule(owner)
        kind = module.replaces if isinstance(module, AdaptiveBatchNorm) else type(module).__name__
        kinds[kind] = kinds.get(kind, 0) + 1
    layers = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    return f"{layers or 'nothing'} ({sum(p.numel() for p in parameters.values()):,} parameters)"


# ---- which layers are the top


def top_norms(model: nn.Module, *, by_name: bool = False) -> set[str]:
    """Names of the norm layers near the output: of the last stage or blocks, and of all that follows.

    SAR, SoTTA and DeYO leave these alone. Stages (a network with several lists of blocks, as a ResNet)
    or blocks (one list, as a vision transformer) are found by their structure, not by their names; the
    last quarter of them, at least one, is the top: layer4 of a ResNet18, 3 of 12 or 2 of 7 transformer
    blocks with the final norm. No block is cut: all of its layers are in the top or none is. Where there
    are no blocks, the parts of the network and its single norm layers are counted.

    What follows is known from the order in which the layers ran (``Classifier.norm_order``); where that is
    unknown, the order in which they are defined is taken for it. A layer outside of the blocks that never
    ran is in the top too. With `by_name`, :func:`top_norms_by_name` decides.
    """
    if by_name:
        return top_norms_by_name(model)
    norms = dict(norm_modules(model))
    order: Iterable[str] = getattr(model, "norm_order", ()) or norms
    place = {norms[name]: i for i, name in enumerate(order) if name in norms}
    if not place:
        return set(norms)
    units = _units(model, place) or _units(model, place, loose=True) or [model]
    top = units[-max(1, round(len(units) / 4)) :]
    inside = {module for unit in units for module in unit.modules()}
    within = {module for unit in top for module in unit.modules()}
    start = min(i for norm, i in place.items() if norm in within)
    return {
        name
        for name, norm in norms.items()
        if norm in within or (norm not in inside and place.get(norm, start) >= start)
    }


LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def _units(module: nn.Module, place: Mapping[nn.Module, int], loose: bool = False) -> list[nn.Module]:
    """The stages in `module`, or the blocks where it has one list of them, in order; none without blocks.

    A list of blocks is a container of modules with norm layers inside, or neighbours of one type in
    another module (see :func:`_rows`). One that holds most of the network's norm layers, and after which
    none of its kind comes, is the body and looked into: the blocks behind a stem that has blocks too, a
    network in a row with its head. `place` has the network's norm layers by the order in which they run.
    With `loose`, any parts with norm layers count, and single norm layers where the parts have not most.
    """
    parts = [part for part in module.children() if part not in place and _held(part, place)]
    if loose and 2 * sum(len(_held(part, place)) for part in parts) <= len(place):
        parts = [part for part in module.children() if _held(part, place)]
    parts.sort(key=lambda part: min(_held(part, place)))
    contains = isinstance(module, LISTS)
    if not loose and not contains:
        parts = [row for row in _rows(parts, place) if _units(row, place)]
    for i, part in enumerate(parts):
        most = 2 * len(_held(part, place)) > len(place)
        if (len(parts) == 1 and not contains) or (most and type(part) not in map(type, parts[i + 1 :])):
            return _units(part, place, loose) or parts
    return parts


def _rows(parts: list[nn.Module], place: Mapping[nn.Module, int]) -> Iterator[nn.Module]:
    """`parts`, neighbours of one type as one list; not containers, nor layers with one norm layer each."""
    for _, row in groupby(parts, key=lambda part: part if type(part) in LISTS else type(part)):
        blocks = list(row)
        if 1 < len(blocks) < sum(len(_held(block, place)) for block in blocks):
            yield nn.ModuleList(blocks)
        else:
            yield from blocks


def _held(part: nn.Module, place: Mapping[nn.Module, int]) -> list[int]:
    return [place[inner] for inner in part.modules() if inner in place]


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """The longest list of modules of one type with a layer norm inside; empty where there is none."""
    lists = [list(module.children()) for module in model.modules() if isinstance(module, LISTS)]
    lists = [
        blocks
        for blocks in lists
        if len({type(block) for block in blocks}) == 1
        and any(norm_kind(inner) == "layer" for inner in blocks[0].modules() if inner is not blocks[0])
    ]
    return max(lists, key=len, default=[])


def top_norms_by_name(model: nn.Module) -> set[str]:
    """The layers SAR's official code leaves alone, by name: for torchvision's ResNets and timm's ViT-B."""
    marks = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm.")
    return {
        name
        for name, _ in norm_modules(model)
        if (own := name.removeprefix("net.")) == "norm" or any(mark in own for mark in marks)
    }


# ---- statistics of batch-norm layers


def moments(x: Tensor, statistics: str = "batch") -> tuple[Tensor, Tensor]:
    """Centre and spread (C,), (C,) of (B, C, …) per channel, over everything else.

    "batch": mean and biased variance. "median": the lower median m and the mean of (x − m)²
    (MedBN, Park et al., CVPR 2024); the median's gradient goes to the selected element.
    """
    if statistics not in ("batch", "median"):
        raise UserError(f"statistics is '{statistics}'; expected batch or median.")
    rows = x.transpose(0, 1).flatten(1)
    centre = rows.mean(dim=1) if statistics == "batch" else rows.median(dim=1).values
    return centre, (rows - centre[:, None]).square().mean(dim=1)


# The forward passes that do nothing but normalise.
PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


class AdaptiveBatchNorm(_BatchNorm):
    """A batch-norm layer whose statistics are, or come to be, those of the test data.

    (μ, σ²) = (1 − w)·(stored mean, stored variance) + w·(m, v), with (m, v) the :func:`moments` of the
    input; gradients flow through m and v.

    statistics  "batch" or "median".
    weight      w in [0, 1]. With 1, what is stored is neither read nor kept.
    prior       N > 0: w = n / (N + n) for a batch of n images (Schneider et al., NeurIPS 2020).
    track       in train mode the mixture replaces what is stored, in eval mode what is stored is used
                (RobustBN: Yuan et al., CVPR 2023). Otherwise both modes do the same and nothing moves.
    after       what the layer goes on to, such as an activation; none for torch's own layers.
    """

    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(
        self,
        layer: _BatchNorm,
        statistics: str = "batch",
        weight: float = 1.0,
        prior: float = 0.0,
        track: bool = False,
        after: nn.Module | None = None,
    ) -> None:
        super().__init__(layer.num_features, layer.eps, affine=False, track_running_stats=False)
        self.replaces = type(layer).__name__
        self.weight, self.bias, self.affine = layer.weight, layer.bias, layer.affine
        self.statistics, self.mix, self.prior, self.track = statistics, weight, prior, track
        if track or prior or weight < 1:
            if layer.running_mean is None or layer.running_var is None:
                raise UserError(f"a {self.replaces} layer of the model has no stored statistics to mix with.")
            self.running_mean, self.running_var = layer.running_mean.clone(), layer.running_var.clone()
        self.after = after
        self.training = layer.training

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        out = self._normalise(input)
        return out if self.after is None else cast(Tensor, self.after(out))

    def _normalise(self, input: Tensor) -> Tensor:
        if self.running_mean is None and self.statistics == "batch":
            return self._fused(input, own=True)
        if self.track and not self.training:
            return self._fused(input, own=False)
        mean, var = self._statistics(input)
        shape = (1, -1, *(1,) * (input.dim() - 2))
        scale = (var + self.eps).rsqrt()
        if self.weight is not None:
            scale = self.weight * scale
        out = (input - mean.view(shape)) * scale.view(shape)
        return (out if self.bias is None else out + self.bias.view(shape)).to(input.dtype)

    def _fused(self, x: Tensor, own: bool) -> Tensor:
        """Unlike nn.functional.batch_norm, torch.batch_norm takes a single value per channel."""
        stored = (None, None) if own else (self.running_mean, self.running_var)
        cudnn = torch.backends.cudnn.enabled
        return torch.batch_norm(x, self.weight, self.bias, *stored, own, 0.0, self.eps, cudnn)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = moments(widen(x), self.statistics)
        if self.running_mean is None or self.running_var is None:
            return mean, var
        w = len(x) / (self.prior + len(x)) if self.prior else self.mix
        mean, var = (1 - w) * self.running_mean + w * mean, (1 - w) * self.running_var + w * var
        if self.track:
            self.running_mean, self.running_var = mean.detach(), var.detach()
        return mean, var


def adapt_batch_norm(
    model: nn.Module, statistics: str = "batch", weight: float = 1.0, prior: float = 0.0, track: bool = False
) -> None:
    """Put an :class:`AdaptiveBatchNorm` in the place of every batch-norm layer; affine parameters stay.

    Raises UserError for a layer of another make that does more than normalise, unless what it does
    besides is known (timm's layers go on to `drop` and `act`).
    """
    for name, layer in list(norm_modules(model, "batch")):
        after = None
        if type(layer).forward not in PLAIN_FORWARDS:
            rest = [getattr(layer, part, None) for part in ("drop", "act")]
            if not all(isinstance(part, nn.Module) for part in rest):
                raise UserError(
                    f"{type(layer).__name__} at '{name}' is a batch norm that ttabench does not know; "
                    "use nn.BatchNorm2d, or a method that leaves batch norm alone."
                )
            after = nn.Sequential(*cast(list[nn.Module], rest))
        parent, _, leaf = name.rpartition(".")
        new = AdaptiveBatchNorm(cast(_BatchNorm, layer), statistics, weight, prior, track, after)
        setattr(model.get_submodule(parent), leaf, new)


def use_batch_statistics(model: nn.Module, statistics: str = "batch") -> None:
    """Every batch-norm layer normalises with the statistics of its own input, in any mode.

    "batch": mean and biased variance; "median": see :func:`moments`. No other layer changes.
    """
    adapt_batch_norm(model, statistics)


def estimate_batch_norm(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Stored statistics of batch norm become those of `batches`, the mean over them; eval mode uses them."""
    layers: list[Any] = [layer for _, layer in norm_modules(model, "batch")]
    layers = [layer for layer in layers if layer.running_mean is not None]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum, layer.training = None, True
    with torch.no_grad():
        for x in batches:
            model(x)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum, layer.training = momentum, False


def use_running_statistics(model: nn.Module, statistics: str, momentum: float) -> None:
    """In train mode, batch norm moves what it has stored by `momentum`; in eval mode it normalises with that.

    "batch" is torch's own behaviour: train mode normalises with the batch's statistics. With "median" it
    normalises with what is stored, moved first (MedBN's layer for SoTTA).
    """
    if statistics != "batch":
        adapt_batch_norm(model, statistics, weight=momentum, track=True)
    layer: Any
    for _, layer in norm_modules(model, "batch"):
        layer.momentum = momentum


# ---- objectives


def widen(x: Tensor) -> Tensor:
    """Half precision → float32, so that sums and logarithms keep their digits; the rest as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def channel_statistics(batches: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,) of the channels over all pixels of batches (b, C, H, W)."""
    count, mean, square = 0, torch.zeros(()), torch.zeros(())
    for x in batches:
        count += len(x)
        mean = mean.to(x) + (x.mean((0, 2, 3)) - mean.to(x)) * (len(x) / count)
        square = square.to(x) + (x.square().mean((0, 2, 3)) - square.to(x)) * (len(x) / count)
    return mean, (square - mean.square()).clamp_min(0).sqrt()


def entropy(logits: Tensor) -> Tensor:
    """Softmax entropy per row, natural logarithm: (B, C) → (B,)."""
    log_p = torch.log_softmax(widen(logits), dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def stabilised_entropy(logits: Tensor) -> Tensor:
    """−Σ p log(p + 10⁻⁶) per row, as the official codes of RoTTA and SoTTA have it: (B, C) → (B,)."""
    p = widen(logits).softmax(dim=1)
    return -(p * (p + 1e-6).log()).sum(dim=1)


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ softmax(target) · log softmax(logits) per row: (B, C), (B, C) → (B,)."""
    return -(torch.softmax(widen(target), dim=1) * torch.log_softmax(widen(logits), dim=1)).sum(dim=1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the rows of `values` (B, …) where `mask` (B,) is true; 0, with zero gradient, where none is."""
    weight = mask.to(values.dtype).view(-1, *(1,) * (values.dim() - 1))
    return (weight * values).sum(dim=0) / weight.sum().clamp(min=1)


# ---- updates


def make_optimizer(
    kind: str, parameters: Iterable[nn.Parameter], lr: float, momentum: float = 0.9, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """ "adam" and "adamw" (β₁ = momentum, β₂ = 0.999), "sgd" (heavy-ball momentum) or "nesterov".

    Weight decay is an L2 term of the gradient, but for "adamw", where it is decoupled. Fused, since norm
    layers have so many small parameters that a step of single operations would be felt.
    """
    if kind in ("adam", "adamw"):
        adam = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
        return adam(parameters, lr, betas=(momentum, 0.999), weight_decay=weight_decay, fused=True)
    if kind in ("sgd", "nesterov"):
        nesterov = kind == "nesterov"
        return torch.optim.SGD(parameters, lr, momentum, 0, weight_decay, nesterov, fused=True)
    raise UserError(f"optimizer is '{kind}'; expected adam, adamw, sgd or nesterov.")


def minimise(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """One step of the optimiser on the gradient of `loss`."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


@contextmanager
def sharpness(parameters: Iterable[nn.Parameter], rho: float) -> Iterator[None]:
    """Inside: the parameters at θ + ρ·g/‖g‖ (Foret et al., ICLR 2021, Eq. 2), gradients cleared.

    g is the gradient at entry, over all `parameters`. On leaving, they are back at θ bitwise, with the
    gradient taken inside, ready for the optimiser's step.
    """
    moved: list[Tensor] = [p for p in parameters if p.grad is not None]
    if not moved:
        yield
        return
    with torch.no_grad():
        before = [p.clone() for p in moved]
        grads = [cast(Tensor, p.grad) for p in moved]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_add_(moved, list(torch._foreach_mul(grads, rho / (norm + 1e-12))))
    for p in moved:
        p.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(moved, before)


def moving_average(average: Tensor | None, new: Tensor, momentum: float = 0.9) -> Tensor:
    """momentum · average + (1 − momentum) · new, detached; the first time `new` itself."""
    new = new.detach()
    return new if average is None else momentum * average + (1 - momentum) * new


@torch.no_grad()
def average_parameters(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """teacher ← momentum · teacher + (1 − momentum) · student, all parameters, no buffers."""
    # lerp is exact where both agree, so what is frozen does not drift
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)


def snapshot(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Copies of the values as they are, by name."""
    return {name: p.detach().clone() for name, p in parameters.items()}


@torch.no_grad()
def pull(parameters: Mapping[str, nn.Parameter], anchor: Mapping[str, Tensor], share: float = 1.0) -> None:
    """θ ← (1 − share) θ + share θ₀, with θ₀ a :func:`snapshot`; with a share of 1 bitwise back at it."""
    for name, p in parameters.items():
        if share == 1:
            p.copy_(anchor[name])
        else:
            p.lerp_(anchor[name], share)


# ---- alarms and source data


def sound_alarm(method: str, alarm: str) -> str:
    """Warn of a setting with which a method cannot work; returns the alarm, for `Method.alarms`."""
    warnings.warn(f"{method}: {alarm}", Alarm, stacklevel=3)
    return alarm


def source_batches(source: SourceData | None, batch_size: int, limit: int) -> Iterator[Tensor]:
    """Clean source images in random order. Raises UserError where there is no source."""
    if source is None:
        raise UserError("this method needs clean source images: call prepare(source) with some.")
    return source.batches(batch_size, limit, shuffle=True)


# ---- what TENT and its successors share


class NormConfig(Protocol):
    """The settings a :class:`NormAdapter` reads: ``norms`` is "batch" or "all"."""

    @property
    def norms(self) -> str: ...
    @property
    def statistics(self) -> str: ...
    @property
    def optimizer(self) -> str: ...
    @property
    def lr(self) -> float: ...
    @property
    def momentum(self) -> float: ...


C = TypeVar("C", bound=NormConfig)


MEDBN = Paper(
    key="park2024medbn",
    title="MedBN: Robust Test-Time Adaptation against Malicious Test Samples",
    authors="Park, Hyejin and Hwang, Jeongyeon and Mun, Sunung and Park, Sangdon and Ok, Jungseul",
    venue="CVPR",
    year=2024,
    url="https://arxiv.org/abs/2403.19326",
)


class NormAdapter(Method[C]):
    """A method that learns the affine parameters of norm layers, with batch statistics in every pass.

    Where the default is batch norm alone, models without it get ``norms="all"``, as in the official
    code of SAR for TENT and EATA.

    vit_lr           the official learning rate of transformers, where it is another than that of ResNets.
    imagenet_vit_lr  the same with a thousand classes and more, where `vit_lr` is not set.
    """

    vit_lr: ClassVar[float] = 0.0
    imagenet_vit_lr: ClassVar[float] = 0.0

    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer

    @classmethod
    def needs_of(cls, config: C) -> Needs:
        return replace(cls.needs, norm_layers=norm_needs(config.norms, config.statistics))

    @classmethod
    def for_architecture(cls, arch: Architecture) -> Mapping[str, Any]:
        kinds = set(arch.norm_layers)
        norms = {} if "batch" in kinds or cls.Config().norms == "all" else {"norms": "all"}
        lr = cls.vit_lr or (cls.imagenet_vit_lr if arch.num_classes >= 1000 else 0.0)
        return norms | ({"lr": lr} if lr and not {"batch", "group"} & kinds else {})

    @classmethod
    def papers_of(cls, config: C) -> tuple[Paper, ...]:
        return super().papers_of(config) + ((MEDBN,) if config.statistics == "median" else ())

    def collect(self, skip: Collection[str] = (), weight_decay: float = 0.0) -> None:
        """Statistics set up; `parameters` found, but for layers in `skip`; `optimizer` around them."""
        cfg = self.config
        self.use_statistics()
        self.parameters = norm_affine(self.model, cfg.norms, skip)
        self.optimizer = make_optimizer(
            cfg.optimizer, self.parameters.values(), cfg.lr, cfg.momentum, weight_decay
        )

    def use_statistics(self) -> None:
        """What batch norm normalises with: the statistics of the batch at hand."""
        use_batch_statistics(self.model, self.config.statistics)

    def adapted(self) -> str:
        return describe(self.model, self.parameters)


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Inside, forward passes may move running statistics; on leaving, all buffers are back."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
