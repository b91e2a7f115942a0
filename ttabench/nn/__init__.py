"""Building blocks that several methods share. A method file imports from here and from `ttabench.method`.

Norm layers, batch-norm statistics, top layers, losses, updates, source images, the base class `NormAdapter`.
"""

from ttabench.classifier import Classifier
from ttabench.classifier.buffers import buffers_kept
from ttabench.classifier.norm_layers import norm_kind, norm_modules
from ttabench.classifier.transformer_blocks import transformer_blocks
from ttabench.errors import warn_of_setting
from ttabench.nn.adapted_norms import describe, norm_affine, norm_needs, set_norm_mode, weights_and_biases
from ttabench.nn.batch_norm import (
    AdaptiveBatchNorm,
    adapt_batch_norm,
    channel_moments,
    estimate_batch_norm,
    use_batch_statistics,
    use_running_statistics,
)
from ttabench.nn.norm_adapter import NormAdapter, NormSettings
from ttabench.nn.objectives import entropy, masked_mean, soft_cross_entropy, stabilised_entropy, widen
from ttabench.nn.outputs import by_channel, on_output
from ttabench.nn.pixels import channels_last
from ttabench.nn.running_moments import RunningMoments
from ttabench.nn.sharpness_aware import sharpness
from ttabench.nn.source_images import channel_statistics, source_batches
from ttabench.nn.top_layers import top_norms, top_norms_by_name
from ttabench.nn.updates import (
    average_parameters,
    make_optimizer,
    minimise,
    moving_average,
    pull,
    snapshot,
)

__all__ = [
    "AdaptiveBatchNorm",
    "Classifier",
    "NormAdapter",
    "NormSettings",
    "RunningMoments",
    "adapt_batch_norm",
    "average_parameters",
    "buffers_kept",
    "by_channel",
    "channel_moments",
    "channel_statistics",
    "channels_last",
    "describe",
    "entropy",
    "estimate_batch_norm",
    "make_optimizer",
    "masked_mean",
    "minimise",
    "moving_average",
    "norm_affine",
    "norm_kind",
    "norm_modules",
    "norm_needs",
    "on_output",
    "pull",
    "set_norm_mode",
    "sharpness",
    "snapshot",
    "soft_cross_entropy",
    "source_batches",
    "stabilised_entropy",
    "top_norms",
    "top_norms_by_name",
    "transformer_blocks",
    "use_batch_statistics",
    "use_running_statistics",
    "warn_of_setting",
    "weights_and_biases",
    "widen",
]
