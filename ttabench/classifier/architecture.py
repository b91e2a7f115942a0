"""What methods may ask about a model before they run on it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What a method may ask about a model.

    norm_layers  the kinds of normalisation layer it has, out of batch, group, layer and instance.
    tags         what kind of network it is, e.g. ("transformer", "class_token"); see `probe.Probed`.
    """

    norm_layers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    num_classes: int = 0
    num_features: int = 0
    parameters: int = 0
