"""The interface of every model: images in, features, a linear last layer, logits out.

`norm_layers`, `transformer_blocks` and `probe` analyse the structure of a network.
"""

from ttabench.classifier.architecture import Architecture
from ttabench.classifier.classifier import Classifier, Normalize

__all__ = ["Architecture", "Classifier", "Normalize"]
