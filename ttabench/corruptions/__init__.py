"""The 15 + 4 common corruptions of CIFAR-10-C and Tiny-ImageNet-C, and the 10 of CIFAR-10-C-bar (`bar`).

`engine` corrupts, vectorised over the batch; `names` are light to import.
"""
