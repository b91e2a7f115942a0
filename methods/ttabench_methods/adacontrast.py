"""AdaContrast: pseudo-labels from neighbours, and contrast between classes (Chen et al., CVPR 2022).

| symbol    | name           |                                                                              |
| --------- | -------------- | ---------------------------------------------------------------------------- |
| θ, θ′     | model, slow    | θ′ ← m θ′ + (1 − m) θ before the keys of a batch, with m = `smoothing`       |
| t_w, t_s  | weak, strong   | random views: a mirror; colours, grey, blur and mirror                       |
| Q_w, ŷ    | bank, label    | features and probabilities of θ′ on weak views; ŷ is the arg max of the mean |
|           |                | probability of the `neighbours` nearest ones by cosine                       |
| Q_s       | keys, labels   | keys of θ′, and pseudo-labels, of the last `queue` images; at first random   |
| τ         | temperature    | of the contrast                                                              |
| L_ce      | classify       | cross-entropy of ŷ with the prediction on a strong view                      |
| L_ctr     | contrast_loss  | InfoNCE: query and key are two strong views of an image; negatives are the   |
|           |                | keys in Q_s with another pseudo-label                                        |
| L_div     | diversity_loss | Σ p̄ log p̄ of the mean prediction p̄ on strong views                         |

Loss: `classify` · L_ce + `contrast` · L_ctr + `diversity` · L_div. All parameters called weight or bias are
trained. Batch norm uses batch statistics while learning, and they move its running ones. Scored: a forward
pass in eval mode after the update. For the first `refine_after` images, ŷ is the model's own prediction.

Deviations: the online form of the RMT repository (the official code labels all target images first and trains
15 epochs). A key of the queue is masked by its own pseudo-label; with `official_quirks=True` the keys that
this batch replaces are masked by the new labels, as in both codes. The bank keeps the last `queue` images.
Dropout and stochastic depth stay in eval mode.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from ttabench import nn as tta
from ttabench.method import (
    Count,
    Method,
    Natural,
    Needs,
    NonNegative,
    Positive,
    Range,
    SourceData,
    UnitInterval,
)
from ttabench_methods import references
from ttabench_methods.adacontrast_views import mirrored, strong_view
from ttabench_methods.cotta_views import View


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaContrastConfig:
    """Defaults: those of the RMT repository, for CIFAR-10-C (batch size 200) and ImageNet-C (64) alike."""

    optimizer: Literal["adam", "sgd", "nesterov"] = "nesterov"  # optimiser of the model
    lr: NonNegative = 2e-4  # learning rate
    momentum: Annotated[float, Range(above=0, below=1)] = 0.9  # momentum of SGD, β₁ of Adam
    weight_decay: NonNegative = 1e-4  # weight decay of the optimiser
    smoothing: UnitInterval = 0.999  # m of the slow model
    temperature: Positive = 0.07  # τ of the contrast
    neighbours: Count = 10  # images whose probabilities make a pseudo-label
    queue: Count = 16384  # images in the queue of keys, and in the bank
    refine_after: Natural = 1024  # images before the first pseudo-label from neighbours
    classify: NonNegative = 1.0  # weight of the cross-entropy with pseudo-labels
    contrast: NonNegative = 1.0  # weight of the contrast
    diversity: NonNegative = 1.0  # weight of the diversity
    official_quirks: bool = False  # the keys that a batch replaces are masked by the new labels


def neighbours_mean(z: Tensor, bank: Tensor, probabilities: Tensor, count: int) -> Tensor:
    """Mean probabilities (B, C) of the `count` rows of the bank (n, k) nearest to z (B, k) by cosine."""
    nearest = (normalize(z) @ normalize(bank).T).topk(min(count, len(bank)), dim=1).indices
    return probabilities[nearest].mean(dim=1)


def info_nce(query: Tensor, key: Tensor, queue: Tensor, masked: Tensor, temperature: float) -> Tensor:
    """−log of the share of a query's own key among it and the queue; `masked` ones do not count.

    Unit rows (B, k), (B, k), (K, k) and (B, K) bool → a scalar, the mean over the batch.
    """
    own = (query * key).sum(dim=1, keepdim=True)
    others = (query @ queue.T).masked_fill(masked, -torch.inf)
    scores = tta.widen(torch.cat([own, others], dim=1)) / temperature
    return -scores.log_softmax(dim=1)[:, 0].mean()


def diversity_loss(logits: Tensor) -> Tensor:
    """Σ p̄ log p̄ of the mean prediction of logits (B, C): lowest where all classes are equally frequent."""
    mean = tta.widen(logits).softmax(dim=1).mean(dim=0)
    return (mean * (mean + 1e-8).log()).sum()


class AdaContrast(Method[AdaContrastConfig]):
    """Learn from pseudo-labels that neighbours vote for, and tell images of other classes apart."""

    name = "adacontrast"
    paper = references.ADACONTRAST
    needs = Needs(gradient=True)
    Config = AdaContrastConfig
    imagenet_batch_size = 64
    scores = "a forward pass after the update, in eval mode"
    deviations = (
        "the online form of the RMT repository (official: labels all images first, 15 epochs); keys are "
        "masked by their own labels (official_quirks: those that are replaced, by the new labels)"
    )
    weak: View = staticmethod(mirrored)
    strong: View = staticmethod(strong_view)

    @torch.no_grad()
    def setup(self, source: SourceData | None) -> None:
        cfg, like = self.config, self.model.linear.weight
        self.slow = copy.deepcopy(self.model)
        self.parameters = tta.weights_and_biases(self.model)
        self.optimizer = tta.make_optimizer(
            cfg.optimizer, self.parameters.values(), cfg.lr, cfg.momentum, cfg.weight_decay
        )
        self.keys = normalize(torch.randn(cfg.queue, self.model.num_features).to(like))
        self.labels = torch.randint(self.model.num_classes, (cfg.queue,)).to(like.device)
        self.bank = tta.widen(torch.zeros_like(self.keys))
        self.probabilities = tta.widen(like.new_zeros(cfg.queue, self.model.num_classes))
        self.seen = 0

    @torch.enable_grad()
    def adapt(self, x: Tensor) -> Tensor:
        views = self.weak(x), self.strong(x), self.strong(x)
        weak, query, other = map(tta.channels_last, views)
        self.learning(True)
        try:
            label, keys = self.pseudo_label(weak), self.keys_of(other)
            tta.minimise(self.loss(query, keys, label), self.optimizer)
            self.remember(weak, keys, label)
        finally:
            self.learning(False)
        return self.predict(x)

    def learning(self, on: bool) -> None:
        """Batch norm of both models: batch statistics that move the running ones, or the running ones."""
        for model in (self.model, self.slow):
            tta.set_norm_mode(model, train=on)

    @torch.no_grad()
    def pseudo_label(self, weak: Tensor) -> Tensor:
        """ŷ (B,) of weak views (B, 3, H, W)."""
        z, logits = self.model.features_and_logits(weak)
        if self.seen < self.config.refine_after or not self.seen:
            return logits.argmax(dim=1)
        bank, probabilities = self.bank[: self.seen], self.probabilities[: self.seen]
        return neighbours_mean(tta.widen(z), bank, probabilities, self.config.neighbours).argmax(dim=1)

    @torch.no_grad()
    def keys_of(self, view: Tensor) -> Tensor:
        """Unit features (B, k) of the slow model, which first follows the model, on strong views."""
        tta.average_parameters(self.slow, self.model, self.config.smoothing)
        return normalize(tta.widen(self.slow.features(view)))

    def loss(self, query: Tensor, keys: Tensor, label: Tensor) -> Tensor:
        """The loss of strong views (B, 3, H, W) with keys (B, k) and pseudo-labels (B,)."""
        cfg = self.config
        z, logits = self.model.features_and_logits(query)
        labels = self.labels.clone()
        if cfg.official_quirks:
            labels[self.places(len(label))] = label[-len(labels) :]
        contrast = info_nce(
            normalize(tta.widen(z)), keys, self.keys, label[:, None] == labels[None], cfg.temperature
        )
        classify = cross_entropy(tta.widen(logits), label)
        return cfg.classify * classify + cfg.contrast * contrast + cfg.diversity * diversity_loss(logits)

    def places(self, count: int) -> Tensor:
        """The places of the next `count` images in queue and bank, at most all of them."""
        size = len(self.labels)
        return torch.arange(self.seen, self.seen + min(count, size), device=self.labels.device) % size

    @torch.no_grad()
    def remember(self, weak: Tensor, keys: Tensor, label: Tensor) -> None:
        """Keys and labels enter the queue; features and probabilities of the slow model the bank."""
        z, logits = self.slow.features_and_logits(weak)
        places = self.places(len(weak))
        rows = slice(-len(places), None)
        self.keys[places] = keys[rows].to(self.keys.dtype)
        self.labels[places] = label[rows]
        self.bank[places] = tta.widen(z)[rows]
        self.probabilities[places] = tta.widen(logits).softmax(dim=1)[rows]
        self.seen += len(places)

    def adapted(self) -> str:
        return tta.describe(self.model, self.parameters)
