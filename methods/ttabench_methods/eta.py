"""ETA: EATA without the Fisher penalty, and so without source data (Niu et al., ICML 2022).

Symbols, loss, scored forward pass, thresholds and deviations: see `eata`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ttabench.method import Needs, NonNegative
from ttabench_methods.eata import EATA, EATAConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ETAConfig(EATAConfig):
    """EATA's, with the penalty off."""

    fisher_alpha: NonNegative = 0.0


class ETA(EATA):
    """Entropy of reliable, non-redundant samples."""

    name = "eta"
    needs = Needs(gradient=True, norm_layers=("batch",))
    Config = ETAConfig
    deviations = "a reset clears the average prediction; dropout and stochastic depth stay in eval mode"
