"""The options of a figure that shows a classifier. Imports nothing."""

from __future__ import annotations

from typing import Any

BENCH: dict[str, Any] = {
    "arch": "resnet18",
    "dataset": "digits-c",
    "corruption": "",
    "checkpoint": "",
    "normalize": "",
    "device": "auto",
    "seed": 0,
}
"""What such a figure shows, where the command line does not say."""
