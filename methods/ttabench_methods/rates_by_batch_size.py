"""The learning rates of official scripts for other batch sizes than the method's own.

The scripts of SAR, DeYO and COME, which also run TENT and EATA, set the rate by network and batch size B:
0.00025 · B/64 · 2 below 32 images and 0.00025 from there on for ResNet-50, 0.001 · B/64 for ViT-B. At B = 1,
the scripts of SAR and DeYO double the rate of their own method. Here the same factors hold for the method's
own rate lr and its own batch size B₀, which are these on ImageNet:

| network                    | rate                                 |
| -------------------------- | ------------------------------------ |
| with batch or group norm   | lr · B/32 below 32 images, else lr   |
| with layer norm alone      | lr · B/B₀                            |
| SAR and DeYO, B = 1        | twice that                           |

A function of the entry points ``ttabench.rates`` gets the method's Config, the architecture, B₀ and B, and
returns the settings that change. A sweep asks it where the batch size is not the method's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttabench.method import Architecture
from ttabench_methods.come import COME

FEW = 32  # images, below which the rate of a convolutional network falls


def factor(arch: Architecture, own: int, batch_size: int) -> float:
    """The rate at `batch_size` images over that at `own`."""
    if {"batch", "group"} & set(arch.norm_layers):
        return min(batch_size, FEW) / min(own, FEW)
    return batch_size / own


def scaled(config: Any, arch: Architecture, own: int, batch_size: int) -> Mapping[str, Any]:
    """TENT and EATA."""
    share = factor(arch, own, batch_size)
    return {} if share == 1 else {"lr": config.lr * share}


def doubled_alone(config: Any, arch: Architecture, own: int, batch_size: int) -> Mapping[str, Any]:
    """SAR and DeYO: twice the rate for a batch of one image."""
    settings = scaled(config, arch, own, batch_size)
    return {"lr": 2 * settings.get("lr", config.lr)} if batch_size == 1 else settings


def of_host(config: Any, arch: Architecture, own: int, batch_size: int) -> Mapping[str, Any]:
    """COME: the rate of its host; its script doubles none."""
    _, host_config = COME.host_of(config, arch)
    return scaled(host_config, arch, own, batch_size)
