"""Batch-norm layers that normalise with statistics of the test data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttabench.classifier.norm_layers import norm_modules
from ttabench.errors import UserError
from ttabench.nn.objectives import widen


def channel_moments(x: Tensor, statistics: str = "batch") -> tuple[Tensor, Tensor]:
    """Centre and spread of each channel, over images and locations: (B, C, …) → (C,), (C,).

    "batch": mean and biased variance. "unbiased": mean and unbiased variance (0 for a single value).
    "median": the lower median m and the mean of (x − m)² (MedBN, Park et al., CVPR 2024); the median's
    gradient goes to the selected element.
    """
    if statistics not in ("batch", "median", "unbiased"):
        raise UserError(f"statistics is '{statistics}'; expected batch or median.")
    rows = x.transpose(0, 1).flatten(1)
    centre = rows.median(dim=1).values if statistics == "median" else rows.mean(dim=1)
    spread = (rows - centre[:, None]).square().mean(dim=1)
    count = rows.shape[1]
    return centre, spread * (count / max(1, count - 1)) if statistics == "unbiased" else spread


# The forward passes that do nothing but normalise.
PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


class AdaptiveBatchNorm(_BatchNorm):
    """A batch-norm layer that normalises with statistics of the test data, alone or mixed with stored ones.

    (μ, σ²) = (1 − w)·(stored mean, stored variance) + w·(m, v), with (m, v) the :func:`channel_moments` of
    the input; gradients flow through m and v, unless `gradient` is false.

    statistics  "batch", "unbiased" or "median".
    weight      w in [0, 1]. With w = 1, stored statistics are not used.
    prior       N > 0: w = n / (N + n) for a batch of n images (Schneider et al., NeurIPS 2020).
    track       True: in train mode the mixture replaces the stored statistics; in eval mode the layer uses
                the stored statistics (RobustBN: Yuan et al., CVPR 2023). False: both modes normalise with
                the mixture, and the stored statistics do not change.
    after       a module applied to the output, such as an activation; None for torch's own layers.
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
        gradient: bool = True,
    ) -> None:
        super().__init__(layer.num_features, layer.eps, affine=False, track_running_stats=False)
        self.replaces = type(layer).__name__
        self.weight, self.bias, self.affine = layer.weight, layer.bias, layer.affine
        self.statistics, self.mix, self.prior, self.track = statistics, weight, prior, track
        if track or prior or weight < 1:
            if layer.running_mean is None or layer.running_var is None:
                raise UserError(
                    f"a {self.replaces} layer of the model has no stored statistics to mix with; "
                    "use only the statistics of the batch, or another model."
                )
            self.running_mean, self.running_var = layer.running_mean.clone(), layer.running_var.clone()
        self.after, self.gradient = after, gradient
        self.training = layer.training

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        out = self._normalise(input)
        return out if self.after is None else cast(Tensor, self.after(out))

    def _normalise(self, input: Tensor) -> Tensor:
        if self.running_mean is None and self.statistics == "batch":
            return self._fused(input, batch_statistics=True)
        if self.track and not self.training:
            return self._fused(input, batch_statistics=False)
        mean, var = self._statistics(input)
        shape = (1, -1, *(1,) * (input.dim() - 2))
        scale = (var + self.eps).rsqrt()
        if self.weight is not None:
            scale = self.weight * scale
        out = (input - mean.view(shape)) * scale.view(shape)
        return (out if self.bias is None else out + self.bias.view(shape)).to(input.dtype)

    def _fused(self, x: Tensor, batch_statistics: bool) -> Tensor:
        # torch.batch_norm accepts a single value per channel; nn.functional.batch_norm refuses it.
        stored = (None, None) if batch_statistics else (self.running_mean, self.running_var)
        cudnn = torch.backends.cudnn.enabled
        return torch.batch_norm(x, self.weight, self.bias, *stored, batch_statistics, 0.0, self.eps, cudnn)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = channel_moments(widen(x if self.gradient else x.detach()), self.statistics)
        if self.running_mean is None or self.running_var is None:
            return mean, var
        w = len(x) / (self.prior + len(x)) if self.prior else self.mix
        mean, var = (1 - w) * self.running_mean + w * mean, (1 - w) * self.running_var + w * var
        if self.track:
            self.running_mean, self.running_var = mean.detach(), var.detach()
        return mean, var


def adapt_batch_norm(
    model: nn.Module,
    statistics: str = "batch",
    weight: float = 1.0,
    prior: float = 0.0,
    track: bool = False,
    gradient: bool = True,
) -> None:
    """Replace every batch-norm layer by an :class:`AdaptiveBatchNorm`; the affine parameters stay.

    Raises UserError for a layer class that does more than normalise. Only timm's layers are known: their
    `drop` and `act` are applied after the normalisation.
    """
    for name, layer in list(norm_modules(model, "batch")):
        after = None
        if type(layer).forward not in PLAIN_FORWARDS:
            rest = [getattr(layer, part, None) for part in ("drop", "act")]
            if not all(isinstance(part, nn.Module) for part in rest):
                raise UserError(
                    f"{type(layer).__name__} at '{name}' is a batch norm that ttabench does not know; "
                    "use nn.BatchNorm2d, or a method that does not change batch norm."
                )
            after = nn.Sequential(*cast(list[nn.Module], rest))
        parent, _, leaf = name.rpartition(".")
        new = AdaptiveBatchNorm(cast(_BatchNorm, layer), statistics, weight, prior, track, after, gradient)
        setattr(model.get_submodule(parent), leaf, new)


def use_batch_statistics(model: nn.Module, statistics: str = "batch") -> None:
    """Make every batch-norm layer normalise with the statistics of its input, in train and eval mode.

    "batch": mean and biased variance; "median": see :func:`channel_moments`. No other layer changes.
    """
    adapt_batch_norm(model, statistics)


def estimate_batch_norm(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the stored statistics of batch norm to the mean over `batches`; put the layers in eval mode."""
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
    """Batch norm with running statistics: train mode updates them by `momentum`, eval mode uses them.

    "batch" is torch's own behaviour: train mode normalises with the statistics of the batch. With "median",
    train mode first updates the running statistics and then normalises with them (MedBN's layer for SoTTA).
    """
    if statistics != "batch":
        adapt_batch_norm(model, statistics, weight=momentum, track=True)
    layer: Any
    for _, layer in norm_modules(model, "batch"):
        layer.momentum = momentum
