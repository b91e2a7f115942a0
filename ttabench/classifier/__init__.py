"""The shape that every model takes: images in, features, a linear last layer, logits out.

`norm_layers`, `transformer_blocks` and `probe` find out what a network is made of.
"""

from ttabench.classifier.architecture import Architecture
from ttabench.classifier.classifier import Classifier, Normalize

__all__ = ["Architecture", "Classifier", "Normalize"]
