"""Statistics of source images: moments and quantiles of norm layers, moments of features, entropies.

Every function takes a classifier in eval mode and processes the images batch by batch. Memory does not grow
with the number of images, except for the result. Layers have their names in the classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.nn import RunningMoments, by_channel, entropy, norm_modules, on_output, widen

Batches = Iterable[Tensor]
CELLS = 2048  # of a histogram; quantiles are linear inside a cell


def rows(layer: nn.Module, output: Tensor) -> Tensor:
    """A norm layer's output as (n, C), one row per image and location, in float32 at least."""
    return by_channel(layer, widen(output)).transpose(1, 2).flatten(0, 1)


@torch.no_grad()
def norm_statistics(
    classifier: Classifier, batches: Batches, per_location: bool
) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and unbiased variance of the output of every norm layer.

    per_location: over images, of the shape of one image's output; else over images and locations, (C,).
    """
    layers = dict(norm_modules(classifier))
    moments = {name: RunningMoments("variance") for name in layers}

    def note(name: str, output: Tensor) -> None:
        moments[name].add(widen(output) if per_location else rows(layers[name], output))

    with on_output(layers, note):
        for x in batches:
            classifier(x)
    return {name: (m.mean, m.second(correction=1)) for name, m in moments.items() if m.count}


@torch.no_grad()
def features(classifier: Classifier, batches: Batches) -> Tensor:
    """Features (n, k), float32."""
    return torch.cat([classifier.features(x).float() for x in batches])


@torch.no_grad()
def gaussian(classifier: Classifier, batches: Batches) -> tuple[Tensor, Tensor]:
    """Mean (k,) and covariance (k, k), divided by n, of the features."""
    moments = RunningMoments("covariance")
    for x in batches:
        moments.add(widen(classifier.features(x)))
    return moments.mean, moments.second()


@torch.no_grad()
def class_gaussians(classifier: Classifier, batches: Batches) -> tuple[Tensor, Tensor, Tensor]:
    """Images (C,), means (C, k) and covariances (C, k, k), divided by n, of features by predicted class.

    Zeros for a class that is never predicted.
    """
    moments = [RunningMoments("covariance") for _ in range(classifier.num_classes)]
    z = torch.empty(0)
    for x in batches:
        z, logits = (widen(out) for out in classifier.features_and_logits(x))
        labels = logits.argmax(dim=1)
        for label in set(labels.tolist()):
            moments[label].add(z[labels == label])
    k = z.shape[1]
    means = [m.mean if m.count else z.new_zeros(k) for m in moments]
    covariances = [m.second() if m.count else z.new_zeros(k, k) for m in moments]
    counts = torch.tensor([m.count for m in moments], device=z.device)
    return counts, torch.stack(means), torch.stack(covariances)


@torch.no_grad()
def entropies(classifier: Classifier, batches: Batches, temperature: float) -> Tensor:
    """Softmax entropies (n,) of the logits divided by `temperature`, ascending."""
    return torch.cat([entropy(widen(classifier(x)) / temperature) for x in batches]).sort().values


@torch.no_grad()
def quantiles(
    classifier: Classifier, again: Callable[[], Batches], levels: tuple[float, ...]
) -> dict[str, Tensor]:
    """Quantiles (C, Q) at Q ascending levels in (0, 1), per channel, of the output of every norm layer.

    It makes two passes over the images of `again()`: range of each channel, then a histogram in this range.
    """
    layers = dict(norm_modules(classifier))
    ends: dict[str, tuple[Tensor, Tensor]] = {}
    counts: dict[str, Tensor] = {}

    def widest(name: str, output: Tensor) -> None:
        values = rows(layers[name], output)
        low, high = values.amin(dim=0), values.amax(dim=0)
        if name in ends:
            low, high = torch.minimum(low, ends[name][0]), torch.maximum(high, ends[name][1])
        ends[name] = low, high

    def count(name: str, output: Tensor) -> None:
        low, high = ends[name]
        values = rows(layers[name], output)
        cell = (values - low) * (CELLS / (high - low).clamp_min(torch.finfo(low.dtype).tiny))
        cell = cell.clamp_(0, CELLS - 1).long() + CELLS * torch.arange(len(low), device=low.device)
        histogram = cell.flatten().bincount(minlength=CELLS * len(low)).view(len(low), CELLS)
        counts[name] = counts[name] + histogram if name in counts else histogram

    for act in (widest, count):
        with on_output(layers, act):
            for x in again():
                classifier(x)
    return {name: invert(counts[name], *ends[name], levels) for name in counts}


def invert(counts: Tensor, low: Tensor, high: Tensor, levels: tuple[float, ...]) -> Tensor:
    """Quantiles (C, Q) of histograms (C, cells) between `low` (C,) and `high` (C,)."""
    share = counts.cumsum(dim=1).double() / counts.sum(dim=1, keepdim=True)
    targets = torch.tensor(levels, dtype=share.dtype, device=share.device).expand(len(share), -1).contiguous()
    cell = torch.searchsorted(share, targets).clamp_(max=share.shape[1] - 1)
    cumulative = torch.cat([torch.zeros_like(share[:, :1]), share], dim=1)
    start, end = cumulative.gather(1, cell), cumulative.gather(1, cell + 1)
    cell_position = cell + ((targets - start) / (end - start).clamp_min(torch.finfo(share.dtype).tiny)).clamp(
        0, 1
    )
    return (low[:, None] + (high - low)[:, None] * (cell_position / share.shape[1])).to(low.dtype)
