"""Quantile matching in front of a classifier whose norm layers are recalibrated as in AQR.

Quantile matching changes the images and leaves the classifier as it is. AQR gives each channel of each norm
layer the source's quantiles, whatever the images are. So both can be used together.

| symbol | name       |                                                                                |
| ------ | ---------- | ------------------------------------------------------------------------------ |
| T_θ    | –          | the decorruptor of `quantile`, trained in front of the classifier as it is     |
| a      | share      | images become x + a (T_θ(x) − x); a is one of `SHARES`                          |
| f_AQR  | –          | features of the classifier with recalibrated norm layers                       |

a is the share at which the features f_AQR(x + a (T_θ(x) − x)) have the lowest quantile loss. The loss needs
no labels, and here it compares parameters under the same settings. Where recalibration alone leaves less to
match than the decorruptor does, a is 0.

Scored: offline, log-probabilities of the recalibrated classifier, averaged over the views of `quantile`;
online, the recalibrated classifier after the update, with a chosen on each batch.

Deviations: the pair is not published. See also the deviations of `quantile` and `aqr`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ttabench.method import Batches, Needs, Paper, SourceData
from ttabench.nn import Classifier, by_channel, norm_modules, on_output, widen
from ttabench_methods.aqr import AQR, levels, recalibrate

from .config import QuantileConfig
from .method import Quantile

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@contextmanager
def recalibration(model: Classifier, quantiles: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside the block, norm layers have the source's `quantiles`, (C, Q) for each layer by its name."""
    layers = {name: layer for name, layer in norm_modules(model) if name in quantiles}
    usual = AQR.Config()

    def replace(name: str, out: Tensor) -> Tensor:
        x = by_channel(layers[name], widen(out))
        return recalibrate(x, quantiles[name], usual.cells, usual.samples).view_as(out).to(out.dtype)

    with on_output(layers, replace):
        yield


class RecalibratedQuantile(Quantile):
    """Quantile matching, then AQR in the norm layers of the classifier."""

    name = "quantile_aqr"
    needs = Needs(
        gradient=True,
        source_data="features",
        source_statistics=("channels", "quantiles"),
        norm_layers=AQR.needs.norm_layers,
    )
    scores = "the recalibrated classifier on the decorrupted batch, after the update"
    scores_frozen = "after all epochs, the recalibrated classifier, averaged over views unless views=false"
    deviations = "the pair is not published; see also the deviations of quantile and aqr"

    @classmethod
    def papers_of(cls, config: QuantileConfig) -> tuple[Paper, ...]:
        return *super().papers_of(config), *AQR.papers_of(AQR.Config())

    def setup(self, source: SourceData | None) -> None:
        super().setup(source)
        assert source is not None
        self.quantiles = source.quantiles(self.model, levels(), AQR.Config().source_images)
        self.share = 1.0

    def fit(self, batches: Batches, epochs: int = 0) -> None:
        super().fit(batches, epochs)
        self.share = self._best_share(batches)

    def adapt(self, x: Tensor) -> Tensor:
        super().adapt(x)
        self.share = self._best_share([x])
        return self.predict(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        images = torch.lerp(x, self.decorruptor(x), self.share)
        with recalibration(self.model, self.quantiles):
            if self.views and self.config.views:
                return self.views.average(self.model, images)
            logits: Tensor = self.model(images)
            return logits

    @torch.no_grad()
    def _best_share(self, batches: Iterable[Tensor]) -> float:
        """The share with the lowest quantile loss of the recalibrated features."""
        features: dict[float, list[Tensor]] = {share: [] for share in SHARES}
        for x in batches:
            decorrupted = self.decorruptor(x)
            with recalibration(self.model, self.quantiles):
                for share in SHARES:
                    features[share].append(self.matching.features(torch.lerp(x, decorrupted, share)))
        return min(SHARES, key=lambda share: self.matching.loss_of(torch.cat(features[share])))

    def adapted(self) -> str:
        return f"{super().adapted()}, then the outputs of {len(self.quantiles)} norm layers"

    def alarms(self) -> dict[str, Any]:
        return {**super().alarms(), "share": self.share}
