"""The learning rate where the batch size is not the method's own, as official scripts have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ttabench.classifier import Architecture
from ttabench.method import Method
from ttabench.registry import entry_points, load

RATES = "ttabench.rates"
RATE = "lr"

RateOf = Callable[[Any, Architecture, int, int], Mapping[str, Any]]
"""Config, architecture, the method's own batch size and that of the protocol → settings that change."""


def settings_for_batch(
    cls: type[Method[Any]], config: Any, arch: Architecture, own: int, batch_size: int
) -> Mapping[str, Any]:
    """The settings that a method's official scripts have at another batch size; {} if they are the same.

    own          the batch size that the method has by itself in this mode, for this number of classes.
    batch_size   of the protocol.
    """
    if batch_size == own or cls.name not in entry_points(RATES):
        return {}
    rate: RateOf = load(RATES, cls.name, "rates of method")
    return rate(config, arch, own, batch_size)
