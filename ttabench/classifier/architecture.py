"""Facts about a model that methods may read before they run on it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Properties of a model that a method may read before it runs.

    norm_layers  its kinds of normalisation layer: batch, group, layer, instance.
    tags         the kind of network, e.g. ("transformer", "class_token"); see `probe.Probed`.
    """

    norm_layers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    num_classes: int = 0
    num_features: int = 0
    parameters: int = 0
