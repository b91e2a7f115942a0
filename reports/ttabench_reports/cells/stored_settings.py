"""The settings of a method as a cell stores them."""

from __future__ import annotations

import json
from typing import Any


def stored_settings(config: Any) -> dict[str, Any]:
    """The settings in a JSON text or dict; none where it is something else."""
    return parsed(config) or {}


def parsed(config: Any) -> dict[str, Any] | None:
    """The settings in a JSON text or dict, none in an empty text; None where it is something else."""
    if isinstance(config, dict):
        return config
    try:
        return dict(json.loads(config or "{}"))
    except (ValueError, TypeError):
        return None
