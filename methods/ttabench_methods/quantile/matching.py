"""Matching of quantile indices: those of decorrupted features to those of source features."""

from __future__ import annotations

import torch
from torch import Tensor

from ttabench.nn import Classifier, widen
from ttabench_methods.shot import information_maximisation

from .bank import Bank, StreamBank, mean_unit
from .config import QuantileConfig
from .geometric import quantile_index
from .sampling import ByClass, high_confidence_uniform


class Matching:
    """The points f(x_r), the source's indices u_r there, and the loss of estimated indices (Section 4.1).

    clean    source features (n, k).
    unit     (k,): features are divided by it; with `standardise`, it is the source's standard deviation.
    points   (Q, k), divided by `unit`; with `per_class` repeated, for the indices within classes.
    index    (Q, k): quantile indices of the points among the source features.
    """

    def __init__(self, model: Classifier, clean: Tensor, config: QuantileConfig) -> None:
        self.model, self.config = model, config
        logits = model.head(clean.to(model.linear.weight.dtype))
        positions = high_confidence_uniform(logits, config.quantiles_per_class, config.confident)
        deviation = clean.std(0, correction=0) if config.standardise else torch.ones_like(clean[0])
        self.unit = deviation.clamp_min(0.1 * deviation.mean())  # some features are constant on the source
        clean = clean / self.unit
        self.points, self.index = clean[positions], quantile_index(clean[positions], clean)
        self.weigh = ByClass(model, self.unit, self.points, config.per_class) if config.per_class else None
        if self.weigh is not None:
            self.points = torch.cat([self.points, self.points])
            index_within_class = mean_unit(self.points, clean, self.weigh)
            self.index = torch.cat([self.index, index_within_class[len(positions) :]])

    def features(self, x: Tensor) -> Tensor:
        """Features of images, divided by `unit`: (b, 3, H, W) → (b, k)."""
        return self.model.features(x).float() / self.unit

    def loss(self, estimate: Tensor, plain: bool = False) -> Tensor:
        """Mean over the points of ‖u_r − u_r^θ‖².

        With `per_class` and unless `plain`, the same mean for indices within classes is added.
        """
        squared_error = (estimate - self.index).square().sum(1)
        point_count = len(squared_error) if self.weigh is None else len(squared_error) // 2
        return (squared_error[:point_count] if plain else squared_error).sum() / point_count

    def loss_of(self, features: Tensor) -> float:
        """The exact loss of features (n, k)."""
        return float(self.loss(mean_unit(self.points, features, self.weigh)))

    def information(self, features: Tensor) -> Tensor | float:
        """SHOT's information maximisation on the predictions of features (b, k); our addition."""
        if not self.config.information:
            return 0.0
        return self.config.information * information_maximisation(self.logits(features))

    def logits(self, features: Tensor) -> Tensor:
        """Logits (b, C) of features (b, k) that are divided by `unit`."""
        return widen(self.model.head((features * self.unit).to(self.model.linear.weight.dtype)))

    def bank(self, features: Tensor) -> Bank:
        """A bank of all target features (n, k) at the start."""
        if self.config.bank_on_cpu:
            features = features.cpu()
        beta = {"none": 0.0, "optimal": None}.get(self.config.bank, 1.0)
        return Bank(self.points, features, every_step=self.config.bank == "step", beta=beta, weigh=self.weigh)

    def stream(self) -> StreamBank:
        """An empty bank for the recent features of a stream."""
        return StreamBank(self.points, self.config.recent, self.weigh)
