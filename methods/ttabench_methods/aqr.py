"""AQR: pre-activations get the source's quantiles, channel by channel (Mehrbod et al., arXiv 2511.03148).

| symbol | name      |                                                                                  |
| ------ | --------- | -------------------------------------------------------------------------------- |
| x      | out       | output of a norm layer, before the activation: n values per channel in the batch |
| F_t    | share     | share of the channel's values in the batch up to x                               |
| Q_s    | quantiles | quantile function of the channel on `source_images` source images                |
| T      | table     | x ↦ Q_s(F_t(x)) at the edges of `cells` cells over the sample's range; `STEPS`   |
|        |           | equal steps between two edges                                                    |

T is monotone, and undoes any increasing distortion of a channel. It is applied in every norm layer, from the
first to the last, so each layer gets corrected inputs. Scored: this only forward pass. Nothing is kept from
batch to batch, and there are no gradients; batch norm keeps the source statistics.

Tails: the lowest and the highest of n values have the levels ½/n and 1 − ½/n, not 0 and 1. So they are mapped
to the extremes of n source values, for any batch size, and not to the extremes of all source images.

Deviations: there is no official code, and only the abstract was available: quantile levels, tails and the
layers where the map is applied are our choice. F_t is estimated from at most `samples` values of a channel;
beyond them T is constant. A constant channel is not changed. Cells have equal width, so a shift that skews a
channel is undone less exactly: exp of a normal channel to 0.17 standard deviations, with 512 cells to 0.04.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from ttabench import nn as tta
from ttabench.method import Count, Method, Natural, Needs, Range, SourceData
from ttabench_methods import references

# Source quantiles are kept at levels whose log-odds are evenly spaced, so that they are dense in the tails.
SPAN, LEVELS = 14.0, 513
STEPS = 8  # steps of the map in a cell; a step needs one look-up per value, linear interpolation two
CHUNK = 1 << 17  # values processed together on a CPU, so that they fit into its cache
ROW = 1 << 12  # values of a row, at most; short rows are slow


@dataclass(frozen=True, slots=True, kw_only=True)
class AQRConfig:
    """Defaults: our choice. source_images: 0 = all."""

    cells: Annotated[int, Range(least=2)] = 128  # pieces of the map of a channel; our choice
    samples: Count = 2048  # values per channel and batch that its quantiles come from; our choice
    source_images: Natural = 5_000  # images for the source's quantiles; 0 = all; our choice


def levels() -> tuple[float, ...]:
    """The levels of the source quantiles, ascending in (0, 1)."""
    return tuple(torch.linspace(-SPAN, SPAN, LEVELS, dtype=torch.double).sigmoid().tolist())


def lookup(quantiles: Tensor, share: Tensor) -> Tensor:
    """Q_s at levels (C, G) in (0, 1), linear in the log-odds between quantiles (C, LEVELS)."""
    place = ((share / (1 - share)).log_() * ((LEVELS - 1) / 2 / SPAN) + (LEVELS - 1) / 2).clamp_(
        0, LEVELS - 1
    )
    left = place.long().clamp_(max=LEVELS - 2)
    a, b = quantiles.gather(1, left), quantiles.gather(1, left + 1)
    return torch.lerp(a, b, place - left)


def sampled(x: Tensor, most: int) -> Tensor:
    """(C, m) values of (N, C, L): all of them if a channel has at most `most`.

    Otherwise `most` of them, spread over images and locations by multiples of the golden ratio, so that they
    favour no row, column or token.
    """
    n, channels, length = x.shape
    if n * length <= most:
        return x.transpose(0, 1).flatten(1).contiguous()
    i = torch.arange(most, device=x.device, dtype=torch.double)
    positions = (i * 0.6180339887498949 % 1 * (n * length)).long()
    if x.mT.is_contiguous():  # whole rows of channels are copied faster
        return x.mT.reshape(-1, channels).index_select(0, positions).T.contiguous()
    return x[positions // length, :, positions % length].T.contiguous()


def table(some: Tensor, quantiles: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """T from values `some` (C, m): T(x) is entry ⌊scale · x + shift⌋ of the channel's row, or its end.

    scale, shift (C, 1); entries (C, STEPS · cells), for cells of equal width over the range of `some`.
    """
    m = some.shape[1]
    low, high = some.amin(dim=1, keepdim=True), some.amax(dim=1, keepdim=True)
    varies = high > low
    scale = torch.where(varies, cells / (high - low), 0)
    cell = torch.addcmul(-low * scale, some, scale).clamp_(0, cells - 1).long()
    counts = some.new_zeros(len(some), cells).scatter_add_(1, cell, torch.ones_like(some))
    share = pad(counts.cumsum(dim=1).div_(m), (1, 0))
    edges = lookup(quantiles, share.clamp_(0.5 / m, 1 - 0.5 / m)) * varies + low * ~varies
    step_values = interpolate(edges[:, None], scale_factor=float(STEPS), mode="linear")[:, 0]
    scale = STEPS * scale
    return scale, -low * scale, step_values[:, STEPS // 2 : -(STEPS // 2)]  # the middles of steps


def in_memory(x: Tensor, per_channel: Tensor) -> tuple[Tensor, Tensor]:
    """(N, C, L) as rows in the order of memory; values (K, C) of the channels, for each number of a row."""
    n, channels, length = x.shape
    if x.mT.is_contiguous():  # channels last, or no locations
        repeats = math.gcd(n * length, max(1, ROW >> channels.bit_length()))
        return x.mT.view(-1, repeats * channels), per_channel.repeat(1, repeats)
    return x.view(n, -1), per_channel.repeat_interleave(length, dim=1)


def recalibrate(x: Tensor, quantiles: Tensor, cells: int, samples: int) -> Tensor:
    """T(x), in place if it is dense: (N, C, L) → the same, channel by channel, to quantiles (C, LEVELS)."""
    x = x if x.mT.is_contiguous() else x.contiguous()
    scale, shift, entries = table(sampled(x, samples), quantiles, cells)
    channels, count = entries.shape
    first = count * torch.arange(channels, device=x.device, dtype=x.dtype)[:, None]
    per_channel = torch.cat([scale, shift + first, first, first + (count - 1)], dim=1).T
    rows, (scale, shift, first, last) = in_memory(x, per_channel)
    entries = entries.flatten().to(x.dtype)  # one index selects channel and cell
    size = max(1, CHUNK // rows.shape[1]) if x.device.type == "cpu" else len(rows)
    for part in torch.split(rows, size):
        place = torch.addcmul(shift, part, scale)
        place = torch.clamp(place, first, last, out=place).int()
        torch.index_select(entries, 0, place.view(-1), out=part.view(-1))
    return x


class AQR(Method[AQRConfig]):
    """Map the quantiles of every channel in every norm layer to the source's."""

    name = "aqr"
    paper = references.AQR
    needs = Needs(
        source_data="statistics",
        source_statistics=("quantiles",),
        norm_layers=("batch", "group", "layer", "instance"),
    )
    Config = AQRConfig
    family = "alignment"
    batch_size = 128
    scores = "the only forward pass, its pre-activations recalibrated by the batch itself"
    scores_frozen = scores
    deviations = (
        "written from the abstract; ours: levels, tails and the layers that are mapped; 5,000 source images"
    )

    def setup(self, source: SourceData | None) -> None:
        if source is None:
            raise ValueError("AQR needs quantiles of source activations; pass source data to prepare(source)")
        self.quantiles = source.quantiles(self.model, levels(), self.config.source_images)

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        cfg = self.config
        layers = {name: layer for name, layer in tta.norm_modules(self.model) if name in self.quantiles}

        def replace(name: str, out: Tensor) -> Tensor:
            x = tta.by_channel(layers[name], tta.widen(out))
            return recalibrate(x, self.quantiles[name], cfg.cells, cfg.samples).view_as(out).to(out.dtype)

        with tta.on_output(layers, replace):
            logits: Tensor = self.model(x)
        return logits

    def adapted(self) -> str:
        return f"the outputs of {len(self.quantiles)} norm layers"
