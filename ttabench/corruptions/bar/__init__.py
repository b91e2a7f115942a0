"""The ten corruptions of CIFAR-10-C-bar, 32 pixels; `constants` has their severities.

Mintun, Kirillov and Xie, "On Interaction Between Augmentations and Corruptions in Natural Corruption
Robustness", NeurIPS 2021. The corruptions were chosen to be unlike those of CIFAR-10-C.
"""
