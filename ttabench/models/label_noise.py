"""Labels that belong to other images, found by a network that is sure of its predictions on clean images.

A network that is right on most images is right on nearly all of those that it is sure of. Where labels are
shuffled, it is as often wrong on these as on others, and the labels are as likely classes that it holds for
impossible. Images that a network cannot read well, such as corrupted ones, make it wrong where it is unsure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_IMAGES = 100
LEAST_NOISE = 0.05  # share of labels
SURE = 0.9  # mean confidence of the surer half of the images
ALIKE = 0.8
"""Accuracy on the less sure half over that on the surer half, from which on errors do not follow confidence.

ResNet20 and ResNet56 on CIFAR-10: 0.82 and more where 5 to 100 % of the labels were shuffled, 0.36 to 0.72
with all labels right on images upside down, in negative, not normalised or strongly corrupted.
"""
EXPECTED = 0.2  # of the noise, what the network itself expects of its least likely classes


def noisy_labels(probabilities: NDArray[np.float32], labels: NDArray[np.int64]) -> str:
    """What shows that labels are those of other images, as the end of a sentence; "" where nothing does.

    probabilities   (n, C), C > 1: softmax of the logits on clean images.
    labels          (n,)
    """
    count, classes = probabilities.shape
    if count < LEAST_IMAGES or classes < 4:
        return ""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    order = np.argsort(-confidence, kind="stable")
    surer, others = order[: count // 2], order[count // 2 :]
    unlikely = np.argsort(probabilities, axis=1, kind="stable")[:, : classes // 2]
    found = (unlikely == labels[:, None]).any(axis=1)
    expected = np.take_along_axis(probabilities, unlikely, axis=1).sum(axis=1)
    share = (classes // 2) / classes  # of shuffled labels, so many are among the unlikely half of the classes
    noise = float(found.mean()) / share
    in_sure = float(found[surer].mean()) / share
    follows = right[others].mean() < ALIKE * right[surer].mean()
    if (
        min(noise, in_sure) < LEAST_NOISE
        or follows
        or confidence[surer].mean() < SURE
        or expected[surer].mean() / share > EXPECTED * in_sure
    ):
        return ""
    return (
        f"; the network's mean confidence is {100 * float(confidence.mean()):.0f} %, but on the {len(surer)} "
        "images with the highest confidence, it is wrong nearly as often as on the others, and "
        f"{int(found[surer].sum())} of their labels are classes that it finds least likely: about "
        f"{100 * min(noise, 1):.0f} % of the labels seem to belong to other images; compare the order of "
        "labels and images"
    )
